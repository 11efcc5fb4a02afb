/** What the next picture is to be made with: what was chosen, completed with what the model offers. */

import type { ImageDefaults, ImageModelInfo } from "../model-api";
import type { Recipe } from "./recipe";

/** `null` stands for the model's own default. */
export interface Draft {
  prompt: string;
  negativePrompt: string;
  steps: number | null;
  guidance: number | null;
  width: number | null;
  height: number | null;
  seed: number;
  /** The seed stays from picture to picture. */
  seedLocked: boolean;
  scheduler: string | null;
  strength: number | null;
}

export const MAX_PROMPT = 2000;
export const MAX_STEPS = 100;
export const MAX_GUIDANCE = 20;

/** What a model is taken to offer before it is known. */
export type Offer = Pick<ImageModelInfo, "sizes" | "guidance" | "imageToImage" | "maxTokens" | "examples"> & {
  schedulers: readonly string[];
  defaults: Omit<ImageDefaults, "scheduler"> & { scheduler: string };
  parameters?: number;
};

export const UNKNOWN_OFFER: Offer = {
  sizes: [],
  schedulers: [],
  defaults: { scheduler: "", steps: 20, guidance: 7.5, strength: 0.75 },
  guidance: true,
  imageToImage: true,
  maxTokens: 75,
  examples: [],
};

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const figure = (value: unknown, min: number, max: number): number | null =>
  typeof value === "number" && Number.isFinite(value) ? Math.min(max, Math.max(min, value)) : null;

/** Any value as a draft. */
export function parseDraft(value: unknown, seed: number): Draft {
  const raw = isRecord(value) ? value : {};
  const text = (key: string): string => (typeof raw[key] === "string" ? raw[key].slice(0, MAX_PROMPT) : "");
  const whole = (key: string, min: number, max: number): number | null => {
    const found = figure(raw[key], min, max);
    return found === null ? null : Math.round(found);
  };
  return {
    prompt: text("prompt"),
    negativePrompt: text("negativePrompt"),
    steps: whole("steps", 1, MAX_STEPS),
    guidance: figure(raw["guidance"], 1, MAX_GUIDANCE),
    width: whole("width", 1, 100_000),
    height: whole("height", 1, 100_000),
    seed: whole("seed", 0, Number.MAX_SAFE_INTEGER) ?? seed,
    seedLocked: raw["seedLocked"] === true,
    scheduler: text("scheduler") || null,
    strength: figure(raw["strength"], 0, 1),
  };
}

/** The figures that are left out where they are the model's own follow the model. */
export function draftOf(recipe: Recipe, draft: Draft): Draft {
  return {
    ...draft,
    prompt: recipe.prompt.slice(0, MAX_PROMPT),
    negativePrompt: recipe.negativePrompt.slice(0, MAX_PROMPT),
    steps: recipe.steps > 0 ? Math.min(recipe.steps, MAX_STEPS) : null,
    guidance: recipe.guidance > 0 ? Math.min(recipe.guidance, MAX_GUIDANCE) : null,
    width: recipe.width > 0 ? recipe.width : null,
    height: recipe.height > 0 ? recipe.height : null,
    seed: recipe.seed,
    seedLocked: true,
    scheduler: recipe.scheduler || null,
    strength: recipe.strength ?? draft.strength,
  };
}

/** The draft with every default filled in; what this model has not becomes what it has. */
export function complete(draft: Draft, { sizes, schedulers, defaults, guidance }: Offer): Omit<Recipe, "model"> {
  const first = sizes[0] ?? { width: 512, height: 512 };
  const size = sizes.find(({ width, height }) => width === draft.width && height === draft.height) ?? first;
  const { prompt, negativePrompt, seed } = draft;
  return {
    prompt: prompt.trim(),
    negativePrompt: guidance ? negativePrompt.trim() : "",
    steps: draft.steps ?? defaults.steps,
    guidance: guidance ? (draft.guidance ?? defaults.guidance) : 1,
    seed,
    width: size.width,
    height: size.height,
    scheduler: draft.scheduler !== null && schedulers.includes(draft.scheduler) ? draft.scheduler : defaults.scheduler,
    strength: draft.strength ?? defaults.strength,
  };
}
