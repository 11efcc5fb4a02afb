import { describe, expect, it } from "vitest";
// @ts-expect-error a script without types
import * as shrink from "../scripts/shrink.mjs";

const ownNames = shrink.ownNames as (code: string) => string[];

describe("names that the build may shorten", () => {
  it("are those that only the class itself uses", () => {
    const code = `
      class Counter {
        count = 0;
        step() { const { count } = this; this.count = count + this.stride(); return this.shown?.(); }
        stride() { return 1; }
      }
      new Counter().step();`;
    expect(ownNames(code).sort()).toEqual(["count", "shown", "stride"]);
  });

  it.each([
    ["another object's property", "class A { name1 = 1; f() { return this.name1; } } other.name1;"],
    ["a key", "class A { name1 = 1; f() { return this.name1; } } send({ name1: 2 });"],
    ["a key taken from something else", "class A { name1 = 1; f() { return this.name1; } } const { name1 } = message;"],
    ["a key of something inside", "class A { name1 = 1; f() { const { it: { name1 } } = this; return this.name1; } }"],
    ["a text", 'class A { name1 = 1; f() { return this.name1; } } look["name1"];'],
    ["a template", "class A { name1 = 1; f() { return this.name1; } } look[`name1`];"],
  ])("are not %s", (_, code) => {
    expect(ownNames(code)).not.toContain("name1");
  });

  it("are not what the platform asks for", () => {
    const code = "class A { toJSON() { return this.then(); } then() {} toString() { return this.message; } next() {} }";
    expect(ownNames(code)).toEqual([]);
  });
});
