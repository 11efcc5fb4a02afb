/** Pictures of any kind, fitted into the square (or rectangle) that a network sees. */

import { describe } from "../errors.js";
import { isPixels, onPaper, PAPER, PIXELS, KINDS, sizeOf, unusable, type Picture, type Pixels } from "../pixels.js";

export type { Picture, Pixels };

/** A place in the network's input: left, top, width, height. */
export type Place = [left: number, top: number, width: number, height: number];

export interface Fitted {
  image: ImageBitmap | Uint8Array<ArrayBuffer>;
  place: Place;
  /** Width and height of the picture itself. */
  size: [width: number, height: number];
}

/** Where a picture of `width` × `height` lies, in proportion and in the middle. */
export function placeOf(width: number, height: number, into: { width: number; height: number }): Place {
  const scale = Math.min(into.width / width, into.height / height);
  const [w, h] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  return [Math.floor((into.width - w) / 2), Math.floor((into.height - h) / 2), w, h];
}

/** Draws pictures, one at a time. Browsers do so on the GPU where they have one; the pixels are not read back. */
export class Fitter {
  private context: OffscreenCanvasRenderingContext2D | undefined;

  constructor(private readonly into: { width: number; height: number }) {}

  /** What is transparent is seen on white. @throws TinywebError "bad-argument" for what is no picture, or not one yet */
  async fit(picture: Picture): Promise<Fitted> {
    if (isPixels(picture)) return this.resample(picture);
    if (typeof picture !== "object" || picture === null)
      throw unusable(`${picture === null ? null : typeof picture} is no picture; ${KINDS}`);
    if (picture instanceof Blob && typeof createImageBitmap === "undefined") throw unusable(`nothing here reads image files; ${PIXELS}`);
    let own: ImageBitmap | undefined;
    try {
      if (picture instanceof Blob) own = await createImageBitmap(picture);
      // An element's picture may still be on its way.
      else if ("decode" in picture) await picture.decode();
    } catch (error) {
      throw unusable(`the browser cannot read it (${describe(error)})`, error);
    }
    try {
      return this.draw(own ?? (picture as Exclude<Picture, Blob | Pixels>));
    } finally {
      own?.close();
    }
  }

  private draw(picture: Exclude<Picture, Blob | Pixels>): Fitted {
    const size = sizeOf(picture);
    const place = placeOf(...size, this.into);
    if (this.context?.isContextLost?.()) this.context = undefined; // the GPU process ended, and draws nothing for some time
    this.context ??= canvas(this.into);
    this.context.fillStyle = PAPER;
    this.context.fillRect(...place);
    try {
      this.context.drawImage(picture as CanvasImageSource, ...place);
      return { image: this.context.canvas.transferToImageBitmap(), place, size };
    } catch (error) {
      throw unusable(describe(error), error);
    }
  }

  private resample(pixels: Pixels): Fitted {
    const { width, height } = pixels;
    if (![width, height].every((side) => Number.isInteger(side) && side > 0)) throw unusable(`it cannot have ${width} × ${height} pixels`);
    if (pixels.data.length !== width * height * 4) {
      throw unusable(`it has ${pixels.data.length} bytes, ${width} × ${height} pixels have ${4 * width * height}`);
    }
    const data = onPaper(pixels.data);
    const place = placeOf(width, height, this.into);
    const [left, top, w, h] = place;
    const scaled = scale(scale(data, height, width * 4, h, 1, 0), width, 4, w, h, width * 4);
    const image = new Uint8Array(this.into.width * this.into.height * 4);
    for (let y = 0; y < h; y++) image.set(toBytes(scaled, y * w * 4, w * 4), ((top + y) * this.into.width + left) * 4);
    return { image, place, size: [width, height] };
  }
}

function canvas(size: { width: number; height: number }): OffscreenCanvasRenderingContext2D {
  const made =
    typeof OffscreenCanvas === "undefined" ? undefined : new OffscreenCanvas(size.width, size.height).getContext("2d", { alpha: false });
  if (!made) throw unusable(`there is no canvas to draw it on; ${PIXELS}`);
  made.imageSmoothingQuality = "medium"; // "low" skips pixels where much is shrunk
  return made;
}

/**
 * One direction of a picture scaled to `count` lines, the same way round for rows and for columns: linear between lines,
 * averaged over those that become one.
 * @param step distance of neighbouring lines; a line is `step` values, at each of `others` places `stride` apart
 */
function scale(
  from: ArrayLike<number>,
  have: number,
  step: number,
  count: number,
  others: number,
  stride: number,
): Float32Array<ArrayBuffer> {
  const to = new Float32Array(count * step * others);
  const ratio = have / count;
  const reach = Math.max(1, ratio);
  for (let i = 0; i < count; i++) {
    const centre = (i + 0.5) * ratio;
    const first = Math.max(0, Math.ceil(centre - reach - 0.5));
    const last = Math.min(have - 1, Math.floor(centre + reach - 0.5));
    let total = 0;
    for (let line = first; line <= last; line++) total += 1 - Math.abs(line + 0.5 - centre) / reach;
    for (let line = first; line <= last; line++) {
      const weight = (1 - Math.abs(line + 0.5 - centre) / reach) / total;
      for (let other = 0; other < others; other++) {
        const source = other * stride + line * step;
        const target = other * count * step + i * step;
        for (let k = 0; k < step; k++) to[target + k]! += weight * (from[source + k] as number);
      }
    }
  }
  return to;
}

function toBytes(values: Float32Array, begin: number, count: number): Uint8ClampedArray {
  return new Uint8ClampedArray(values.subarray(begin, begin + count)); // rounds
}
