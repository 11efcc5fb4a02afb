/** Pictures in overlapping tiles, so that the VAE's memory does not grow with the picture: cutting, and blending what came back. */

import type { Tiles } from "./manifest.js";

/** Where a tile lies along one axis, and how much of it the tiles before and behind cover too; in units of `scale`. */
interface Span {
  start: number;
  length: number;
  before: number;
  behind: number;
}

function spans(starts: readonly number[], length: number, scale: number): Span[] {
  return starts.map((start, i) => {
    const overlap = (at: number | undefined, sign: 1 | -1): number =>
      at === undefined ? 0 : Math.max(0, length - sign * (start - at)) * scale;
    return { start: start * scale, length: length * scale, before: overlap(starts[i - 1], 1), behind: overlap(starts[i + 1], -1) };
  });
}

/** A tile counts less towards its neighbours, so that no seam is seen. */
function ramp({ length, before, behind }: Span): Float32Array {
  return Float32Array.from({ length }, (_, i) => Math.min(1, (i + 0.5) / before, (length - i - 0.5) / behind));
}

export interface Tile {
  x: Span;
  y: Span;
}

/** @param scale 1 for latent pixels, the VAE's factor for pixels */
export function tilesOf(tiles: Tiles, scale: number): Tile[] {
  const columns = spans(tiles.columns, tiles.width, scale);
  return spans(tiles.rows, tiles.height, scale).flatMap((y) => columns.map((x) => ({ x, y })));
}

/** An array of `planes` × height × width values with `depth` numbers each (one of the two is 1, mostly). */
interface Layout {
  width: number;
  height: number;
  planes: number;
  depth: number;
}

/** The part of `source` that the tile covers. */
export function cut<A extends Float32Array<ArrayBuffer> | Uint8Array<ArrayBuffer> | Uint8ClampedArray<ArrayBuffer>>(
  source: A,
  layout: Layout,
  { x, y }: Tile,
): A {
  const { width, height, planes, depth } = layout;
  const part = new (source.constructor as new (n: number) => A)(planes * y.length * x.length * depth);
  let to = 0;
  for (let plane = 0; plane < planes; plane++) {
    for (let row = 0; row < y.length; row++) {
      const from = ((plane * height + y.start + row) * width + x.start) * depth;
      part.set(source.subarray(from, from + x.length * depth), to);
      to += x.length * depth;
    }
  }
  return part;
}

/** The weighted mean of tiles: add all of them, then take `result`. */
export class Blend {
  private readonly sum: Float32Array<ArrayBuffer>;
  private readonly weight: Float32Array;

  constructor(private readonly layout: Layout) {
    const { width, height, planes, depth } = layout;
    this.sum = new Float32Array(planes * height * width * depth);
    this.weight = new Float32Array(width * height);
  }

  add(values: ArrayLike<number>, { x, y }: Tile): void {
    const { width, height, planes, depth } = this.layout;
    const [across, down] = [ramp(x), ramp(y)];
    let from = 0;
    for (let plane = 0; plane < planes; plane++) {
      for (let row = 0; row < y.length; row++) {
        const line = (y.start + row) * width + x.start;
        for (let column = 0; column < x.length; column++) {
          const weight = (down[row] as number) * (across[column] as number);
          if (plane === 0) this.weight[line + column]! += weight;
          const to = (plane * height * width + line + column) * depth;
          for (let d = 0; d < depth; d++) this.sum[to + d]! += weight * (values[from++] as number);
        }
      }
    }
  }

  result(): Float32Array<ArrayBuffer> {
    const { planes, depth } = this.layout;
    const area = this.weight.length;
    for (let plane = 0; plane < planes; plane++) {
      for (let i = 0; i < area; i++) {
        for (let d = 0; d < depth; d++) this.sum[(plane * area + i) * depth + d]! /= this.weight[i] as number;
      }
    }
    return this.sum;
  }
}
