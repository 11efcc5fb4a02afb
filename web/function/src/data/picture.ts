/** Pictures as the numbers that an input takes, and the numbers of an output as pictures. */

import { count } from "./arrays";
import type { Range } from "./arrays";

/** Which axes of a shape are what. */
export interface Layout {
  channels: number;
  height: number;
  width: number;
  /** Channels before rows and columns, or behind them. */
  first: boolean;
}

const CHANNELS = new Set([1, 3, 4]);
/** Sides that make a picture worth showing. */
const LEAST_SIDE = 8;
/** Of the longer side to the shorter: what is longer is a signal over time. */
const MOST_RATIO = 8;

/** How a shape may be a picture; null where it cannot. Axes of size 1 before it are a batch of one. */
export function layoutOf(shape: readonly number[], least = LEAST_SIDE): Layout | null {
  const sizes = [...shape];
  while (sizes.length > 3 && sizes[0] === 1) sizes.shift();
  if (sizes.length === 2) sizes.unshift(1);
  if (sizes.length !== 3) return null;
  const [a, b, c] = sizes as [number, number, number];
  const sided = (height: number, width: number): boolean =>
    Math.min(height, width) >= least && Math.max(height, width) <= MOST_RATIO * Math.min(height, width);
  if (CHANNELS.has(a) && sided(b, c)) return { channels: a, height: b, width: c, first: true };
  if (CHANNELS.has(c) && sided(a, b)) return { channels: c, height: a, width: b, first: false };
  return null;
}

export const NORMALISATIONS = {
  unit: { label: "0 … 1", scale: 1 / 255, mean: [0, 0, 0], deviation: [1, 1, 1] },
  bytes: { label: "0 … 255", scale: 1, mean: [0, 0, 0], deviation: [1, 1, 1] },
  signed: { label: "−1 … 1", scale: 1 / 255, mean: [0.5, 0.5, 0.5], deviation: [0.5, 0.5, 0.5] },
  imagenet: { label: "ImageNet", scale: 1 / 255, mean: [0.485, 0.456, 0.406], deviation: [0.229, 0.224, 0.225] },
} as const;
export type Normalisation = keyof typeof NORMALISATIONS | "own";
export type Fit = "stretch" | "cover" | "contain";

export interface PictureSettings {
  normalisation: Normalisation;
  /** Of "own": for numbers in 0 … 1, one for each channel. */
  mean: readonly number[];
  deviation: readonly number[];
  fit: Fit;
  /** Blue before red. */
  reversed: boolean;
}

/** Where a picture of `given` sizes goes in one of `wanted`: x, y, width, height. */
export function placed(
  given: { width: number; height: number },
  wanted: { width: number; height: number },
  fit: Fit,
): [number, number, number, number] {
  if (fit === "stretch") return [0, 0, wanted.width, wanted.height];
  const [across, down] = [wanted.width / given.width, wanted.height / given.height];
  const scale = fit === "cover" ? Math.max(across, down) : Math.min(across, down);
  const [width, height] = [given.width * scale, given.height * scale];
  return [(wanted.width - width) / 2, (wanted.height - height) / 2, width, height];
}

/** @param pixels red, green, blue and opacity of `layout`'s size, bytes */
export function pictureValues(pixels: Uint8ClampedArray, layout: Layout, settings: PictureSettings): Float32Array {
  const { channels, height, width, first } = layout;
  const known = settings.normalisation === "own" ? null : NORMALISATIONS[settings.normalisation];
  const { scale, mean, deviation } = known ?? { scale: 1 / 255, mean: settings.mean, deviation: settings.deviation };
  const area = height * width;
  const values = new Float32Array(channels * area);
  for (let channel = 0; channel < channels; channel++) {
    const from = channels === 3 && settings.reversed ? 2 - channel : channel;
    const middle = mean[channel] ?? mean[0] ?? 0;
    const spread = deviation[channel] || deviation[0] || 1;
    for (let i = 0; i < area; i++) {
      const at = 4 * i;
      const level =
        channels === 1
          ? 0.299 * pixels[at]! + 0.587 * pixels[at + 1]! + 0.114 * pixels[at + 2]! // luma of ITU-R BT.601
          : pixels[at + from]!;
      values[first ? channel * area + i : i * channels + channel] = (level * scale - middle) / spread;
    }
  }
  return values;
}

