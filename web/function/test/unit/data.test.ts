/** Numbers in and out: arrays, JSON, .npy files, pictures, made-up numbers, views, code. */

import { describe, expect, it } from "vitest";
import { callCode } from "../../src/app/code";
import { given, kindsFor, newFeed, returning } from "../../src/app/feeds";
import { envelope, parseLabels, topClasses, viewsFor } from "../../src/app/views";
import { boxesOf } from "../../src/data/boxes";
import { fromHalf, numberText, rangeOf, toArray, toHalf, toNumbers } from "../../src/data/arrays";
import { numbersText, parseNumbers, parseTexts, writtenText } from "../../src/data/json";
import { fitted, parseNpy, writeNpy } from "../../src/data/npy";
import { layoutOf, maskOf, pictureValues, placed, type Layout } from "../../src/data/picture";
import { randomValues } from "../../src/data/random";
import { fitIds } from "../../src/data/text";
import { choosable, parseGraph, settled, variableOf } from "../../src/model-api";

describe("arrays", () => {
  it("round to the elements of their type", () => {
    expect([...toArray([1.6, -300, 300], "i8")]).toEqual([2, -128, 127]);
    expect([...toArray([2.4, Number.NaN], "i64")]).toEqual([2n, 0n]);
    expect([...toArray([0.2, 0, -1], "bool")]).toEqual([1, 0, 1]);
    expect([...toNumbers(BigInt64Array.of(-5n), "i64")]).toEqual([-5]);
  });

  it("have every half float", () => {
    const same = (half: number): boolean => Number.isNaN(fromHalf(half)) || toHalf(fromHalf(half)) === half;
    expect(Array.from({ length: 65536 }, (_, half) => half).filter((half) => !same(half))).toEqual([]);
    expect(fromHalf(toHalf(Number.NaN))).toBeNaN();
    expect(toHalf(65519)).toBe(toHalf(65504));
    expect(fromHalf(toHalf(65520))).toBe(Infinity);
    expect(toHalf(1 + 2 ** -11)).toBe(toHalf(1)); // a tie goes to even
    expect(toHalf(1 + 3 * 2 ** -11)).toBe(toHalf(1 + 2 ** -9));
  });

  it("say what is in them", () => {
    expect(rangeOf(Float64Array.of(1, Number.NaN, 3))).toEqual({ least: 1, largest: 3, mean: 2, odd: 1 });
    expect([3, 0.25, 1e-9, 123456.789, -Infinity].map(numberText)).toEqual(["3", "0.25", "1.000e-9", "123460", "−∞"]);
  });
});

