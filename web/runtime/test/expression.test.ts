import { describe, expect, it } from "vitest";
import { compileExpression, type ExpressionOp } from "../src/expression.js";

const slots = new Map([
  ["start_pos", 0],
  ["count", 1],
]);
const fail = (what: string): never => {
  throw new Error(what);
};
const run = (tree: unknown, ...values: number[]): number => compileExpression(tree, slots, fail)(Int32Array.from(values));
const op = (name: ExpressionOp, a: unknown, b: unknown): unknown => ({ op: name, args: [a, b] });

describe("expressions", () => {
  it("evaluates each operator", () => {
    expect(run(7)).toBe(7);
    expect(run({ var: "count" }, 3, 5)).toBe(5);
    expect(run(op("add", { var: "start_pos" }, 2), 3)).toBe(5);
    expect(run(op("mul", { var: "start_pos" }, 2), 3)).toBe(6);
    expect(run(op("max", { var: "start_pos" }, 2), 3)).toBe(3);
    expect(run(op("min", { var: "start_pos" }, 2), 3)).toBe(2);
  });

  it("divides with floor, also below zero", () => {
    expect(run(op("floordiv", 7, 2))).toBe(3);
    expect(run(op("floordiv", -7, 2))).toBe(-4);
    expect(run(op("mod", -7, 3))).toBe(2);
    expect(run(op("mod", 7, -3))).toBe(-2);
  });

  it("nests", () => {
    const blocks = op("floordiv", op("add", { var: "count" }, 63), 64);
    expect([1, 64, 65].map((count) => run(blocks, 0, count))).toEqual([1, 1, 2]);
  });

  it.each([
    [1.5, "not an integer"],
    ["8", "must be an integer or an object"],
    [null, "must be an integer or an object"],
    [{ var: "rows" }, "unknown variable"],
    [{ op: "pow", args: [1, 2] }, "unknown operator"],
    [{ op: "constructor", args: [1, 2] }, "unknown operator"],
    [{ op: ["add"], args: [1, 2] }, "unknown operator"], // as a key it would be "add"
    [{ op: "add", args: [1] }, "two arguments"],
  ])("refuses %j", (tree, message) => {
    expect(() => run(tree)).toThrow(message);
  });

  it.each(["left", "right"])("refuses a tree that would overflow the stack: %s", (side) => {
    const deep = (levels: number): unknown => {
      let tree: unknown = 1;
      for (let i = 0; i < levels; i++) tree = side === "left" ? op("add", tree, 1) : op("add", 1, tree);
      return tree;
    };
    expect(run(deep(64))).toBe(65);
    expect(() => run(deep(65))).toThrow("nested too deeply");
    expect(() => run(deep(100_000))).toThrow("nested too deeply");
  });
});
