/** Pixels: pictures of any kind as RGBA, and the small pictures that show latents on their way. */

import { describe, TinywebError } from "../errors.js";
import type { Preview } from "./manifest.js";

/** Pixels by rows, four bytes each; an ImageData is one. */
export interface Rgba {
  data: Uint8ClampedArray<ArrayBuffer>;
  width: number;
  height: number;
}

/** A picture to begin from. */
export type ImageInput =
  | ImageBitmap
  | ImageData
  | Blob
  | HTMLImageElement
  | HTMLVideoElement
  | HTMLCanvasElement
  | OffscreenCanvas
  | VideoFrame
  | Rgba;

/** Pixels as the browser's own type, where there is one. */
export function asImageData({ data, width, height }: Rgba): Rgba {
  return typeof ImageData === "undefined" ? { data, width, height } : new ImageData(data, width, height);
}

/** A rough picture of latents, one pixel each. @param latents channels × height × width */
export function previewOf(latents: Float32Array, width: number, height: number, { matrix, bias }: Preview): Rgba {
  const area = width * height;
  const data = new Uint8ClampedArray(4 * area).fill(255);
  for (let i = 0; i < area; i++) {
    for (let colour = 0; colour < 3; colour++) {
      let value = bias[colour] as number;
      for (let c = 0; c < matrix.length; c++) value += (latents[c * area + i] as number) * ((matrix[c] as number[])[colour] as number);
      data[4 * i + colour] = 255 * value;
    }
  }
  return asImageData({ data, width, height });
}

/**
 * The picture in exactly this size: scaled to cover it, cut evenly at the edges, on white where it is transparent.
 * Without a canvas (Node) it must be RGBA of this size.
 */
export async function pixelsOf(image: ImageInput, width: number, height: number): Promise<Rgba> {
  const given = Object(image) as Partial<Rgba>;
  if (given.data instanceof Uint8ClampedArray && given.width === width && given.height === height) {
    if (given.data.length !== 4 * width * height)
      throw unusable(`it has ${given.data.length} bytes, ${width} × ${height} pixels have ${4 * width * height}`);
    return onWhite(given as Rgba);
  }
  if (typeof image !== "object" || image === null)
    throw unusable(`${String(image)} is none; give an ImageBitmap, an image, video or canvas element, an ImageData or a Blob`);
  if (typeof OffscreenCanvas === "undefined") throw unusable(`without a canvas it must be RGBA of ${width} × ${height} pixels`);
  try {
    // An element's picture may still be on its way.
    if ("decode" in image) await image.decode();
    const source = await createImageBitmap(
      given.data instanceof Uint8ClampedArray && !(image instanceof ImageData)
        ? new ImageData(given.data, given.width as number)
        : (image as ImageBitmapSource),
    );
    try {
      const scale = Math.max(width / source.width, height / source.height);
      const [w, h] = [source.width * scale, source.height * scale];
      const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
      if (!context) throw new Error("this browser gave no canvas");
      context.fillStyle = "#fff";
      context.fillRect(0, 0, width, height);
      context.imageSmoothingQuality = "high";
      context.drawImage(source, (width - w) / 2, (height - h) / 2, w, h);
      return context.getImageData(0, 0, width, height) as Rgba;
    } finally {
      source.close();
    }
  } catch (error) {
    throw unusable(describe(error), error);
  }
}

function unusable(why: string, cause?: unknown): TinywebError {
  return new TinywebError("bad-argument", `The picture to begin from cannot be used: ${why}.`, cause);
}

function onWhite({ data, width, height }: Rgba): Rgba {
  const opaque = data.slice();
  for (let i = 0; i < opaque.length; i += 4) {
    const alpha = (opaque[i + 3] as number) / 255;
    for (let c = i; c < i + 3; c++) opaque[c] = (opaque[c] as number) * alpha + 255 * (1 - alpha);
    opaque[i + 3] = 255;
  }
  return { data: opaque, width, height };
}
