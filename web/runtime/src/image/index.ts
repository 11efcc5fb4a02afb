/** Pictures from text: `loadImageGenerator(url)`, then `textToImage(prompt)`. */

export {
  loadImageGenerator,
  type GeneratedImage,
  type ImageGenerator,
  type ImageInfo,
  type ImageLoadOptions,
  type ImageTimes,
} from "./generator.js";
export type { ImageDefaults, PartName } from "./manifest.js";
export type { Stage, StepProgress, TextToImageOptions } from "./options.js";
export type { PartsProgress } from "./parts.js";
export type { ImageInput, Rgba } from "./pixels.js";
export type { SchedulerName } from "./schedulers.js";
