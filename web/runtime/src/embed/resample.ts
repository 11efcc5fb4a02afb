/** Pictures scaled as in Python (tinyweb/formats/resize.py), byte for byte: as Pillow does it. */

import { nextTask } from "../next-task.js";

/** Functions of the distance, and from which distance on they are 0. */
const FILTERS = {
  bilinear: { at: (x: number) => Math.max(1 - Math.abs(x), 0), reach: 1 },
  bicubic: { at: cubic, reach: 2 },
  lanczos: { at: (x: number) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0), reach: 3 },
};

export type Filter = keyof typeof FILTERS;
export const FILTER_NAMES = Object.keys(FILTERS) as Filter[];

/** Binary digits of weights behind the point. */
const ONE = 2 ** 22;
/** How long nothing else happens at a time. */
const SLICE_MS = 8;
/** Bytes of a pixel that comes in: red, green, blue and one that is not looked at. */
const GIVEN = 4;
const COLOURS = 3;

function cubic(distance: number): number {
  const a = -0.5;
  const x = Math.abs(distance);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
}

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

/** What one line of the result is made of: weights of the lines from `first` on. */
interface Line {
  first: number;
  weights: Float64Array;
}

function linesOf(have: number, count: number, filter: Filter): Line[] {
  const { at, reach } = FILTERS[filter];
  const ratio = have / count;
  const spread = Math.max(ratio, 1);
  return Array.from({ length: count }, (_, i) => {
    if (have === count) return { first: i, weights: Float64Array.of(ONE) };
    const centre = (i + 0.5) * ratio;
    const first = Math.max(Math.floor(centre - reach * spread + 0.5), 0);
    const last = Math.min(Math.floor(centre + reach * spread + 0.5), have);
    const weights = Float64Array.from({ length: last - first }, (_, k) => at((first + k - centre + 0.5) * (1 / spread)));
    const share = 1 / weights.reduce((sum, weight) => sum + weight, 0);
    return { first, weights: weights.map((weight) => Math.trunc(weight * share * ONE + Math.sign(weight) * 0.5)) };
  });
}

/** Bytes, of pixels of `step` bytes. */
interface Raster {
  data: Uint8Array | Uint8ClampedArray;
  width: number;
  height: number;
  step: number;
}

/** The weighted sums of pixels of a row, or of a column. */
async function pass(from: Raster, lines: readonly Line[], along: "row" | "column", rest: () => Promise<void>): Promise<Raster> {
  const rows = along === "row";
  const [width, height] = rows ? [lines.length, from.height] : [from.width, lines.length];
  const data = new Uint8ClampedArray(width * height * COLOURS);
  const pitch = from.width * from.step;
  const next = rows ? from.step : pitch;
  let begun = performance.now();
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const { first, weights } = lines[rows ? x : y] as Line;
      let at = rows ? y * pitch + first * next : first * next + x * from.step;
      let red = ONE / 2;
      let green = red;
      let blue = red;
      for (let k = 0; k < weights.length; k++, at += next) {
        const weight = weights[k] as number;
        red += weight * (from.data[at] as number);
        green += weight * (from.data[at + 1] as number);
        blue += weight * (from.data[at + 2] as number);
      }
      const to = (y * width + x) * COLOURS;
      data[to] = Math.floor(red / ONE); // sums are exact; the array takes 0 … 255
      data[to + 1] = Math.floor(green / ONE);
      data[to + 2] = Math.floor(blue / ONE);
    }
    if (performance.now() - begun < SLICE_MS) continue;
    await rest();
    begun = performance.now();
  }
  return { data, width, height, step: COLOURS };
}

export interface Scaling {
  /** Sides of the square that the result is. */
  size: number;
  /** Pixels of the shorter side before the middle is cut out; null: the picture becomes the square itself. */
  shortest: number | null;
  filter: Filter;
}

/**
 * The square of `size` pixels, red, green and blue, of a picture of `width` × `height` with four bytes a pixel.
 * @param rest lets the page do other things @throws RangeError for a picture that is too long for its width
 */
export async function resample(
  data: Raster["data"],
  width: number,
  height: number,
  { size, shortest, filter }: Scaling,
  rest: () => Promise<void> = nextTask,
): Promise<Uint8Array<ArrayBuffer>> {
  let [w, h] = [size, size];
  if (shortest !== null) {
    w = width <= height ? shortest : Math.trunc((shortest * width) / height);
    h = width <= height ? Math.trunc((shortest * height) / width) : shortest;
    if (Math.max(w, h) > 2 ** 16) throw new RangeError("it is too long for its width");
  }
  const [left, top] = [Math.floor((w - size) / 2), Math.floor((h - size) / 2)];
  const across = linesOf(width, w, filter).slice(left, left + size);
  const down = linesOf(height, h, filter).slice(top, top + size);
  const given: Raster = { data, width, height, step: GIVEN };
  // Pillow begins with columns where that takes away many more lines
  const columnsFirst = h < height && 2 * (width - w) < height - h;
  const half = await (columnsFirst ? pass(given, down, "column", rest) : pass(given, across, "row", rest));
  const { data: found } = await (columnsFirst ? pass(half, across, "row", rest) : pass(half, down, "column", rest));
  return new Uint8Array(found.buffer as ArrayBuffer);
}
