import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ClipTokenizer } from "../src/image/clip-tokenizer.js";

interface Fixture {
  bos: number;
  eos: number;
  length: number;
  merges: string[];
  cases: { text: string; ids: number[] }[];
}

/** Ids that `transformers` gives for the default model's tokenizer. */
const fixture = JSON.parse(readFileSync(new URL("fixtures/clip.json", import.meta.url), "utf8")) as Fixture;

/** CLIP's vocabulary: the bytes, the bytes that end a word, the merges, start and end. */
function tokenizerJson(pairs = false): unknown {
  const printable = [...range(33, 127), ...range(161, 173), ...range(174, 256)];
  const others = range(0, 256).filter((byte) => !printable.includes(byte));
  const bytes = [...printable, ...others.map((_, i) => 256 + i)].map((code) => String.fromCharCode(code));
  const words = [...bytes, ...bytes.map((byte) => `${byte}</w>`), ...fixture.merges.map((merge) => merge.replace(" ", "")), "<|startoftext|>", "<|endoftext|>"];
  return {
    model: {
      type: "BPE",
      vocab: Object.fromEntries(words.map((word, id) => [word, id])),
      merges: pairs ? fixture.merges.map((merge) => merge.split(" ")) : fixture.merges,
      end_of_word_suffix: "</w>",
    },
  };
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, i) => from + i);
}

const form = { length: fixture.length, bos: fixture.bos, eos: fixture.eos, pad: fixture.eos };

test.each(fixture.cases)("ids of $text", ({ text, ids }) => {
  expect(new ClipTokenizer(tokenizerJson(), form).encode(text).ids).toEqual(ids);
});

test("there are texts to compare", () => {
  expect(fixture.cases.length).toBeGreaterThan(10);
});

test("merges may be pairs", () => {
  const { text, ids } = fixture.cases[2] as Fixture["cases"][number];
  expect(new ClipTokenizer(tokenizerJson(true), form).encode(text).ids).toEqual(ids);
});

test("what is cut off is told, and huge texts take no time", () => {
  const tokenizer = new ClipTokenizer(tokenizerJson(), form);
  expect(tokenizer.encode("a red circle").cut).toBe("");
  expect(tokenizer.encode(`${"a ".repeat(30)}red circle`).cut).toBe("red circle");
  const { ids, cut } = tokenizer.encode("x".repeat(100_000));
  expect(ids.length).toBe(fixture.length);
  expect(cut.length).toBe(100_000);
});

test("another kind of tokenizer is refused", () => {
  expect(() => new ClipTokenizer({ model: { type: "WordPiece", vocab: {} } }, form)).toThrowError(/tokenizer\.json/);
  expect(() => new ClipTokenizer(null, form)).toThrowError(/tokenizer\.json/);
});
