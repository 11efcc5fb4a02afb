/** The section "detect" of a bundle's manifest (docs/detect.md). */

import { TinywebError } from "../errors.js";
import type { FunctionInfo } from "../index.js";

export interface DetectDefaults {
  confidence: number;
  iou: number;
  agnostic: boolean;
}

export interface DetectSection {
  entry: string;
  width: number;
  height: number;
  maxBoxes: number;
  labels: readonly string[];
  defaults: DetectDefaults;
}

/** Checks it against the function that it is about. @throws TinywebError "bad-argument" | "bad-manifest" */
export function parseSection({ model, functions, sections }: FunctionInfo): DetectSection {
  const json = sections["detect"] as Record<string, unknown> | undefined;
  if (!json) throw new TinywebError("bad-argument", `The bundle ${model} is no detector: load it with load() of tinyweb/load.`);
  const fail = (what: string): never => {
    throw new TinywebError("bad-manifest", `manifest.json: detect.${what}.`);
  };
  const entry = String(json["entry"]);
  const plan = functions[entry];
  if (!plan) return fail("entry names no function");
  const shape = (name: string): number[] =>
    [...plan.inputs, ...plan.outputs].find((array) => array.name === name)?.shape ?? fail(`entry: the function has no "${name}"`);
  const [height, width] = shape("image") as [number, number];
  const [maxBoxes] = shape("boxes") as [number];
  for (const name of ["frame", "source", "settings", "scores", "classes", "count"]) shape(name);
  const { labels } = json;
  if (!Array.isArray(labels) || labels.length === 0 || !labels.every((label) => typeof label === "string"))
    fail("labels is no list of names");
  const { confidence, iou, agnostic } = Object(json["defaults"]) as Record<string, unknown>;
  const share = (value: unknown, name: string): number =>
    typeof value === "number" && value >= 0 && value <= 1 ? value : fail(`defaults.${name} is no number from 0 to 1`);
  const defaults = { confidence: share(confidence, "confidence"), iou: share(iou, "iou"), agnostic: agnostic === true };
  return { entry, width, height, maxBoxes, labels: Object.freeze([...(labels as string[])]), defaults };
}
