/** What this page relies on from its generated loader, beside what the shell knows (docs/detect.md). */

import type { LoadedModel, ModelInfo } from "tinyweb-shell";

export interface Detection {
  label: string;
  /** The label's place among `labels`. */
  index: number;
  /** 0 … 1 */
  score: number;
  /** x1, y1, x2, y2 in pixels of the picture. */
  box: [number, number, number, number];
}

export interface Times {
  drawMs: number;
  runMs: number;
}

export interface DetectorInfo extends ModelInfo {
  model: string;
  width: number;
  height: number;
  kernels: number;
  times: Times;
}

export interface DetectorModel extends LoadedModel {
  readonly info: DetectorInfo;
  detect(image: HTMLImageElement | HTMLCanvasElement | HTMLVideoElement, options: { confidence?: number; iou?: number; signal?: AbortSignal }): Promise<Detection[]>;
}

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