describe("JSON", () => {
  it("is nested lists, one list, or one number for all", () => {
    expect(parseNumbers("[[1, 2], [3, true]]", [2, 2])).toEqual([1, 2, 3, 1]);
    expect(parseNumbers("1 2, 3\n4", [2, 2])).toEqual([1, 2, 3, 4]);
    expect(parseNumbers("7", [3])).toEqual([7, 7, 7]);
    expect(parseNumbers("[[1, 2]]", [2])).toEqual([1, 2]);
    expect(numbersText([1, 2, 3, 4], [2, 2])).toBe("[[1,2],[3,4]]");
    expect(numbersText([5], [])).toBe("5");
    expect(numbersText([Number.NaN, 0.5], [2])).toBe("[null,0.5]");
  });

  it("has texts, too", () => {
    expect(parseTexts("a, b\nc", [3])).toEqual(["a", "b", "c"]);
    expect(parseTexts('["a, b", ["c", 2]]', [3])).toEqual(["a, b", "c", "2"]);
    expect(parseTexts("", [2])).toEqual(["", ""]);
    expect(() => parseTexts("a, b", [3])).toThrow("3 texts go in");
    expect(() => parseTexts("[a", [1])).toThrow("no JSON");
    expect(numbersText(["a", "b"], [2, 1])).toBe('[["a"],["b"]]');
    expect(writtenText("light blue")).toBe("light blue");
    for (const text of ["", "red", "a, b", "[UNK]", '"', "a\nb", " a", "a\t", "\\", "1"])
      expect(parseTexts(writtenText(text), [1])).toEqual([text]);
  });

  it("has all digits of integers of 64 bits", () => {
    const [least, largest] = [-(2n ** 63n), 2n ** 63n - 1n];
    const text = `[[${least}, 9007199254740993],[${largest},"${largest}"]]`;
    const wanted = [least, 9007199254740993n, largest, largest];
    expect(parseNumbers(text, [2, 2])).toEqual(wanted);
    expect(parseNumbers(text.replaceAll(/["[\]]/gu, " "), [2, 2])).toEqual(wanted);
    expect([...toArray(wanted, "i64")]).toEqual(wanted);
    expect(numbersText(BigInt64Array.from(wanted), [2, 2])).toBe(`[[${least},9007199254740993],[${largest},${largest}]]`);
    expect([...toArray([2n ** 70n, -5n, 3, -Infinity], "u64")]).toEqual([2n ** 64n - 1n, 0n, 3n, 0n]);
    expect([...toArray([2n ** 70n, -(2n ** 70n), Infinity, 2 ** 53], "i64")]).toEqual([largest, least, largest, 2n ** 53n]);
    expect([...toArray([2n ** 70n, 4n], "i32")]).toEqual([2 ** 31 - 1, 4]);
    expect([...toArray([9007199254740993n], "f32")]).toEqual([2 ** 53]);
    expect(parseNumbers("[1234567890123456.5, 12345678901234567e3]", [2])).toEqual([1234567890123456.5, 12345678901234567e3]);
    expect(numberText(largest)).toBe("9223372036854775807");
  });

  it.each([
    ["", /Type numbers/u],
    ["[1, 2", /no JSON/u],
    ["1, x", /“x” is no number/u],
    ['["a"]', /no number/u],
    ["[[1], [2], [3]]", /4 numbers go in \(2 × 2\), not 3 × 1/u],
    ["[[1, 2, 3, 4]]", /not 1 × 4/u],
    ["[1, 2, 3, 4, 5]", /More than the 4/u],
  ])("%s is refused", (text, said) => {
    expect(() => parseNumbers(text, [2, 2])).toThrow(said);
  });
});

describe(".npy files", () => {
  it("are read as they are written", () => {
    for (const [dtype, data] of [
      ["f32", Float32Array.of(1, -2.5, 3, 4, 5, 6)],
      ["f16", Uint16Array.from([1, -2.5, 3, 4, 5, 6], toHalf)],
      ["i64", BigInt64Array.of(1n, -2n, 3n, 4n, 5n, 6n)],
      ["u8", Uint8Array.of(1, 2, 3, 4, 5, 255)],
    ] as const) {
      const { values, shape } = parseNpy(writeNpy(data, dtype, [2, 3]));
      expect(shape).toEqual([2, 3]);
      expect(Array.from(values)).toEqual(dtype === "i64" ? [...data] : [...toNumbers(data, dtype)]);
    }
    expect(parseNpy(writeNpy(Float32Array.of(7), "f32", [])).shape).toEqual([]);
    expect(parseNpy(writeNpy(Float32Array.of(7, 8), "f32", [2])).shape).toEqual([2]);
  });

  it("of columns become rows", () => {
    const file = writeNpy(Float32Array.of(1, 4, 2, 5, 3, 6), "f32", [2, 3]);
    const text = new TextDecoder("latin1").decode(file).replace("'fortran_order': False", "'fortran_order': True ");
    expect(Array.from(parseNpy(Uint8Array.from(text, (c) => c.charCodeAt(0))).values)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it("fit where only axes of one differ", () => {
    const numbers = { values: Float64Array.of(1, 2), shape: [2] };
    expect(fitted(numbers, [1, 2])).toBe(numbers.values);
    expect(() => fitted(numbers, [2, 2])).toThrow(/has the shape 2; 2 × 2 goes in/u);
  });

  it.each([
    [new Uint8Array(20), /no \.npy file/u],
    [writeNpy(Float32Array.of(1, 2), "f32", [2]).slice(0, -1), /cut/u],
    [writeNpy(Float32Array.of(1), "f32", [2 ** 31]), /cut/u],
  ])("that are none are refused", (bytes, said) => {
    expect(() => parseNpy(bytes)).toThrow(said);
  });
});

describe("pictures", () => {
  const PIXELS = Uint8ClampedArray.of(255, 0, 51, 255, 0, 102, 255, 255);
  const plain = { mean: [], deviation: [], fit: "stretch", reversed: false } as const;
  const planar: Layout = { channels: 3, height: 1, width: 2, first: true };

  it("are found in shapes", () => {
    expect(layoutOf([1, 3, 224, 160])).toEqual({ channels: 3, height: 224, width: 160, first: true });
    expect(layoutOf([1, 224, 160, 3])).toEqual({ channels: 3, height: 224, width: 160, first: false });
    expect(layoutOf([28, 28])).toEqual({ channels: 1, height: 28, width: 28, first: true });
    for (const shape of [[], [3], [1, 1000], [2, 3, 224, 224], [1, 80, 3000], [1, 3, 4, 4]]) expect(layoutOf(shape)).toBeNull();
  });

  it("become numbers in the order and the range that is asked for", () => {
    expect([...pictureValues(PIXELS, planar, { ...plain, normalisation: "bytes" })]).toEqual([255, 0, 0, 102, 51, 255]);
    expect([...pictureValues(PIXELS, { ...planar, first: false }, { ...plain, normalisation: "bytes" })]).toEqual([
      255, 0, 51, 0, 102, 255,
    ]);
    expect([...pictureValues(PIXELS, planar, { ...plain, normalisation: "signed", reversed: true })].map((v) => +v.toFixed(4))).toEqual([
      -0.6, 1, -1, -0.2, 1, -1,
    ]);
    const own = { ...plain, normalisation: "own", mean: [0.5], deviation: [0.25] } as const;
    expect([...pictureValues(PIXELS, planar, own)].map((v) => +v.toFixed(4))).toEqual([2, -2, -2, -0.4, -1.2, 2]);
    const grey = pictureValues(PIXELS, { ...planar, channels: 1 }, { ...plain, normalisation: "bytes" });
    expect([...grey].map((v) => +v.toFixed(2))).toEqual([82.06, 88.94]);
  });

  it("are placed as they fit", () => {
    const [given, wanted] = [
      { width: 200, height: 100 },
      { width: 50, height: 50 },
    ];
    expect(placed(given, wanted, "stretch")).toEqual([0, 0, 50, 50]);
    expect(placed(given, wanted, "cover")).toEqual([-25, 0, 100, 50]);
    expect(placed(given, wanted, "contain")).toEqual([0, 12.5, 50, 25]);
  });

  it("have masks of the largest plane, or of what is above the middle", () => {
    const values = new Float64Array(2 * 64).fill(0).map((_, i) => (i === 64 + 5 ? 1 : 0));
    const mask = maskOf(values, [1, 2, 8, 8], rangeOf(values), false);
    expect([...(mask?.classes ?? [])].flatMap((c, i) => (c ? [i] : []))).toEqual([5]);
    const logits = new Float64Array(64).fill(-1).fill(2, 10, 12);
    expect([...(maskOf(logits, [8, 8], rangeOf(logits), false)?.classes ?? [])].flatMap((c, i) => (c ? [i] : []))).toEqual([10, 11]);
  });
});

describe("made-up numbers", () => {
  it("are repeated by their seed", () => {
    expect(randomValues(5, "normal", 3, 0)).toEqual(randomValues(5, "normal", 3, 0));
    expect(randomValues(5, "normal", 3, 0)).not.toEqual(randomValues(5, "normal", 4, 0));
    const { mean, least, largest } = rangeOf(randomValues(20_000, "uniform", 1, 0));
    expect(mean).toBeCloseTo(0.5, 1);
    expect([least >= 0, largest < 1]).toEqual([true, true]);
    expect(rangeOf(randomValues(20_000, "normal", 1, 0)).mean).toBeCloseTo(0, 1);
    expect(new Set(randomValues(200, "integers", 1, 4))).toEqual(new Set([0, 1, 2, 3]));
  });
});

describe("what suggests itself", () => {
  type Port = { name: string; dtype: string; shape: number[] };
  const spec = (name: string, dtype: string, shape: number[]): Port => ({ name, dtype, shape });

  it("goes in", () => {
    expect(kindsFor(spec("pixel_values", "f32", [1, 3, 224, 224]), false, [])[0]).toBe("picture");
    expect(kindsFor(spec("audio", "f32", [1, 16000]), false, [])[0]).toBe("sound");
    expect(kindsFor(spec("x", "f32", [1, 10]), false, [])[0]).toBe("random");
    expect(kindsFor(spec("sr", "i64", []), false, [])[0]).toBe("json");
    expect(kindsFor(spec("input_ids", "i64", [1, 64]), true, [])[0]).toBe("text");
    expect(kindsFor(spec("input_ids", "i64", [1, 64]), false, [])[0]).toBe("random");
    expect(kindsFor(spec("attention_mask", "i64", [1, 64]), true, [])[0]).toBe("mask");
    expect(newFeed(spec("attention_mask", "i64", [1, 64]), false, []).spread).toBe("ones");
  });

  it("goes in again", () => {
    const [state, stateN, other] = ["state", "stateN", "output"].map((name) => spec(name, "f32", [2, 1, 128])) as [Port, Port, Port];
    expect(kindsFor(state, false, [other, stateN])[0]).toBe("output");
    expect(returning(state, [other, stateN])).toEqual(["stateN", "output"]);
    expect(kindsFor(spec("h0", "f32", [1, 8]), false, [spec("hn", "f32", [1, 8])])[0]).toBe("output");
    expect(kindsFor(spec("noisy", "f32", [1, 4000]), false, [spec("clean", "f32", [1, 4000])])).toEqual([
      "sound",
      "random",
      "json",
      "npy",
      "output",
    ]);
    expect(kindsFor(spec("n", "i64", []), false, [spec("next", "i64", [])])[0]).toBe("json");
    expect(kindsFor(state, false, [spec("stateN", "f32", [2, 1, 64])])).not.toContain("output");
    expect(kindsFor(spec("image", "f32", [1, 3, 64, 64]), false, [spec("image_out", "f32", [1, 3, 64, 64])])[0]).toBe("picture");
    const values = Float64Array.of(1, 2);
    const [x, y] = [spec("x", "f32", [2]), spec("x_out", "f32", [2])];
    const feed = newFeed(x, false, [y]);
    const shown = { spec: y, shape: [2], values, range: rangeOf(values), data: new Float32Array(2) };
    expect([...given(x, feed, null, [], []).array]).toEqual([0, 0]);
    expect([...given(x, feed, null, [], [shown]).array]).toEqual([1, 2]);
  });

  it("comes out", () => {
    expect(viewsFor(spec("logits", "f32", []), [1, 1000], true, 0)[0]).toBe("classes");
    expect(viewsFor(spec("masks", "f32", []), [1, 21, 64, 64], true, 0)[0]).toBe("mask");
    expect(viewsFor(spec("image", "f32", []), [1, 3, 64, 64], false, 0)[0]).toBe("picture");
    expect(viewsFor(spec("wave", "f32", []), [1, 16000], false, 0)[0]).toBe("plot");
    expect(viewsFor(spec("boxes", "f32", []), [20, 6], true, 0)[0]).toBe("table");
    expect(viewsFor(spec("output0", "f32", []), [1, 22, 2100], true, 18)[0]).toBe("boxes");
    expect(viewsFor(spec("output0", "f32", []), [1, 22, 2100], true, 0)).not.toContain("mask");
    expect(viewsFor(spec("score", "f32", []), [], false, 0)).toEqual(["numbers", "table"]);
  });

  it("finds boxes, one of those on each other", () => {
    const side = { width: 100, height: 50 };
    const rows = [
      [50, 25, 20, 10, 0.1, 0.9],
      [51, 25, 20, 10, 0.1, 0.8],
      [50, 25, 20, 10, 0.6, 0.1],
      ...Array.from({ length: 5 }, () => [9, 9, 9, 9, 0.1, 0.2]),
    ];
    const found = boxesOf(rows.flat(), [8, 6], 2, side);
    expect(found.map(({ index, score }) => [index, score])).toEqual([
      [1, 0.9],
      [0, 0.6],
    ]);
    const [{ left, top, width, height }] = found as [(typeof found)[0]];
    expect([left, top, width, height]).toEqual([0.4, 0.4, 0.2, 0.2]);
    const across = Array.from({ length: 6 }, (_, field) => rows.map((row) => row[field] as number)).flat();
    expect(boxesOf(across, [1, 6, 8], 2, side)).toEqual(found);
    const whole = rows.map((row) => [...row.slice(0, 4), 0.5, ...row.slice(4)]);
    expect(boxesOf(whole.flat(), [1, 8, 7], 2, side).map(({ score }) => score)).toEqual([0.45, 0.3]);
  });

  it("counts classes, whether logits or shares", () => {
    expect(topClasses(Float64Array.of(0.1, 0.7, 0.2), 2)).toEqual([
      { index: 1, value: 0.7, share: 0.7 },
      { index: 2, value: 0.2, share: 0.2 },
    ]);
    expect(topClasses(Float64Array.of(0, Math.log(3)), 1)[0]?.share).toBeCloseTo(0.75);
  });

  it("reads labels of every kind", () => {
    expect(parseLabels("cat\ndog\n")).toEqual(["cat", "dog"]);
    expect(parseLabels('["cat", "dog"]')).toEqual(["cat", "dog"]);
    expect(parseLabels('{"id2label": {"1": "dog", "0": "cat"}}')).toEqual(["cat", "dog"]);
    expect(parseLabels("{}")).toBeNull();
    expect(parseLabels("[1")).toBeNull();
  });

  it("keeps the extremes of a line", () => {
    expect(envelope([0, 9, -9, 1], 0, 4, 2)).toEqual([
      [0, 0, 9],
      [2, -9, 1],
    ]);
  });
});

it("ids are cut or filled", () => {
  expect([...fitIds([5, 6, 7], 2, 1)]).toEqual([5, 6]);
  expect([...fitIds([5, 6], 4, 1)]).toEqual([5, 6, 1, 1]);
});

it("the code calls the model with the right names, types and sizes", () => {
  const port = { name: "a b", dtype: "i64", shape: [2, 3] };
  const code = callCode({ name: "run", inputs: [port], outputs: [{ ...port, name: "y", dtype: "f16" }], kernels: 1 }, false);
  expect(code).toContain('    "a b": new BigInt64Array(6), // 2 × 3, int64\n');
  expect(code).toContain('  { function: "run" },\n');
  expect(code).toContain("outputs.y; // Uint16Array: 2 × 3, halves as their bits\n");
});

it("what the export says of the graph may be anything", () => {
  expect(parseGraph(null)).toEqual({ labels: [], metadata: {}, shapes: {}, sizes: {}, tokenizer: false });
  const graph = {
    labels: ["a", 1],
    metadata: { k: "v", n: 3 },
    inputs: [{ name: "x", shape: ["b", 3] }, {}],
    sizes: { run_1: { b: 1 } },
    tokenizer: true,
  };
  expect(parseGraph({ graph })).toEqual({
    labels: ["a"],
    metadata: { k: "v" },
    shapes: { x: ["b", 3] },
    sizes: { run_1: { b: 1 } },
    tokenizer: true,
  });
});

it("sizes that vary may be chosen, also those in steps", () => {
  const range = { min: 2, max: 20 };
  const port = { name: "x", dtype: "f32", shape: [1, 640, 640, 9], sizes: ["batch", "(height / 32 · 32)", "(pairs · 2)", "(other + 1)"] };
  const variables = { batch: range, "height / 32": range, pairs: range, other: range };
  expect(settled({ name: "run", inputs: [port], outputs: [], kernels: 1 }, { batch: 3, "height / 32": 10 }).inputs[0]?.shape).toEqual([
    3, 320, 640, 9,
  ]);
  expect(choosable([port], variables)).toEqual([
    { name: "batch", label: "batch", times: 1 },
    { name: "height / 32", label: "height", times: 32 },
    { name: "pairs", label: "pairs · 2", times: 2 },
  ]);
});

it("sizes that vary are numbers for a call", () => {
  const port = { name: "ids", dtype: "i64", shape: [1, 512], sizes: [1, "length"] };
  const output = { ...port, name: "y", sizes: ["max(2, ((length + 1) / 2))", "(length of it · 2)", "odd"], shape: [9, 9, 9] };
  const found = settled({ name: "run", inputs: [port], outputs: [output], kernels: 1 }, { length: 7, "length of it": 3 });
  expect(found.inputs[0]?.shape).toEqual([1, 7]);
  expect(found.outputs[0]?.shape).toEqual([4, 6, 9]);
  expect(variableOf(port, { length: { min: 1, max: 512 } })).toBe("length");
  expect(variableOf(output, { length: { min: 1, max: 512 } })).toBeUndefined();
  expect(callCode(found, true)).toContain("    ids: { data: new BigInt64Array(7), shape: [1, 7] }, // 1 × 7, int64\n");
});
