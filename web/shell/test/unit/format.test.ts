import { describe, expect, test } from "vitest";
import {
  asSentence,
  backendName,
  formatBytes,
  formatParameters,
  formatProgress,
  formatSecondsLeft,
  formatSpeed,
  formatStart,
  isBlank,
  quantName,
} from "../../src/text/format"; // prettier-ignore

describe("formatBytes", () => {
  test.each([
    [0, "0 KB"],
    [640_000, "640 KB"],
    [999_499, "999 KB"],
    [999_500, "1.0 MB"],
    [7_803_456, "7.8 MB"],
    [9_949_999, "9.9 MB"],
    [9_950_000, "10 MB"],
    [34_120_000, "34 MB"],
    [999_499_999, "999 MB"],
    [999_500_000, "1.0 GB"],
    [12_400_000_000, "12 GB"],
  ])("%d is %s", (bytes, text) => expect(formatBytes(bytes)).toBe(text));
});

describe("formatProgress", () => {
  test.each([
    [0, 7_803_456, "0.0 of 7.8 MB"],
    [3_121_382, 7_803_456, "3.1 of 7.8 MB"],
    [9_000_000, 7_803_456, "7.8 of 7.8 MB"],
    [120_400_000, 270_000_000, "120 of 270 MB"],
    [500_000_000, 1_200_000_000, "0.5 of 1.2 GB"],
    [100_000, 400_000, "100 of 400 KB"],
  ])("%d of %d", (loaded, total, text) => expect(formatProgress(loaded, total)).toBe(text));
});

describe("formatSecondsLeft", () => {
  test.each([
    [undefined, ""],
    [null, ""],
    [Number.NaN, ""],
    [Number.POSITIVE_INFINITY, ""],
    [-3, ""],
    [0, "a few seconds left"],
    [4.9, "a few seconds left"],
    [5, "5 s left"],
    [21, "25 s left"],
    [54.9, "55 s left"],
    [55, "1 min left"],
    [61, "2 min left"],
    [3569, "60 min left"],
    [3600, "about 1 h left"],
  ])("%s", (seconds, text) => expect(formatSecondsLeft(seconds)).toBe(text));
});

test("speed", () => {
  expect(formatSpeed(8.44)).toBe("8.4 tokens/s");
  expect(formatSpeed(9.96)).toBe("10 tokens/s");
  expect(formatSpeed(137.4)).toBe("137 tokens/s");
});

test("parameters", () => {
  expect(formatParameters(7_343_360)).toBe("7.3 million parameters");
  expect(formatParameters(134_515_008)).toBe("135 million parameters");
  expect(formatParameters(1_235_814_400)).toBe("1.2 billion parameters");
});

test("names", () => {
  expect(backendName("webgpu", "Apple M2")).toBe("WebGPU");
  expect(backendName("wasm")).toBe("WASM, several threads");
  expect(backendName("wasm", "8 CPU threads")).toBe("WASM, 8 threads");
  expect(backendName("wasm-single", "1 CPU thread")).toBe("WASM, one thread");
  expect(backendName("something-new")).toBe("something-new");
  expect(quantName("q4")).toBe("4-bit weights");
  expect(quantName("q3")).toBe("3-bit weights");
  expect(quantName("f16")).toBe("16-bit weights");
  expect(quantName("mixed")).toBe("weights of 3 to 8 bits");
  expect(quantName("Q6_K, Q4_K")).toBe("Q6_K, Q4_K");
});

test("sentences", () => {
  expect(asSentence("this browser has no WebGPU")).toBe("This browser has no WebGPU.");
  expect(asSentence(" Done. ")).toBe("Done.");
});

test("formatStart says when what was done", () => {
  const start = { manifestMs: 20.2, tokenizerMs: 60, weightsMs: 324.4, kernelsMs: 179.6, readyMs: 325 };
  expect(formatStart(start)).toBe("after 325 ms (weights 324, kernels 180)");
});

describe("isBlank", () => {
  test.each([
    "",
    " \t\r\n",
    "\u200b\u200c\u200d\u200e\u200f",
    "\u2060\ufeff",
    "\u00ad",
    "\ufe0e\ufe0f\u{e0100}",
    "\u115f\u1160\u3164\uffa0",
    "\u2800",
    "\u3000\u00a0",
    "\0\u001b\u009f",
  ])("%j has nothing to see", (text) => expect(isBlank(text)).toBe(true));
  test.each([".", "\u200ba", "\u0301", "👩\u200d💻", "ㅤㄱ", "\ud800", "\ue000"])("%j has something", (text) =>
    expect(isBlank(text)).toBe(false),
  );
  test("takes a long text in its stride", () => expect(isBlank(`${"\u200b ".repeat(500_000)}x`)).toBe(false));
});
