import { describe, expect, test } from "vitest";
import type { Tiles } from "../src/image/manifest.js";
import { Blend, cut, tilesOf } from "../src/image/tiles.js";

const TILES: Tiles = { decode: "d", encode: "e", width: 6, height: 5, columns: [0, 3, 8], rows: [0, 4] } as Tiles;

test("tiles know what their neighbours cover too", () => {
  const tiles = tilesOf(TILES, 2);
  const x = [
    { start: 0, length: 12, before: 0, behind: 6 },
    { start: 6, length: 12, before: 6, behind: 2 },
    { start: 16, length: 12, before: 2, behind: 0 },
  ];
  const y = [
    { start: 0, length: 10, before: 0, behind: 2 },
    { start: 8, length: 10, before: 2, behind: 0 },
  ];
  expect(tiles).toEqual([
    { y: y[0], x: x[0] },
    { y: y[0], x: x[1] },
    { y: y[0], x: x[2] },
    { y: y[1], x: x[0] },
    { y: y[1], x: x[1] },
    { y: y[1], x: x[2] },
  ]);
  // that lie side by side
  expect(tilesOf({ ...TILES, columns: [0, 6], rows: [0] }, 1).map(({ x }) => [x.before, x.behind])).toEqual([
    [0, 0],
    [0, 0],
  ]);
  expect(tilesOf({ ...TILES, columns: [0, 9], rows: [0] }, 1).map(({ x }) => [x.before, x.behind])).toEqual([
    [0, 0],
    [0, 0],
  ]); // or apart
});

describe.each([
  [1, 3],
  [2, 1],
  [2, 3],
])("%i planes of %i numbers", (planes, depth) => {
  const layout = { width: 14, height: 9, planes, depth };
  const at = (plane: number, y: number, x: number, d: number): number => ((plane * 9 + y) * 14 + x) * depth + d;
  const source = Float32Array.from({ length: 14 * 9 * planes * depth }, (_, i) => Math.sin(i));

  test("a tile is the part that it covers", () => {
    for (const tile of tilesOf(TILES, 1)) {
      const part = cut(source, layout, tile);
      expect(part).toBeInstanceOf(Float32Array);
      expect(part).toHaveLength(planes * 5 * 6 * depth);
      for (let plane = 0, i = 0; plane < planes; plane++) {
        for (let y = 0; y < 5; y++)
          for (let x = 0; x < 6; x++)
            for (let d = 0; d < depth; d++) {
              expect(part[i++]).toBe(source[at(plane, tile.y.start + y, tile.x.start + x, d)]);
            }
      }
    }
    expect(cut(new Uint8ClampedArray(source.length), layout, tilesOf(TILES, 1)[0]!)).toBeInstanceOf(Uint8ClampedArray);
  });

  test("what is cut and blended again is the same", () => {
    const blend = new Blend(layout);
    for (const tile of tilesOf(TILES, 1)) blend.add(cut(source, layout, tile), tile);
    const result = blend.result();
    expect(result).toHaveLength(source.length);
    result.forEach((value, i) => expect(value).toBeCloseTo(source[i] as number, 5));
  });

  test("where two tiles meet, the one passes into the other in a straight line", () => {
    const blend = new Blend({ ...layout, width: 9 });
    const [left, right] = tilesOf({ ...TILES, columns: [0, 3], rows: [0] }, 1) as [never, never];
    // three columns are the left one's alone, three are shared, three are the right one's
    const flat = (value: number): Float32Array => new Float32Array(planes * 5 * 6 * depth).fill(value);
    blend.add(flat(0), left);
    blend.add(flat(6), right);
    const row = Array.from(
      blend
        .result()
        .filter((_, i) => i % depth === 0)
        .slice(0, 9),
    );
    [0, 0, 0, 1, 3, 5, 6, 6, 6].forEach((value, x) => expect(row[x]).toBeCloseTo(value, 5));
  });

  test("and so it is from top to bottom", () => {
    const blend = new Blend({ ...layout, width: 6, height: 8 });
    const [upper, lower] = tilesOf({ ...TILES, columns: [0], rows: [0, 3] }, 1) as [never, never];
    const flat = (value: number): Float32Array => new Float32Array(planes * 5 * 6 * depth).fill(value);
    blend.add(flat(0), upper);
    blend.add(flat(4), lower);
    const result = blend.result();
    [0, 0, 0, 1, 3, 4, 4, 4].forEach((value, y) => expect(result[y * 6 * depth]).toBeCloseTo(value, 5));
  });
});

test("a tile that neighbours on both sides cover counts by the nearer, in every plane and number", () => {
  const blend = new Blend({ width: 7, height: 5, planes: 2, depth: 3 });
  const tiles = tilesOf({ ...TILES, width: 5, columns: [0, 1, 2], rows: [0] }, 1);
  tiles.forEach((tile, i) =>
    blend.add(
      Float32Array.from({ length: 150 }, (_, at) => i * (1 + (at % 3) + 3 * Number(at >= 75))),
      tile,
    ),
  );
  // ramps of four, the lower of the two where both sides have one: what they add up to is not 1
  const weights = [
    [1, 7 / 8, 5 / 8, 3 / 8, 1 / 8, 0, 0],
    [0, 1 / 8, 3 / 8, 5 / 8, 3 / 8, 1 / 8, 0],
    [0, 0, 1 / 8, 3 / 8, 5 / 8, 7 / 8, 1],
  ];
  const result = blend.result();
  for (let at = 0; at < result.length; at++) {
    const [a, b, c] = weights.map((weight) => weight[Math.floor(at / 3) % 7] as number) as [number, number, number];
    expect(result[at]).toBeCloseTo(((b + 2 * c) / (a + b + c)) * (1 + (at % 3) + 3 * Number(at >= 105)), 5);
  }
});
