/** What the reader of this page has chosen. */

import { parseShellSettings, type ShellSettings } from "tinyweb-shell";

export type Facing = "user" | "environment";

export interface Settings extends ShellSettings {
  /** Null: what the model recommends. */
  confidence: number | null;
  iou: number | null;
  /** Labels that are not shown. */
  hidden: string[];
  facing: Facing;
}

const MOST_HIDDEN = 10_000;

export function parseSettings(value: unknown): Settings {
  const { confidence, iou, hidden, facing } = Object(value) as Record<string, unknown>;
  const share = (given: unknown): number | null => (typeof given === "number" && given >= 0 && given <= 1 ? given : null);
  return {
    ...parseShellSettings(value),
    confidence: share(confidence),
    iou: share(iou),
    hidden: Array.isArray(hidden) ? hidden.filter((label) => typeof label === "string").slice(0, MOST_HIDDEN) : [],
    facing: facing === "user" ? "user" : "environment",
  };
}
