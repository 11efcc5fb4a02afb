/** What callers give, by itself: what passes, and what each mistake says (arguments.ts, options.ts). */

import { afterEach, describe, expect, it, vi } from "vitest";
import { badArgument, checkFunction, checkNumber, checkNumbers, checkOneOf, optionsOf, unlike } from "../src/arguments.js";
import { checkMessages, generateOptions } from "../src/options.js";

function said(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    expect(error).toMatchObject({ code: "bad-argument", name: "TinywebError" });
    return (error as Error).message;
  }
  return "";
}

afterEach(() => vi.restoreAllMocks());

describe("a mistake", () => {
  it("has a code, a sentence and a cause", () => {
    const cause = new Error("why");
    expect(badArgument("So.", cause)).toMatchObject({ code: "bad-argument", message: "So.", cause });
    expect(unlike("x", "a number", "y", cause)).toMatchObject({ code: "bad-argument", message: 'x must be a number, not "y".', cause });
    expect("cause" in badArgument("So.")).toBe(false);
  });

  it.each<[unknown, string]>([
    ["a", '"a"'],
    ["", '""'],
    ["x".repeat(100), `"${"x".repeat(80)}"`],
    [5, "5"],
    [NaN, "NaN"],
    [null, "null"],
    [undefined, "undefined"],
    [true, "true"],
    [5n, "5"],
    [Symbol("s"), "Symbol(s)"],
    [{}, "Object"],
    [[], "Array"],
    [() => 1, "Function"],
    [new Map(), "Map"],
    [Object.create(null), "Object"],
    [new Date(0), "Date"],
  ])("shows %o", (value, shown) => {
    expect(unlike("x", "good", value).message).toBe(`x must be good, not ${shown}.`);
  });

  it("is none where the value is one of those that may be", () => {
    checkOneOf("x", "b", ["a", "b"]);
    expect(said(() => checkOneOf("x", "c", ["a", "b"]))).toBe('x must be one of a, b, not "c".');
    expect(said(() => checkOneOf("x", ["a"], ["a", "b"]))).toBe("x must be one of a, b, not Array.");
    checkFunction("f", () => 1);
    expect(said(() => checkFunction("f", "g"))).toBe('f must be a function, not "g".');
  });
});

describe("the options of a call", () => {
  const SIGNAL = { aborted: false }; // a polyfill's

  it("are those that are given", () => {
    expect(optionsOf(undefined, "f()")).toEqual({});
    expect(optionsOf(null, "f()", ["a"])).toEqual({});
    const given = { a: 0, b: "", c: false, d: null, e: undefined, signal: SIGNAL, onThing: () => 1 };
    const { d: _, e: _e, ...rest } = given;
    expect(optionsOf(given, "f()")).toEqual(rest);
    expect(optionsOf(given, "f()")).not.toHaveProperty("d");
    expect(optionsOf(given, "f()")).not.toHaveProperty("e");
    expect(optionsOf(given, "f()")).not.toBe(given);
  });

  it.each<[unknown, string]>([
    [5, "5"],
    ["x", '"x"'],
    [true, "true"],
    [[], "Array"],
    [() => 1, "Function"],
    [SIGNAL, "Object"],
    [new AbortController().signal, "AbortSignal"],
    [0, "0"],
    ["", '""'],
  ])("cannot be %o", (given, shown) => {
    expect(said(() => optionsOf(given as object, "f()"))).toBe(`The options of f() must be an object, such as { signal }, not ${shown}.`);
  });

  it("that are unknown are told once, and left out", () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const take = (call: string): object => optionsOf({ a: 1, unheard: 2, none: null }, call, ["a", "b"]);
    expect([take("once()"), take("once()"), take("twice()")]).toEqual([{ a: 1 }, { a: 1 }, { a: 1 }]);
    expect(warn.mock.calls).toEqual([
      ['tinyweb: once() ignores the option "unheard"; it knows a, b.'],
      ['tinyweb: twice() ignores the option "unheard"; it knows a, b.'],
    ]);
  });

  it("have a signal that is one, and listeners that can be called", () => {
    for (const signal of [5, "stop", {}, new AbortController(), { aborted: "no" }]) {
      expect(said(() => optionsOf({ signal }, "f()"))).toMatch(/^signal must be an AbortSignal, such as controller\.signal, not .*\.$/);
    }
    expect(said(() => optionsOf({ onThing: 5 }, "f()"))).toBe("onThing must be a function, not 5.");
    expect(optionsOf({ once: 5, on: 5, notonA: 5, abort: SIGNAL }, "f()")).toEqual({ once: 5, on: 5, notonA: 5, abort: SIGNAL });
  });
});

