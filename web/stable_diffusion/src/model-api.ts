/** What this page uses of the model that its generated loader gives (docs/image.md). */

import type { ImageGenerator, ImageInfo } from "tinyweb/image";

export type {
  GeneratedImage,
  ImageDefaults,
  ImageInfo as ImageModelInfo,
  Rgba,
  SchedulerName,
  Stage,
  StepProgress,
  TextToImageOptions as GenerateOptions,
} from "tinyweb/image";

export type Size = ImageInfo["sizes"][number];

export type ImageModel = Pick<ImageGenerator, "info" | "on" | "dispose" | "generateRgba">;
