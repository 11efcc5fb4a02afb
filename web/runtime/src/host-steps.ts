/** What the host of a function does between launches: it finds rows whose number depends on values. */

import { TinywebError } from "./errors.js";

/** An array of an input, with its shape. */
export interface HostArray {
  data: ArrayLike<number>;
  shape: readonly number[];
}

type Numbers = Readonly<Record<string, number>>;

/** The operators, by their names in a manifest: rows of whole numbers, one behind the other; without an output how many there are. */
const OPERATORS: Record<string, (inputs: HostArray[], numbers: Numbers) => number[]> = {
  number: ([x]) => [(x as HostArray).data[0] as number],
  /** The places of what is not 0, in order. */
  nonzero: ([x]) => {
    const { data, shape } = x as HostArray;
    const found: number[] = [];
    for (let at = 0; at < data.length; at++) {
      let inner = data.length;
      for (const n of data[at] ? shape : []) {
        inner /= n;
        found.push(Math.floor(at / inner) % n);
      }
    }
    return found;
  },
  /** (batch, class, place) of boxes (batches, n, 4) that remain: of those that overlap the one with the highest score. */
  nonmaxsuppression: ([boxes, scores], { most = 0, overlap, least, centres }) => {
    const { data, shape } = scores as HostArray;
    const [batches, classes, n] = shape as [number, number, number];
    const found: number[] = [];
    for (let plane = 0; plane < batches * classes; plane++) {
      const batch = Math.floor(plane / classes);
      /** From a to b along an axis. */
      const side = (i: number, k: number): [number, number] => {
        const [a, b] = [k, k + 2].map((at) => (boxes as HostArray).data[4 * (batch * n + i) + at]) as [number, number];
        return centres ? [a - b / 2, a + b / 2] : [Math.min(a, b), Math.max(a, b)];
      };
      const area = (sides: [number, number][]): number => sides.reduce((size, [a, b]) => size * Math.max(0, b - a), 1);
      const sides = (i: number): [number, number][] => [side(i, 0), side(i, 1)];
      const overlaps = (i: number, j: number): boolean => {
        const both = area(sides(i).map(([a, b], k) => [Math.max(a, side(j, k)[0]), Math.min(b, side(j, k)[1])]));
        return both / (area(sides(i)) + area(sides(j)) - both || 1) > (overlap as number);
      };
      const score = (i: number): number => data[plane * n + i] as number;
      const likely = [...Array(n).keys()].filter((i) => least === undefined || score(i) > least).sort((i, j) => score(j) - score(i));
      const kept: number[] = [];
      for (const i of likely) if (kept.length < most && !kept.some((j) => overlaps(i, j))) kept.push(i);
      for (const i of kept) found.push(batch, plane % classes, i);
    }
    return found;
  },
};

export const HOST_OPERATORS = Object.keys(OPERATORS);

/** @throws TinywebError "bad-manifest" where there are more rows than there is room for */
export function hostRows(
  operator: string,
  inputs: HostArray[],
  numbers: Numbers,
  most: number,
  columns: number | undefined,
): { count: number; bytes: Uint8Array<ArrayBuffer> } {
  const rows = (OPERATORS[operator] as (typeof OPERATORS)[string])(inputs, numbers);
  const count = columns ? rows.length / columns : (rows[0] as number);
  if (count >= 0 && count <= most) return { count, bytes: new Uint8Array(Int32Array.from(rows).buffer) };
  throw new TinywebError("bad-manifest", `manifest.json: ${operator} may find at most ${most}, and found ${count}.`);
}
