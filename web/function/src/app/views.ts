/** How an output may be shown, and which way suggests itself. */

import { count, isFloat, type Numeric, type Range } from "../data/arrays";
import { candidatesOf } from "../data/boxes";
import { layoutOf, planesOf } from "../data/picture";
import type { ArrayInfo } from "../model-api";

export type View = "boxes" | "classes" | "picture" | "mask" | "plot" | "table" | "numbers";

export const VIEW_LABELS: Record<View, string> = {
  boxes: "Boxes",
  classes: "Top classes",
  picture: "Picture",
  mask: "Mask",
  plot: "Plot",
  table: "Table",
  numbers: "Numbers",
};

export interface Shown {
  spec: ArrayInfo;
  shape: number[];
  values: Float64Array;
  range: Range;
  data: ArrayBufferView<ArrayBuffer>;
  /** Of text, what the values stand for. */
  texts?: string[];
}

/** The elements with all their digits. */
export const exactly = ({ data, values }: Shown): Numeric =>
  data instanceof BigInt64Array || data instanceof BigUint64Array ? data : values;

const MOST_COLUMNS = 512;
const LINES = 8;

/** Rows and columns of a shape: its last axis, and all before it. */
export function rowsOf(shape: readonly number[]): { rows: number; columns: number } {
  const columns = shape.at(-1) ?? 1;
  return { rows: columns === 0 ? 0 : count(shape) / columns, columns };
}

/** @param seen whether a picture goes in @param labels how many there are; the likeliest first */
export function viewsFor(spec: ArrayInfo, shape: readonly number[], seen: boolean, labels: number): View[] {
  if (spec.texts !== undefined) return ["numbers"];
  const views: View[] = [];
  const { rows, columns } = rowsOf(shape);
  const line = rows === 1 && columns > 1;
  const floats = isFloat(spec.dtype);
  const planes = planesOf(shape);
  const layout = layoutOf(shape);
  if (seen && floats && candidatesOf(shape, labels) !== null) views.push("boxes");
  if (line && floats && (columns === labels || (labels === 0 && (seen || /logit|prob|class|label|score|softmax/iu.test(spec.name)))))
    views.push("classes");
  if (planes !== null && (seen || !floats) && (layout === null || layout.channels === 4 || !floats)) views.push("mask");
  if (layout !== null && (layout.channels === 3 || seen)) views.push("picture");
  if (rows <= LINES && columns > 24) views.push("plot");
  if (rows > 1 && columns <= MOST_COLUMNS) views.push("table");
  views.push("numbers");
  if (planes !== null) views.push("mask");
  if (layout !== null) views.push("picture");
  if (columns > 1) views.push("plot");
  if (line) views.push("classes");
  if (columns <= MOST_COLUMNS) views.push("table");
  return [...new Set(views)];
}

export interface Scored {
  index: number;
  value: number;
  /** Of all classes; 0 … 1. */
  share: number;
}

/** The largest elements. What does not add up to 1 is taken for logits. */
export function topClasses(values: Float64Array, most: number): Scored[] {
  let [sum, least, largest] = [0, Infinity, -Infinity];
  for (const value of values) {
    sum += value;
    least = Math.min(least, value);
    largest = Math.max(largest, value);
  }
  const shares = least >= 0 && Math.abs(sum - 1) < 0.01;
  let total = 0;
  if (!shares) for (const value of values) total += Math.exp(value - largest);
  return Array.from(values, (value, index) => ({ index, value, share: shares ? value : Math.exp(value - largest) / total }))
    .sort((a, b) => b.value - a.value)
    .slice(0, most);
}

/** A line through many values: of each of so many pieces the least and the largest. */
export function envelope(values: ArrayLike<number>, from: number, length: number, pieces: number): [number, number, number][] {
  const each = Math.max(1, length / pieces);
  const found: [number, number, number][] = [];
  for (let start = 0; start < length; start += each) {
    let [low, high] = [Infinity, -Infinity];
    for (let i = Math.floor(start); i < Math.min(length, Math.max(Math.floor(start + each), Math.floor(start) + 1)); i++) {
      const value = values[from + i] as number;
      if (!Number.isFinite(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (low <= high) found.push([Math.floor(start), low, high]);
  }
  return found;
}

/** Labels of a file: a JSON list, an object of indices, or a line for each. Null where there are none. */
export function parseLabels(text: string): string[] | null {
  const given = text.trim();
  if (/^[[{]/u.test(given)) {
    try {
      const read = JSON.parse(given) as unknown;
      const inner = (read as { id2label?: unknown }).id2label ?? (read as { labels?: unknown }).labels ?? read;
      const entries = Object.entries(inner as object).filter(([index, name]) => /^\d+$/u.test(index) && typeof name === "string");
      const names: string[] = [];
      for (const [index, name] of entries) if (Number(index) < 1e6) names[Number(index)] = name as string;
      return names.length > 0 ? Array.from(names, (name, i) => name ?? `${i}`) : null;
    } catch {
      return null;
    }
  }
  const lines = given.split(/\r?\n/u).map((line) => line.trim());
  return given === "" ? null : lines;
}
