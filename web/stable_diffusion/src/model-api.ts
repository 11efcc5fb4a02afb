/** What the page relies on from an image model (`tinyweb/image`): its shape, as the generated loader hands it out. */

import type { LoadedModel, LoadProgress, ModelInfo } from "tinyweb-shell";

export interface Size {
  width: number;
  height: number;
}

export interface ImageDefaults {
  scheduler: string;
  steps: number;
  guidance: number;
  strength: number;
}

export interface ImageModelInfo extends ModelInfo {
  model: string;
  parameters: number;
  quant: string;
  /** The first is the default. */
  sizes: readonly Size[];
  schedulers: readonly string[];
  defaults: ImageDefaults;
  /** Whether guidance and negative prompts are of use. */
  guidance: boolean;
  imageToImage: boolean;
  maxTokens: number;
  examples: readonly string[];
  /** Milliseconds that the last picture took. */
  times?: { text: number; step: number; decode: number } | undefined;
}

export interface Rgba {
  data: Uint8ClampedArray<ArrayBuffer>;
  width: number;
  height: number;
}

export interface StepProgress {
  step: number;
  steps: number;
  preview?: Rgba;
  secondsLeft?: number;
}

export type Stage = "loading" | "text" | "image" | "steps" | "decoding";

export interface GenerateOptions {
  negativePrompt?: string;
  steps?: number;
  guidance?: number;
  seed?: number;
  width?: number;
  height?: number;
  scheduler?: string;
  image?: Blob;
  strength?: number;
  onStep?: (progress: StepProgress) => void;
  onStage?: (stage: Stage) => void;
  /** Of parts that are loaded for this picture. */
  onProgress?: (progress: LoadProgress) => void;
  signal?: AbortSignal;
}

export interface GeneratedImage extends Rgba {
  seed: number;
  steps: number;
  guidance: number;
  scheduler: string;
  /** The end of the prompt that the model did not read. */
  cut: string;
}

export interface ImageModel extends LoadedModel {
  readonly info: ImageModelInfo;
  generateRgba(prompt: string, options?: GenerateOptions): Promise<GeneratedImage>;
}
