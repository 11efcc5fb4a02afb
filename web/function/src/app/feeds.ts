/** What goes into one input: where it comes from, how it becomes numbers, and what that looks like. */

import { count, isFloat, type Numeric, toArray } from "../data/arrays";
import { windowOf, type Sound } from "../data/audio";
import { parseNumbers, parseTexts, writtenText } from "../data/json";
import { fitted, type Numbers } from "../data/npy";
import { layoutOf, pictureValues, pixelsOf, type Layout, type PictureSettings } from "../data/picture";
import { FeedError } from "../data/problem";
import { randomValues, type Spread } from "../data/random";
import { fitIds, type TextReader } from "../data/text";
import type { ArrayInfo, TypedArray } from "../model-api";
import { exactly, type Shown } from "./views";

export type FeedKind = "picture" | "camera" | "sound" | "text" | "mask" | "json" | "npy" | "random" | "output";

export const KIND_LABELS: Record<FeedKind, string> = {
  picture: "Picture",
  camera: "Camera",
  sound: "Sound",
  text: "Text",
  mask: "Mask of the text",
  json: "Numbers (JSON)",
  npy: ".npy file",
  random: "Made-up numbers",
  output: "An output of the last run",
};

/** What files may be, and what they are called where none of them fits. */
export const FILE_WORDS = { picture: "pictures", sound: "sounds", npy: ".npy files", json: "JSON" };
export type FileKind = keyof typeof FILE_WORDS;
export const FILE_KINDS = Object.keys(FILE_WORDS) as FileKind[];

