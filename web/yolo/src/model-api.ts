/** What this page uses of the model that its generated loader gives (docs/detect.md). */

import type { Detector } from "tinyweb/detect";

export type { Detection, DetectorInfo, DetectTimes as Times } from "tinyweb/detect";

export type DetectorModel = Pick<Detector, "info" | "on" | "dispose" | "detect">;

/** `info` of model.js as far as it makes sense. */
export interface Facts {
  name: string;
  labels: string[];
  confidence: number;
  iou: number;
}

const isShare = (value: unknown): value is number => typeof value === "number" && value >= 0 && value <= 1;

export function parseFacts(info: unknown): Facts {
  const { name, labels, defaults } = Object(info) as Record<string, unknown>;
  const { confidence, iou } = Object(defaults) as Record<string, unknown>;
  return {
    name: typeof name === "string" ? name : "",
    labels: Array.isArray(labels) ? labels.filter((label) => typeof label === "string") : [],
    confidence: isShare(confidence) ? confidence : 0.25,
    iou: isShare(iou) ? iou : 0.7,
  };
}

/** What the page is called: the embedded model's name, or that of what was exported. */
export function pageTitle(info: unknown): string {
  const { name } = parseFacts(info);
  return name === "" || /^tinyyolo/iu.test(name) ? "TinyYOLO" : name;
}
