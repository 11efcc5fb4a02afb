/** Pictures of any kind as the pixels that a network reads. */

import { describe } from "../errors.js";
import { isPixels, KINDS, onPaper, PAPER, PIXELS, sizeOf, unusable, type Picture } from "../pixels.js";
import { resample, type Scaling } from "./resample.js";

/** Pixels that are read of a picture: larger ones are drawn smaller first, for canvases have limits. */
const MOST_PIXELS = 2 ** 24;

/**
 * Red, green and blue of the square that a network reads; what is transparent is seen on white.
 * @throws TinywebError "bad-argument" for what is no picture
 */
export async function squareOf(picture: Picture, scaling: Scaling): Promise<Uint8Array<ArrayBuffer>> {
  const { data, width, height } = await pixelsOf(picture, scaling.size);
  try {
    return await resample(onPaper(data), width, height, scaling);
  } catch (error) {
    throw error instanceof RangeError ? unusable(error.message, error) : error;
  }
}

async function pixelsOf(picture: Picture, least: number): Promise<{ data: Uint8Array | Uint8ClampedArray; width: number; height: number }> {
  if (isPixels(picture)) {
    const { width, height, data } = picture;
    if (![width, height].every((side) => Number.isInteger(side) && side > 0)) throw unusable(`it cannot have ${width} × ${height} pixels`);
    if (data.length !== width * height * 4) {
      throw unusable(`it has ${data.length} bytes, ${width} × ${height} pixels have ${4 * width * height}`);
    }
    return picture;
  }
  if (typeof picture !== "object" || picture === null)
    throw unusable(`${picture === null ? null : typeof picture} is no picture; ${KINDS}`);
  let own: ImageBitmap | undefined;
  try {
    if (picture instanceof Blob) own = await createImageBitmap(picture);
    else if ("decode" in picture) await picture.decode();
    return draw(own ?? (picture as Exclude<Picture, Blob>), least);
  } catch (error) {
    if ((error as { code?: unknown } | null)?.code === "bad-argument") throw error;
    throw unusable(`the browser cannot read it (${describe(error)})`, error);
  } finally {
    own?.close();
  }
}

function draw(picture: Exclude<Picture, Blob>, least: number): ImageData {
  const [width, height] = sizeOf(picture as never);
  const shrink = Math.min(1, Math.max(Math.sqrt(MOST_PIXELS / (width * height)), least / Math.min(width, height)));
  const [w, h] = [Math.round(width * shrink), Math.round(height * shrink)];
  const context =
    typeof OffscreenCanvas === "undefined" ? null : new OffscreenCanvas(w, h).getContext("2d", { alpha: false, willReadFrequently: true });
  if (!context) throw unusable(`there is no canvas to draw it on; ${PIXELS}`);
  context.imageSmoothingQuality = "high";
  context.fillStyle = PAPER;
  context.fillRect(0, 0, w, h);
  context.drawImage(picture as CanvasImageSource, 0, 0, w, h);
  return context.getImageData(0, 0, w, h);
}