describe("a number", () => {
  it("lies within its bounds, which belong to it", () => {
    expect([1, 1.5, 2].map((value) => checkNumber("n", value, 1, 2))).toEqual([1, 1.5, 2]);
    expect([0, Infinity].map((value) => checkNumber("n", value, 0))).toEqual([0, Infinity]);
    for (const none of [undefined, null]) expect(checkNumber("n", none, 1, 2)).toBeUndefined();
    for (const wrong of [0.9, 2.1, NaN, Infinity])
      expect(said(() => checkNumber("n", wrong, 1, 2))).toBe(`n must be a number in 1 … 2, not ${wrong}.`);
    expect(said(() => checkNumber("n", "1", 1, 2))).toBe('n must be a number in 1 … 2, not "1".');
    expect(said(() => checkNumber("n", -1, 0))).toBe("n must be a number of at least 0, not -1.");
    expect(said(() => checkNumber("n", [1.5], 1, 2))).toBe("n must be a number in 1 … 2, not Array.");
  });

  it("is an integer where it must be one", () => {
    expect(checkNumber("n", 2, 1, 3, true)).toBe(2);
    expect(said(() => checkNumber("n", 1.5, 1, 3, true))).toBe("n must be an integer in 1 … 3, not 1.5.");
    expect(said(() => checkNumber("n", Infinity, 1, Infinity, true))).toBe("n must be an integer of at least 1, not Infinity.");
  });

  it("is looked at by its name", () => {
    checkNumbers({ a: 1 }, { a: [0, 1], b: [5] });
    expect(said(() => checkNumbers({ a: 1, b: 4 }, { a: [0, 1], b: [5] }))).toBe("b must be a number of at least 5, not 4.");
    expect(said(() => checkNumbers({ a: 0.5 }, { a: [0, 1, true] }))).toBe("a must be an integer in 0 … 1, not 0.5.");
  });
});

describe("what an answer is asked for with", () => {
  const INT = 2 ** 31 - 1;
  const SAFE = Number.MAX_SAFE_INTEGER;
  it.each<[string, number[], number[], string]>([
    ["maxTokens", [1, INT], [0, INT + 1, 1.5], `an integer in 1 … ${INT}`],
    ["temperature", [0, 0.5, 100], [-0.1, 100.1], "a number in 0 … 100"],
    ["topK", [0, INT], [-1, INT + 1, 0.5], `an integer in 0 … ${INT}`],
    ["topP", [0, 0.5, 1], [-0.1, 1.1], "a number in 0 … 1"],
    ["repetitionPenalty", [0.01, 100], [0.009, 101], "a number in 0.01 … 100"],
    ["seed", [-SAFE, SAFE], [-SAFE - 1, SAFE + 1, 0.5], `an integer in ${-SAFE} … ${SAFE}`],
    ["speculate", [0, 1024], [-1, 1025, 0.5], "an integer in 0 … 1024"],
    ["hiddenTokensPerSecond", [0, 0.5, Infinity], [-0.1], "a number of at least 0"],
  ])("%s", (name, good, bad, must) => {
    for (const value of good) expect(generateOptions({ [name]: value }, "f()")).toEqual({ [name]: value });
    for (const value of bad) expect(said(() => generateOptions({ [name]: value }, "f()"))).toBe(`${name} must be ${must}, not ${value}.`);
  });

  it("may have a signal, and nothing else", () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const { signal } = new AbortController();
    expect(generateOptions({ signal, other: 1 } as object, "generate()")).toEqual({ signal });
    expect(generateOptions(null, "generate()")).toEqual({});
    expect(warn.mock.calls).toEqual([
      [
        'tinyweb: generate() ignores the option "other"; it knows maxTokens, temperature, topK, topP, repetitionPenalty, seed, speculate, hiddenTokensPerSecond, signal.',
      ],
    ]);
  });

  it("are messages of a role and a content", () => {
    checkMessages([
      { role: "user", content: "" },
      { role: "", content: "x" },
    ]);
    for (const none of [undefined, null, "x", {}, []])
      expect(said(() => checkMessages(none))).toBe("messages must be a non-empty list of { role, content }.");
    for (const wrong of [
      null,
      undefined,
      "x",
      {},
      { role: "user" },
      { content: "x" },
      { role: 5, content: "x" },
      { role: "user", content: 5 },
    ]) {
      expect(said(() => checkMessages([{ role: "user", content: "" }, wrong]))).toBe(
        "messages[1] must have a role and a content, both strings.",
      );
    }
  });
});
