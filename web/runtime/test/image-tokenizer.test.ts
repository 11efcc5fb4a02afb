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
  const words = [
    ...bytes,
    ...bytes.map((byte) => `${byte}</w>`),
    ...fixture.merges.map((merge) => merge.replace(" ", "")),
    "<|startoftext|>",
    "<|endoftext|>",
  ];
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

/** Of few words: "a" and "b" are letters, "ab" and "abb" are learned in this order. */
const SMALL = {
  model: {
    vocab: { a: 0, b: 1, "a</w>": 2, "b</w>": 3, ab: 4, "ab</w>": 5, "abb</w>": 6, ba: 7 },
    merges: ["a b", ["a", "b</w>"], "ab b</w>", "b a"],
    end_of_word_suffix: "</w>",
  },
};
const small = (length: number): ClipTokenizer => new ClipTokenizer(SMALL, { length, bos: 90, eos: 91, pad: 92 });

test("pairs are joined in the order in which they were learned, everywhere in a word", () => {
  const ids = (text: string): number[] => small(12).encode(text).ids;
  const whole = (...words: number[]): number[] => [90, ...words, 91, ...new Array<number>(10 - words.length).fill(92)];
  expect(ids("a")).toEqual(whole(2));
  expect(ids("ab")).toEqual(whole(5));
  expect(ids("abb")).toEqual(whole(6));
  expect(ids("abab")).toEqual(whole(4, 5));
  expect(ids("baba")).toEqual(whole(1, 4, 2));
  expect(ids("bba ab")).toEqual(whole(1, 1, 2, 5));
  expect(ids("bbaa")).toEqual(whole(1, 7, 2));
  expect(ids("x")).toEqual(whole(91)); // unknown
});

test("a text takes the room that there is, and what it leaves out is told without the space around it", () => {
  expect(small(5).encode("a b a")).toEqual({ ids: [90, 2, 3, 2, 91], cut: "" });
  expect(small(5).encode("a b a b ")).toEqual({ ids: [90, 2, 3, 2, 91], cut: "b" });
  expect(small(5).encode(" a bba  b ")).toEqual({ ids: [90, 2, 1, 1, 91], cut: "bba  b" });
  expect(small(5).encode("")).toEqual({ ids: [90, 91, 92, 92, 92], cut: "" });
  expect(small(4).encode("A\u0301\u00c1")).toEqual({ ids: [90, 91, 91, 91], cut: "áá" }); // one word of four bytes, none of them known
});

test("of endless texts and words the beginning is read", () => {
  const { ids, cut } = small(1000).encode("b".repeat(600));
  expect(ids.slice(0, 503)).toEqual([90, ...new Array<number>(499).fill(1), 3, 91, 92]);
  expect(cut).toBe("");
  expect(small(5).encode(`a${" ".repeat(19_999)}b`)).toEqual({ ids: [90, 2, 91, 92, 92], cut: "b" });
  expect(small(5).encode(`a${" ".repeat(19_998)}b`)).toEqual({ ids: [90, 2, 3, 91, 92], cut: "" });
});

test.each<[string, unknown]>([
  ["no object", null],
  ["a text", "x"],
  ["no model", {}],
  ["no vocabulary", { vocab: undefined }],
  ["an empty vocabulary", { vocab: null }],
  ["a text for the vocabulary", { vocab: "a" }],
  ["no merges", { merges: undefined }],
  ["a text for the merges", { merges: "a b" }],
  ["no end of words", { end_of_word_suffix: undefined }],
  ["an empty end of words", { end_of_word_suffix: "" }],
  ["a number for the end of words", { end_of_word_suffix: 5 }],
])("a tokenizer with %s is refused", (name, change) => {
  const json =
    name.startsWith("no object") || name === "a text" || name === "no model"
      ? change
      : { model: { ...SMALL.model, ...(change as object) } };
  expect(() => new ClipTokenizer(json, form)).toThrow(
    expect.objectContaining({
      code: "bad-manifest",
      message: "tokenizer.json is not the byte-pair encoding of a CLIP model.",
    }),
  );
});
