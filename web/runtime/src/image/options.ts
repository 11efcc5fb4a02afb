/** What a picture is asked for with: checked, and completed with the model's defaults. */

import { badArgument, checkNumber, checkOneOf, optionsOf, unlike } from "../arguments.js";
import type { ImageManifest, Size } from "./manifest.js";
import type { PartsProgress } from "./parts.js";
import type { ImageInput, Rgba } from "./pixels.js";
import type { SchedulerName } from "./schedulers.js";

export interface StepProgress {
  /** The step that was done, from 1. */
  step: number;
  /** Steps in all. */
  steps: number;
  /** The picture so far, one pixel for each of the latents: roughly what it will be. */
  preview?: Rgba;
  /** Until the picture is there; absent while nothing was measured. */
  secondsLeft?: number;
}

/** What is being done: loading a part, reading the prompt, reading the picture to begin from, taking steps, drawing the pixels. */
export type Stage = "loading" | "text" | "image" | "steps" | "decoding";

export interface TextToImageOptions {
  /** What should not be in the picture; needs guidance. */
  negativePrompt?: string;
  /** More steps take longer and are finer. */
  steps?: number;
  /** How closely to follow the prompt; at most 1: without guidance, which takes half the time. */
  guidance?: number;
  /** 0 … 2⁵³ − 1: the same seed and settings give the same picture. Random by default. */
  seed?: number;
  /** Noise to begin from in place of the seed's: normals, channels × height × width of the latents. */
  latents?: Float32Array;
  /** One of the model's sizes (`info.sizes`); its first by default. */
  width?: number;
  height?: number;
  scheduler?: SchedulerName;
  /** A picture to begin from; scaled and cut to the size. */
  image?: ImageInput;
  /** How far to go from `image`, 0 … 1: little keeps it, 1 forgets it. */
  strength?: number;
  onStep?: (progress: StepProgress) => void;
  onStage?: (stage: Stage) => void;
  /** Of parts that are loaded for this picture. */
  onProgress?: (progress: PartsProgress) => void;
  /** Stops after the step that is being computed. */
  signal?: AbortSignal | undefined;
}

export interface Job {
  prompt: string;
  negativePrompt: string;
  steps: number;
  guidance: number;
  seed: number;
  latents: Float32Array | undefined;
  size: Size;
  scheduler: SchedulerName;
  image: ImageInput | undefined;
  strength: number;
}

const OPTIONS = [
  "negativePrompt",
  "steps",
  "guidance",
  "seed",
  "latents",
  "width",
  "height",
  "scheduler",
  "image",
  "strength",
  "onStep",
  "onStage",
  "onProgress",
  "signal",
] satisfies (keyof TextToImageOptions)[];

/** @throws TinywebError "bad-argument" */
export function imageOptions(given: TextToImageOptions | null | undefined): TextToImageOptions {
  return optionsOf(given, "textToImage()", OPTIONS);
}

/** @throws TinywebError "bad-argument" */
export function completeJob(prompt: unknown, options: TextToImageOptions, manifest: ImageManifest): Job {
  const {
    defaults,
    sizes,
    schedulers,
    functions,
    scheduler: { num_train_timesteps: most },
  } = manifest;
  const text = (name: string, value: unknown): string => {
    if (typeof value !== "string") throw unlike(name, "a text", value);
    return value;
  };
  const number = (name: "steps" | "guidance" | "strength", max: number, min = 0): number =>
    checkNumber(name, options[name], min, max, name === "steps") ?? (name === "guidance" && !functions.unet2 ? 1 : defaults[name]);
  const { width, height, scheduler = defaults.scheduler, seed = crypto.getRandomValues(new Uint32Array(1))[0] as number } = options;
  const size = sizes.find((s) => s.width === (width ?? s.width) && s.height === (height ?? s.height));
  if (!size) {
    const known = sizes.map((s) => `${s.width} × ${s.height}`).join(", ");
    throw badArgument(`This model was exported for pictures of ${known}, not ${width ?? "any"} × ${height ?? "any"}.`);
  }
  checkOneOf("scheduler", scheduler, schedulers);
  checkNumber("seed", seed, 0, Number.MAX_SAFE_INTEGER, true);
  const { latents } = options;
  const count = (manifest.channels * size.width * size.height) / manifest.factor ** 2;
  if (latents !== undefined && !(latents instanceof Float32Array && latents.length === count)) {
    throw badArgument(
      `latents must be a Float32Array of ${count} numbers (${manifest.channels} × ${size.height / manifest.factor} × ${size.width / manifest.factor}).`,
    );
  }
  const guidance = number("guidance", 100);
  if (guidance > 1 && !functions.unet2) throw badArgument("This model is made to be used without guidance: leave it out.");
  return {
    prompt: text("The prompt", prompt),
    negativePrompt: text("negativePrompt", options.negativePrompt ?? ""),
    steps: number("steps", most, 1),
    guidance,
    seed,
    latents,
    size,
    scheduler,
    image: options.image,
    strength: number("strength", 1),
  };
}