/** What a file is by its ending and type; undefined where neither tells. */
export function kindOf({ name, type }: Pick<File, "name" | "type">): FileKind | undefined {
  if (/\.(npy|json)$/iu.test(name)) return name.toLowerCase().endsWith("npy") ? "npy" : "json";
  if (/^image\//u.test(type)) return "picture";
  return /^(audio|video)\//u.test(type) ? "sound" : undefined;
}

/** What a picture or a camera shows. */
export interface Source {
  element: HTMLVideoElement | ImageBitmap;
  name: string;
}

export interface Feed {
  kind: FeedKind;
  picture: PictureSettings;
  source: Source | null;
  sound: Sound | null;
  /** Samples in a second that the model expects. */
  rate: number;
  /** Of the sound, the sample that goes in first. */
  from: number;
  /** How many samples further on the next run begins. */
  step: number;
  text: string;
  json: string;
  numbers: Numbers | null;
  /** The name of what was chosen. */
  file: string;
  spread: Spread;
  /** Of made-up integers, exclusive. */
  most: number;
  seed: number;
  /** Which output goes in, or "" for the one that suggests itself. */
  output: string;
}

const SPEECH = 16_000;

const words = (name: string): string => name.toLowerCase();
const isIds = (name: string): boolean => /ids$|tokens?$/u.test(words(name)) && !/type|position/u.test(words(name));
const isMask = (name: string): boolean => /mask/u.test(words(name));

/** One long axis: what may be sound, or ids. */
export function isLine(shape: readonly number[]): boolean {
  return shape.filter((size) => size > 1).length === 1;
}

/** Whether an output is named as what follows an input: hn after h0, stateN after state. */
function follows(output: string, input: string): boolean {
  const stem = words(input).replace(/[._](in|prev|old|init)$|[._]?0$/u, "");
  const more = output.slice(stem.length); // the end of the name, not of a longer word
  return stem !== "" && words(output).startsWith(stem) && /^([^a-z].*|n|t|out|new|next)?$/u.test(more);
}

/** Outputs that can go into an input at the next run, as the states of a recurrent network do; those named after it first. */
export function returning({ name, dtype, shape }: ArrayInfo, outputs: readonly ArrayInfo[]): string[] {
  const names = outputs.filter((o) => o.dtype === dtype && o.shape.join() === shape.join()).map((o) => o.name);
  return [...names.filter((o) => follows(o, name)), ...names.filter((o) => !follows(o, name))];
}

/** Which kinds an input can be fed with, the likeliest first. @param outputs of the same function */
export function kindsFor(spec: ArrayInfo, reads: boolean, outputs: readonly ArrayInfo[]): FeedKind[] {
  if (spec.texts !== undefined) return ["json"];
  const kinds = ownKinds(spec, reads);
  const [back] = returning(spec, outputs);
  if (back === undefined) return kinds;
  return follows(back, spec.name) && kinds[0] !== "picture" ? ["output", ...kinds] : [...kinds, "output"];
}

function ownKinds({ name, dtype, shape }: ArrayInfo, reads: boolean): FeedKind[] {
  const kinds: FeedKind[] = [];
  const numeric: FeedKind[] = ["random", "json", "npy"];
  const line = isLine(shape) || count(shape) === 1;
  if (layoutOf(shape) !== null && (isFloat(dtype) || dtype === "u8" || dtype === "i8")) kinds.push("picture", "camera");
  if (!isFloat(dtype) && dtype !== "bool" && line) {
    if (reads && isMask(name)) return ["mask", ...numeric, "text"];
    if (reads && isIds(name)) return ["text", ...numeric];
    return count(shape) <= 4 ? ["json", "random", "npy", "text"] : [...numeric, "text"];
  }
  if (count(shape) <= 4) return ["json", "random", "npy"];
  if (isFloat(dtype) && isLine(shape)) return count(shape) >= SPEECH / 64 ? ["sound", ...numeric] : [...numeric, "sound"];
  return [...kinds, ...numeric];
}

export function newFeed(spec: ArrayInfo, reads: boolean, outputs: readonly ArrayInfo[]): Feed {
  const spread: Spread = isMask(spec.name) || spec.dtype === "bool" ? "ones" : isFloat(spec.dtype) ? "normal" : "zeros";
  return {
    kind: kindsFor(spec, reads, outputs)[0] as FeedKind,
    picture: {
      normalisation: isFloat(spec.dtype) ? "unit" : "bytes",
      mean: [0.5, 0.5, 0.5],
      deviation: [0.5, 0.5, 0.5],
      fit: "stretch",
      reversed: false,
    },
    source: null,
    sound: null,
    rate: SPEECH,
    from: 0,
    step: 0,
    text: "The quick brown fox jumps over the lazy dog.",
    json: spec.texts ? writtenText(spec.texts[0] ?? "") : isFloat(spec.dtype) ? "1" : "0",
    numbers: null,
    file: "",
    spread,
    most: 100,
    seed: 1,
    output: "",
  };
}

/** What an input has been given: its array, and of a picture the pixels. */
export interface Given {
  array: TypedArray | string[];
  pixels: ImageData | null;
}

/** @param others all inputs with their feeds, of which one may be the text that a mask belongs to @param last what came out of the last run @throws FeedError what is missing, or does not fit */
export function given(
  spec: ArrayInfo,
  feed: Feed,
  reader: TextReader | null,
  others: readonly [ArrayInfo, Feed][],
  last: readonly Shown[],
): Given {
  const { shape, dtype } = spec;
  const length = count(shape);
  const plain = (values: Numeric): Given => ({ array: toArray(values, dtype), pixels: null });
  switch (feed.kind) {
    case "picture":
    case "camera": {
      const layout = layoutOf(shape) as Layout;
      if (feed.kind === "camera" && feed.source === null) throw new FeedError("Start the camera first.");
      const { element, ...size } = sized(feed.source);
      const pixels = pixelsOf(element, size, layout, feed.picture.fit);
      return { array: toArray(pictureValues(pixels.data, layout, feed.picture), dtype), pixels };
    }
    case "sound":
      return plain(feed.sound === null ? tone(length, feed.rate) : windowOf(feed.sound, length, feed.from));
    case "text":
      if (reader === null) throw new FeedError("Choose the model's tokenizer.json first: it says which numbers a text is.");
      return plain(fitIds(reader.ids(feed.text), length, reader.pad));
    case "mask": {
      const text = others.find(([, other]) => other.kind === "text")?.[1];
      const ids = text === undefined || reader === null ? length : reader.ids(text.text).length;
      return plain(Float64Array.from({ length }, (_, i) => Number(i < ids)));
    }
    case "json":
      return spec.texts === undefined ? plain(parseNumbers(feed.json, shape)) : { array: parseTexts(feed.json, shape), pixels: null };
    case "npy":
      if (feed.numbers === null) throw new FeedError("Choose a .npy file first.");
      return plain(fitted(feed.numbers, shape));
    case "random":
      return plain(randomValues(length, feed.spread, feed.seed, feed.most));
    case "output": {
      const names = returning(
        spec,
        last.map((shown) => ({ ...shown.spec, shape: shown.shape })),
      );
      const name = names.find((one) => one === feed.output) ?? names[0];
      const shown = last.find(({ spec: { name: one } }) => one === name);
      return plain(shown === undefined ? new Float64Array(length) : exactly(shown));
    }
  }
}

/** What is drawn of a source, or in place of one. */
export function sized(source: Source | null): { element: CanvasImageSource; width: number; height: number } {
  if (source === null) return example();
  const { element } = source;
  if (element instanceof HTMLVideoElement) return { element, width: element.videoWidth, height: element.videoHeight };
  return { element, width: element.width, height: element.height };
}

/** A tone of 440 Hz, until there is a sound. */
const tone = (length: number, rate: number): Float32Array =>
  Float32Array.from({ length }, (_, i) => 0.3 * Math.sin((2 * Math.PI * 440 * i) / rate));

let drawn: HTMLCanvasElement | undefined;

/** A picture that is drawn, until there is one. */
function example(): { element: CanvasImageSource; width: number; height: number } {
  const [width, height] = [320, 240];
  if (drawn === undefined) {
    drawn = document.createElement("canvas");
    [drawn.width, drawn.height] = [width, height];
    const context = drawn.getContext("2d") as CanvasRenderingContext2D;
    const sky = context.createLinearGradient(0, 0, 0, height);
    sky.addColorStop(0, "#5b9bd5");
    sky.addColorStop(1, "#f4d9b0");
    context.fillStyle = sky;
    context.fillRect(0, 0, width, height);
    const disc = (colour: string, x: number, y: number, radius: number): void => {
      context.fillStyle = colour;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
    };
    disc("#fff3c4", 235, 70, 34);
    disc("#3f7d4e", 60, 260, 110);
    disc("#2f6140", 220, 290, 130);
  }
  return { element: drawn, width, height };
}
