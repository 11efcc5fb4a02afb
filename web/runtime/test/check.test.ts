/** Untrusted JSON: what passes, and what each refusal says. */

import { describe, expect, it } from "vitest";
import { Value } from "../src/check.js";

const at = (json: unknown): Value =>
  new Value({ a: { b: [json] } })
    .at("a")
    .at("b")
    .list((value) => value)[0] as Value;
/** What the reader says of a value at a place. */
function said(read: (value: Value) => unknown, json: unknown): string {
  try {
    read(at(json));
  } catch (error) {
    expect(error).toMatchObject({ code: "bad-manifest" });
    return (error as Error).message;
  }
  return "";
}

describe("a value", () => {
  it.each<[string, (value: Value) => unknown, unknown[], [unknown, string][]]>([
    [
      "integer",
      (v) => v.integer(),
      [0, 1, Number.MAX_SAFE_INTEGER],
      [
        [-1, `-1 is outside 0 … ${Number.MAX_SAFE_INTEGER}`],
        [1.5, "must be an integer, not 1.5"],
        ["1", 'must be an integer, not "1"'],
        [2 ** 53, `must be an integer, not ${2 ** 53}`],
        [null, "must be an integer, not null"],
      ],
    ],
    [
      "integer of a range",
      (v) => v.integer(-8, 8, 4),
      [-8, -4, 0, 4, 8],
      [
        [-12, "-12 is outside -8 … 8"],
        [12, "12 is outside -8 … 8"],
        [2, "must be a multiple of 4"],
        [-3, "must be a multiple of 4"],
      ],
    ],
    [
      "number",
      (v) => v.number(0.5, 2),
      [0.5, 1.25, 2],
      [
        [0.4, "0.4 is outside 0.5 … 2"],
        [2.1, "2.1 is outside 0.5 … 2"],
        ["1", "must be a number"],
        [NaN, "NaN is outside 0.5 … 2"],
      ],
    ],
    [
      "text",
      (v) => v.text(),
      ["x", " "],
      [
        ["", "must be a non-empty string"],
        [5, "must be a non-empty string"],
        [["x"], "must be a non-empty string"],
        [undefined, "must be a non-empty string"],
      ],
    ],
    [
      "boolean",
      (v) => v.boolean(),
      [true, false],
      [
        ["true", "must be true or false"],
        [0, "must be true or false"],
        [null, "must be true or false"],
      ],
    ],
    [
      "word",
      (v) => v.oneOf("red", "green"),
      ["red", "green"],
      [
        ["blue", "must be red or green"],
        [["red"], "must be red or green"],
      ],
    ],
    [
      "hash",
      (v) => v.hash(),
      ["0123456789abcdef".repeat(4)],
      [
        ...["", "0", `${"0".repeat(64)}0`, "g".repeat(64), "A".repeat(64), "0".repeat(63)].map((text): [string, string] => [
          text,
          text ? "must be a SHA-256 in lowercase hex" : "must be a non-empty string",
        ]),
        [5, "must be a non-empty string"],
      ],
    ],
    [
      "path",
      (v) => v.path(),
      ["a", "a.b", "-a/_b/c-1.bin", "1/2"],
      [
        ...["/a", "a/", "a//b", ".a", "a/.b", "../a", "a/../b", "http://x/y", "a b", "a?b", "a\nb", "a\n", "\na"].map(
          (text): [string, string] => [text, `"${text}" is not a path inside the bundle`],
        ),
        [["a"], "must be a non-empty string"],
      ],
    ],
  ])("%s", (_name, read, good, bad) => {
    for (const json of good) expect(read(at(json)), String(json)).toBe(json);
    for (const [json, words] of bad) expect(said(read, json)).toBe(`manifest.json: a.b[0]: ${words}`);
  });

  it("may be a list", () => {
    const places: [unknown, number][] = [];
    expect(at([5, 6]).list((value, index) => (places.push([value.integer(), index]), index))).toEqual([0, 1]);
    expect(places).toEqual([
      [5, 0],
      [6, 1],
    ]);
    expect(said((v) => v.list((entry) => entry.text()), ["x", 5])).toBe("manifest.json: a.b[0][1]: must be a non-empty string");
    for (const none of [undefined, null, {}, "xy", 5, { length: 1 }])
      expect(said((v) => v.list(() => 0), none)).toBe("manifest.json: a.b[0]: must be a list");
    expect(at(new Array(1_000_000)).list(() => 0)).toHaveLength(1_000_000);
    expect(said((v) => v.list(() => 0), new Array(1_000_001))).toBe("manifest.json: a.b[0]: is too long");
  });

  it("may be an object", () => {
    expect([...at({ x: 1, y: 2 }).map((value, key) => key + value.integer())]).toEqual([
      ["x", "x1"],
      ["y", "y2"],
    ]);
    expect(said((v) => v.map((entry) => entry.text()), { x: "1", y: 2 })).toBe("manifest.json: a.b[0].y: must be a non-empty string");
    for (const none of [undefined, null, [], "xy", 5, true]) {
      expect(said((v) => v.at("x"), none)).toBe("manifest.json: a.b[0]: must be an object");
      expect(said((v) => v.map(() => 0), none)).toBe("manifest.json: a.b[0]: must be an object");
    }
  });

  it("is present if it is there and not null", () => {
    expect([undefined, null, 0, "", false, []].map((json) => at(json).present)).toEqual([false, false, true, true, true, true]);
    expect(new Value({}).at("x").present).toBe(false);
  });

  it("is given to other readers with its place", () => {
    expect(at(7).raw((json) => json)).toBe(7);
    expect(said((v) => v.raw((json, fail) => fail(`${String(json)} is odd`)), 7)).toBe("manifest.json: a.b[0]: 7 is odd");
  });

  it("has a name when it is the whole file", () => {
    expect(() => new Value(5).at("x")).toThrow("manifest.json: the file: must be an object");
  });
});
