/** Pictures that pages hand in, of any kind. */

import { TinywebError } from "./errors.js";

/** RGBA, row by row; an ImageData is one. */
export interface Pixels {
  data: Uint8ClampedArray | Uint8Array;
  width: number;
  height: number;
}

export type Picture = ImageBitmap | HTMLImageElement | HTMLVideoElement | HTMLCanvasElement | OffscreenCanvas | VideoFrame | Pixels | Blob;

export const KINDS = "give an ImageBitmap, an image, video or canvas element, an OffscreenCanvas, VideoFrame, ImageData or Blob";
export const PIXELS = "give RGBA pixels, { data, width, height }";

/** Behind what is transparent. */
export const PAPER = "#fff";

/** RGBA without transparency: in front of white. */
export function onPaper(data: Pixels["data"]): Pixels["data"] {
  let solid = true;
  for (let i = 3; solid && i < data.length; i += 4) solid = data[i] === 255;
  if (solid) return data;
  const to = new Uint8ClampedArray(data.length);
  for (let i = 0; i < data.length; i++) to[i] = i % 4 === 3 ? 255 : 255 + (((data[i] as number) - 255) * (data[i | 3] as number)) / 255;
  return to;
}

export function isPixels(picture: unknown): picture is Pixels {
  return ArrayBuffer.isView((Object(picture) as Partial<Pixels>).data);
}

export function sizeOf(picture: Exclude<Picture, Blob | Pixels>): [width: number, height: number] {
  const { naturalWidth, naturalHeight, videoWidth, videoHeight, displayWidth, displayHeight, width, height } = Object(picture) as Record<
    string,
    number | undefined
  >;
  const w = naturalWidth ?? videoWidth ?? displayWidth ?? width;
  const h = naturalHeight ?? videoHeight ?? displayHeight ?? height;
  if (typeof w !== "number" || typeof h !== "number") throw unusable(`it is of an unknown kind; ${KINDS}`);
  if (!(w > 0 && h > 0)) throw unusable("it has no pixels yet");
  return [w, h];
}

export function unusable(why: string, cause?: unknown): TinywebError {
  return new TinywebError("bad-argument", `The picture cannot be searched: ${why}.`, cause);
}
