import { describe, expect, it } from "vitest";
import { Value } from "../src/check.js";
import { extent, gathered, parseSizes, shapeOf, sizeText, spread, Told } from "../src/sizes.js";
import type { ArraySpec } from "../src/tasks.js";

const variables = [
  { name: "batch", min: 1, max: 4 },
  { name: "length", min: 1, max: 8 },
];
const slots = new Map(variables.map(({ name }, slot) => [name, slot]));
const [batch, length] = [{ var: "batch" }, { var: "length" }];

function array(name: string, shape: number[], sizes: unknown[]): ArraySpec {
  return { name, buffer: 0, dtype: "f32", shape, sizes: parseSizes(new Value(sizes), shape, slots), texts: undefined };
}

const ids = array("ids", [4, 8], [batch, length]);
const mask = array("mask", [4, 8], [batch, length]);
const token = array("token", [1, 8], [1, length]);
const image = array("image", [3, 256], [3, { op: "mul", args: [length, 32] }]);

describe("sizes that vary", () => {
  it("are told by shapes, or by the number of elements where one is open", () => {
    const told = new Told(variables);
    told.take(ids, [3, 5]);
    told.infer(mask, 15);
    expect([...told.values]).toEqual([3, 5]);
    expect(shapeOf(mask, told.values)).toEqual([3, 5]);
    const alone = new Told(variables);
    alone.infer(token, 7);
    expect([...alone.values]).toEqual([-1, 7]);
  });

  it("are multiples of variables", () => {
    const [shown, counted] = [new Told(variables), new Told(variables)];
    shown.take(image, [3, 96]);
    counted.infer(image, 3 * 160);
    expect([...shown.values, ...counted.values]).toEqual([-1, 3, -1, 5]);
    expect(shapeOf(image, counted.values)).toEqual([3, 160]);
    expect(() => shown.take(image, [3, 97])).toThrow(/"image" has a size of 97, which is no multiple of 32/);
    expect(() => new Told(variables).infer(image, 3 * 40)).toThrow(/do not tell/);
  });

  it("are refused where they go with nothing", () => {
    const refused = (call: (told: Told) => void, message: RegExp): void => {
      expect(() => call(new Told(variables))).toThrow(
        expect.objectContaining({ code: "bad-argument", message: expect.stringMatching(message) }),
      );
    };
    refused((told) => told.take(ids, [5, 1]), /"ids" has batch = 5; this model takes 1 … 4/);
    refused((told) => told.take(ids, [1]), /shape of the input "ids" must be 2 sizes/);
    refused((told) => told.take(ids, [1, 1.5]), /must be 2 sizes/);
    refused((told) => told.infer(ids, 6), /"ids" has sizes that its 6 elements do not tell/);
    refused((told) => {
      told.take(ids, [1, 5]);
      told.take(token, [1, 6]);
    }, /"ids" and "token" have length = 5 and length = 6/);
    expect(() => shapeOf(array("y", [4], [{ op: "mul", args: [batch, 2] }]), Int32Array.of(3, 1))).toThrow(/no room for the shape \(6\)/);
    expect(() => array("y", [4], [batch, 1])).toThrow(/must be 1 sizes/);
    expect(() => array("y", [4], [{ var: "other" }])).toThrow(/unknown variable/);
  });

  it("are text for people", () => {
    expect(sizeText({ op: "add", args: [batch, { op: "mul", args: [length, 2] }] })).toBe("(batch + (length · 2))");
    expect(sizeText({ op: "max", args: [batch, 1] })).toBe("max(batch, 1)");
  });
});

describe("arrays in larger memory", () => {
  const room = [2, 3, 4];
  for (const shape of [
    [2, 3, 4],
    [1, 3, 4],
    [2, 2, 4],
    [2, 2, 3],
    [1, 1, 1],
    [2, 0, 4],
    [2, 3, 1],
  ]) {
    it(`of shape ${shape.join(" × ")} come back as they were`, () => {
      const count = shape.reduce((n, size) => n * size, 1);
      const bytes = Uint8Array.from({ length: count * 2 }, (_, i) => i + 1);
      const wide = spread(bytes, shape, room, 2);
      expect(wide.length).toBe(extent(shape, room) * 2);
      expect(gathered(wide, shape, room, 2)).toEqual(bytes);
      const [m, n, k] = shape as [number, number, number];
      if (count) expect(wide[2 * (((m - 1) * 3 + n - 1) * 4 + k - 1)]).toBe(bytes[2 * (count - 1)]);
    });
  }
});
