/** What the generated loader says of its model before it is loaded. */

import type { ImageModelInfo, SchedulerName } from "../model-api";

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
const isFigure = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value) && value >= 0;

/** `info` of model.js as far as it makes sense; all of it may be missing. */
export function parseFacts(info: unknown): Partial<ImageModelInfo> {
  if (!isRecord(info)) return {};
  const facts: Partial<ImageModelInfo> = {};
  const { name, parameters, quant, modelBytes, sizes, schedulers, defaults, examples } = info;
  if (typeof name === "string") facts.model = name;
  if (isFigure(parameters)) facts.parameters = parameters;
  if (typeof quant === "string") facts.quant = quant;
  if (isFigure(modelBytes)) facts.modelBytes = modelBytes;
  if (Array.isArray(sizes) && sizes.every((size) => isRecord(size) && isFigure(size["width"]) && isFigure(size["height"]))) {
    facts.sizes = sizes as { width: number; height: number }[];
  }
  if (Array.isArray(schedulers) && schedulers.every((one) => typeof one === "string")) facts.schedulers = schedulers as SchedulerName[];
  if (Array.isArray(examples) && examples.every((one) => typeof one === "string")) facts.examples = examples as string[];
  if (isRecord(defaults)) {
    const { scheduler, steps, guidance, strength } = defaults;
    if (typeof scheduler === "string" && isFigure(steps) && isFigure(guidance) && isFigure(strength)) {
      facts.defaults = { scheduler: scheduler as SchedulerName, steps, guidance, strength };
    }
  }
  if (typeof info["guidance"] === "boolean") facts.guidance = info["guidance"];
  if (typeof info["imageToImage"] === "boolean") facts.imageToImage = info["imageToImage"];
  return facts;
}

/** What the page is called. */
export function pageTitle(facts: unknown): string {
  const name = parseFacts(facts).model;
  return name === undefined || /^tinysd/iu.test(name) ? "TinyPaint" : name;
}
