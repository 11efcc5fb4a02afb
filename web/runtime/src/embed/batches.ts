/** Which texts run together, and at which shape. */

import type { EmbedFunction } from "./section.js";

export interface Batch {
  run: EmbedFunction;
  /** Indices of the texts, at most `run.batch`. */
  texts: number[];
}

/**
 * Texts of similar length run side by side, each padded to the next length there is; where a batch would be mostly empty they
 * run one by one.
 * @param lengths tokens of each text, none above the longest function's @param functions as EmbedSection has them
 */
export function planBatches(lengths: readonly number[], functions: readonly EmbedFunction[]): Batch[] {
  let waiting = lengths.map((_, i) => i).sort((a, b) => (lengths[a] as number) - (lengths[b] as number));
  const batches: Batch[] = [];
  for (const length of new Set(functions.map((f) => f.length))) {
    const fits = waiting.filter((i) => (lengths[i] as number) <= length);
    waiting = waiting.slice(fits.length);
    const shapes = functions.filter((f) => f.length === length);
    const few = shapes[0] as EmbedFunction;
    const many = shapes.at(-1) as EmbedFunction;
    for (let at = 0; at < fits.length; ) {
      const run = 2 * (fits.length - at) > many.batch ? many : few;
      batches.push({ run, texts: fits.slice(at, at + run.batch) });
      at += run.batch;
    }
  }
  return batches;
}

/** `ids` (batch, length) and `lengths` (batch) of a batch; places left over hold a text of one token. */
export function padBatch({ batch, length }: EmbedFunction, rows: readonly (readonly number[])[]): { ids: Int32Array; lengths: Int32Array } {
  const ids = new Int32Array(batch * length);
  const lengths = new Int32Array(batch).fill(1);
  rows.forEach((row, i) => {
    ids.set(row, i * length);
    lengths[i] = Math.max(row.length, 1);
  });
  return { ids, lengths };
}
