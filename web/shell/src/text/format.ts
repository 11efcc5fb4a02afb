/** Figures as people read them. Sizes are decimal (1 MB = 1 000 000 bytes), as in browsers' download lists. */

import type { StartTimes } from "../model-api";

/** "640 KB", "7.8 MB", "34 MB", "1.2 GB". */
export function formatBytes(bytes: number): string {
  if (bytes < 999_500) return `${Math.round(bytes / 1000)} KB`;
  if (bytes < 999_500_000) return `${withOneDigit(bytes / 1e6)} MB`;
  return `${withOneDigit(bytes / 1e9)} GB`;
}

/** One digit after the point below ten, none above. */
function withOneDigit(value: number): string {
  return value < 9.95 ? value.toFixed(1) : Math.round(value).toString();
}

/** "3.1 of 7.8 MB": both in the unit of the total. */
export function formatProgress(loaded: number, total: number): string {
  if (total < 999_500) return `${Math.round(loaded / 1000)} of ${formatBytes(total)}`;
  const unit = total < 999_500_000 ? 1e6 : 1e9;
  const digits = total / unit < 99.5 ? 1 : 0;
  return `${(Math.min(loaded, total) / unit).toFixed(digits)} of ${(total / unit).toFixed(digits)} ${unit === 1e6 ? "MB" : "GB"}`;
}

/** "a few seconds left", "25 s left", "3 min left", "about 2 h left"; "" when unknown. */
export function formatSecondsLeft(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds) || seconds < 0) return "";
  if (seconds < 5) return "a few seconds left";
  if (seconds < 55) return `${Math.ceil(seconds / 5) * 5} s left`;
  if (seconds < 3570) return `${Math.ceil(seconds / 60)} min left`;
  return `about ${Math.round(seconds / 3600)} h left`;
}

/** "8.4 tokens/s", "83 tokens/s". */
export function formatSpeed(tokensPerSecond: number): string {
  return `${withOneDigit(tokensPerSecond)} tokens/s`;
}

/** "7.3 million parameters", "135 million parameters", "1.2 billion parameters". */
export function formatParameters(count: number): string {
  const [value, word] = count < 999_500_000 ? [count / 1e6, "million"] : [count / 1e9, "billion"];
  return `${withOneDigit(value)} ${word} parameters`;
}

/** "this browser has no WebGPU" as "This browser has no WebGPU." */
export function asSentence(text: string): string {
  const trimmed = text.trim();
  return trimmed.charAt(0).toUpperCase() + trimmed.slice(1) + (/[.!?]$/u.test(trimmed) ? "" : ".");
}

/** "after 325 ms (weights 324, kernels 180)". */
export function formatStart({ readyMs, weightsMs, kernelsMs }: StartTimes): string {
  const [ready, weights, kernels] = [readyMs, weightsMs, kernelsMs].map(Math.round);
  return `after ${ready} ms (weights ${weights}, kernels ${kernels})`;
}

const BACKEND_NAMES: Record<string, string> = {
  webgpu: "WebGPU",
  wasm: "WASM, several threads",
  "wasm-single": "WASM, one thread",
};

/** The runtime's word for a backend as people know it; with the adapter, how many threads WASM has. */
export function backendName(backend: string, adapter?: string | null): string {
  const threads = backend === "wasm" ? /^\d+/u.exec(adapter ?? "")?.[0] : undefined;
  return threads === undefined ? (BACKEND_NAMES[backend] ?? backend) : `WASM, ${threads} threads`;
}

/** "8-bit weights" for "q8" or "f16"; what is no name of ours, as the types of a file's blocks, stays as it is. */
export function quantName(quant: string): string {
  if (quant === "mixed") return "weights of 3 to 8 bits";
  const bits = /^[qf](\d+)$/.exec(quant)?.[1];
  return bits === undefined ? quant : `${bits}-bit weights`;
}

/** How large a model is, as far as that is known. */
export interface ModelSizes {
  parameters?: number;
  quant?: string;
  /** What quantised weights cost, measured beside f32. */
  fidelity?: string;
  modelBytes?: number;
}

/** "7.3 million parameters", "8-bit weights", "7.8 MB": what is known of these. Lines break between the parts, not inside of them. */
export function modelSizes({ parameters, quant, modelBytes }: ModelSizes): string[] {
  const parts: string[] = [];
  if (parameters !== undefined && parameters > 0) parts.push(formatParameters(parameters));
  if (quant !== undefined && quant !== "") parts.push(quantName(quant));
  if (modelBytes !== undefined && modelBytes > 0) parts.push(formatBytes(modelBytes));
  return parts.map((part) => part.replaceAll(" ", "\u00a0").replaceAll("-", "\u2011"));
}

/** U+2800 is a symbol to Unicode, yet the pattern of Braille without a dot. */
const BLANK = /^[\p{White_Space}\p{Default_Ignorable_Code_Point}\p{Cc}\u2800]*$/u;

/** Whether there is nothing to see in a text: spaces, marks of no width, control characters, fillers. */
export function isBlank(text: string): boolean {
  return BLANK.test(text);
}