/** A canvas' pixels for the picture that a source shows. */
export function pixelsOf(source: CanvasImageSource, given: { width: number; height: number }, layout: Layout, fit: Fit): ImageData {
  const canvas = document.createElement("canvas");
  canvas.width = layout.width;
  canvas.height = layout.height;
  const context = canvas.getContext("2d", { willReadFrequently: true }) as CanvasRenderingContext2D;
  context.imageSmoothingQuality = "high";
  context.fillStyle = layout.channels === 4 ? "transparent" : "#000";
  context.fillRect(0, 0, layout.width, layout.height);
  context.drawImage(source, ...placed(given, layout, fit));
  return context.getImageData(0, 0, layout.width, layout.height);
}

/** How the values of an output become levels of grey or colour: bytes as they are, else what lies between their least and largest. */
function levels({ least, largest }: Range): (value: number) => number {
  if (least >= 0 && largest <= 1) return (value) => 255 * value;
  if (least >= 0 && largest <= 255 && largest > 1.5) return (value) => value;
  if (least >= -1 && largest <= 1) return (value) => 127.5 * (value + 1);
  const width = largest - least || 1;
  return (value) => (255 * (value - least)) / width;
}

/** Pixels of an output that is a picture. */
export function outputPixels(values: Float64Array, { channels, height, width, first }: Layout, range: Range): ImageData {
  const level = levels(range);
  const pixels = new ImageData(width, height);
  const area = height * width;
  for (let i = 0; i < area; i++) {
    for (let channel = 0; channel < 4; channel++) {
      const from = channels === 1 ? 0 : channel;
      const value = channel < 3 || channels === 4 ? level(values[first ? from * area + i : i * channels + from] as number) : 255;
      pixels.data[4 * i + channel] = Math.round(value);
    }
  }
  return pixels;
}

/** A mask: for each place, which of several planes is largest, or how far above the middle of its range one is. */
export interface Mask {
  width: number;
  height: number;
  /** Of each place: 0 is nothing. */
  classes: Uint16Array;
  /** How many there may be. */
  count: number;
}

/** How a shape may be planes of scores for each place of a picture, or one of classes; null where it cannot. */
export function planesOf(shape: readonly number[]): { planes: number; height: number; width: number; first: boolean } | null {
  const sizes = [...shape];
  while (sizes.length > 2 && sizes[0] === 1) sizes.shift();
  if (sizes.length === 2) sizes.unshift(1);
  if (sizes.length !== 3 || count(sizes) === 0) return null;
  const [a, b, c] = sizes as [number, number, number];
  const sided = (height: number, width: number): boolean =>
    Math.min(height, width) >= LEAST_SIDE && Math.max(height, width) <= MOST_RATIO * Math.min(height, width);
  if (sided(b, c) && a <= Math.min(b, c, 1000)) return { planes: a, height: b, width: c, first: true };
  if (sided(a, b) && c < Math.min(a, b)) return { planes: c, height: a, width: b, first: false };
  return null;
}

export function maskOf(values: Float64Array, shape: readonly number[], range: Range, whole: boolean): Mask | null {
  const found = planesOf(shape);
  if (found === null) return null;
  const { planes, height, width, first } = found;
  const area = height * width;
  const classes = new Uint16Array(area);
  const middle = range.least < 0 ? 0 : (range.least + range.largest) / 2; // logits, or shares
  for (let i = 0; i < area; i++) {
    if (planes === 1) {
      classes[i] = whole ? (values[i] as number) : Number((values[i] as number) > middle);
      continue;
    }
    let best = 0;
    for (let plane = 1; plane < planes; plane++) {
      const at = (p: number): number => values[first ? p * area + i : i * planes + p] as number;
      if (at(plane) > at(best)) best = plane;
    }
    classes[i] = best;
  }
  return { width, height, classes, count: planes === 1 ? Math.round(range.largest) + 1 : planes };
}

/** A colour for a class that its neighbours differ from: hues a golden angle apart. */
export const hueOf = (index: number): number => Math.round((index * 137.508 + 160) % 360);
