/** Lines above the page's controls: what happened, without being an error. */

import type { ModelInfo } from "../model-api";
import { asSentence } from "../text/format";

/** At most one of each id at a time. The shell's own ids: "fallback", "device", "storage", "update". */
export interface Note {
  id: string;
  tone: "info" | "busy" | "good";
  title?: string;
  text: string;
  /** A button in the note. */
  action?: { label: string; testId: string; act(): void };
}

/** How fast backends are, best first. */
const RANK = ["webgpu", "wasm", "wasm-single"];

/** Why nothing faster is in use; null when nothing faster was considered. */
export function fallbackNote(info: ModelInfo): Note | null {
  const faster = (info.fallbacks ?? []).filter(({ backend }) => RANK.indexOf(backend) < RANK.indexOf(info.backend));
  if (faster.length === 0) return null;
  const used = info.backend === "wasm-single" ? "WASM with one thread" : "WASM";
  const instead = faster.some(({ backend }) => backend === "webgpu") ? " instead of WebGPU" : "";
  const text = faster.map(({ reason }) => asSentence(reason)).join(" ");
  return { id: "fallback", tone: "info", title: `Using ${used}${instead}`, text };
}
