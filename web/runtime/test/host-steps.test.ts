import { describe, expect, it } from "vitest";
import { Value } from "../src/check.js";
import { hostRows } from "../src/host-steps.js";
import { parseFunctions } from "../src/tasks.js";

const rows = (operator: string, inputs: { data: ArrayLike<number>; shape: number[] }[], numbers = {}, most = 9, columns?: number) => {
  const { count, bytes } = hostRows(operator, inputs, numbers, most, columns);
  return [count, ...new Int32Array(bytes.buffer)];
};

describe("the host of a function", () => {
  it("finds the places of what is not 0", () => {
    const x = { data: Uint8Array.of(0, 1, 1, 0, 0, 1), shape: [2, 3] };
    expect(rows("nonzero", [x], {}, 6, 2)).toEqual([3, 0, 1, 0, 2, 1, 2]);
    expect(rows("nonzero", [{ data: new Uint8Array(4), shape: [4] }], {}, 4, 1)).toEqual([0]);
  });

  it("keeps of boxes that overlap the likeliest, in each class", () => {
    const boxes = { data: Float32Array.of(0, 0, 2, 2, 2.1, 2, 0, 0.1, 5, 5, 6, 6), shape: [1, 3, 4] };
    const scores = { data: Float32Array.of(0.5, 0.9, 0.7, 0.6, 0.2, 0.1), shape: [1, 2, 3] };
    const numbers = { most: 3, overlap: 0.5, least: 0.15 };
    expect(rows("nonmaxsuppression", [boxes, scores], numbers, 6, 3)).toEqual([3, 0, 0, 1, 0, 0, 2, 0, 1, 0]);
    expect(rows("nonmaxsuppression", [boxes, scores], { ...numbers, most: 1 }, 6, 3)).toEqual([2, 0, 0, 1, 0, 1, 0]);
    const centred = { data: Float32Array.of(1, 1, 2, 2, 1.1, 1.05, 2, 2, 5, 5, 1, 1), shape: [1, 3, 4] };
    expect(rows("nonmaxsuppression", [centred, scores], { ...numbers, centres: 1 }, 6, 3)).toEqual([3, 0, 0, 1, 0, 0, 2, 0, 1, 0]);
  });

  it("takes a number as it is, within its range", () => {
    expect(rows("number", [{ data: Int32Array.of(7), shape: [1] }])[0]).toBe(7);
    expect(() => rows("number", [{ data: Int32Array.of(10), shape: [1] }])).toThrow("may find at most 9, and found 10");
    expect(() => rows("nonzero", [{ data: Uint8Array.of(1, 1), shape: [2] }], {}, 1, 1)).toThrow("at most 1, and found 2");
  });

  it("refuses a manifest whose rows are of another type, and operators that are unknown", () => {
    const buffer = (id: number, dtype: string, bytes: number) => ({
      id,
      name: `b${id}`,
      kind: "state" as const,
      dtype,
      shape: [bytes / 4],
      bytes,
    });
    const buffers = [buffer(0, "f32", 16), buffer(1, "i32", 16), buffer(2, "f32", 16)];
    const parse = (change: object) => {
      const input = { name: "0", buffer: 0, dtype: "f32", shape: [4] };
      const output = { name: "rows", buffer: 1, dtype: "i32", shape: [4, 1] };
      const step = { entry: "run__0", operator: "nonzero", inputs: [input], output, variable: "n", ...change };
      const run = { inputs: [{ name: "x", buffer: 0, dtype: "f32", shape: [4] }], outputs: [], host_steps: [step] };
      return parseFunctions(new Value({ run }), buffers as never, [{ name: "n", min: 0, max: 4 }]);
    };
    expect(parse({})).toMatchObject({ entries: ["run", "run__0"], buffers: [0, 0, 1] });
    expect(parse({}).functions.get("run")?.steps[0]).toMatchObject({ slot: 0, most: 4, numbers: {} });
    expect(() => parse({ output: { name: "rows", buffer: 2, dtype: "f32", shape: [4, 1] } })).toThrow("must be rows of i32");
    expect(() => parse({ operator: "eval" })).toThrow("must be number or nonzero or nonmaxsuppression");
    expect(() => parse({ variable: "m" })).toThrow("must be n");
  });
});
