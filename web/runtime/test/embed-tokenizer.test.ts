/** Tokens of texts for embeddings: special ones around them, and what is too long cut in front of the last of those. */

import { describe, expect, it } from "vitest";
import type { EmbedSection } from "../src/embed/section.js";
import { TextTokenizer } from "../src/embed/tokenizer.js";

const WORDS = ["<s>", "</s>", "<x>", "[UNK]", "a", "b", "c", "A", "q"];
const id = (word: string): number => WORDS.indexOf(word);
const special = (content: string): object => ({
  id: id(content),
  content,
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special: true,
});
const token = (name: string): object => ({ SpecialToken: { id: name, type_id: 0 } });

/** @param template what stands around a text: "$" is the text itself */
function tokenizer(template: string, section: Partial<EmbedSection> = {}, change: object = {}): TextTokenizer {
  const names = template.split(" ").filter(Boolean);
  const post = {
    type: "TemplateProcessing",
    single: names.map((name) => (name === "$" ? { Sequence: { id: "A", type_id: 0 } } : token(name))),
    pair: [],
    special_tokens: Object.fromEntries(
      names.filter((name) => name !== "$").map((name) => [name, { id: name, ids: [id(name)], tokens: [name] }]),
    ),
  };
  const json = {
    version: "1.0",
    added_tokens: ["<s>", "</s>", "<x>"].map(special),
    pre_tokenizer: { type: "WhitespaceSplit" },
    post_processor: template ? post : null,
    model: {
      type: "WordPiece",
      unk_token: "[UNK]",
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(WORDS.map((word, i) => [word, i])),
    },
    ...change,
  };
  return new TextTokenizer(json, {}, {
    maxLength: 6,
    lowercase: false,
    prefixes: { query: "q ", passage: "" },
    fill: null,
    ...section,
  } as EmbedSection);
}

const read = (t: TextTokenizer, text: string, kind: "query" | "passage" = "passage"): string =>
  t
    .encode(text, kind)
    .map((i) => WORDS[i])
    .join(" ");

describe("tokens of a text", () => {
  it.each([
    ["<s> $ </s>", "b c", "<s> b c </s>"],
    ["<s> $ </s>", "a b c a", "<s> a b c a </s>"], // as many as there may be
    ["<s> $ </s>", "a b c a b", "<s> a b c a </s>"],
    ["<s> <x> $ </s> <x>", "a b c", "<s> <x> a b </s> <x>"],
    ["<s> <x> $ </s> <x>", "a b", "<s> <x> a b </s> <x>"],
    ["$ </s>", "a a a a a a a", "a a a a a </s>"],
    ["<s> $", "a b c a b c", "<s> a b c a b"],
    ["", "a b c a b c a", "a b c a b c"],
  ])("%s around %s", (template, text, tokens) => {
    expect(read(tokenizer(template), text)).toBe(tokens);
  });

  it("are counted before they are cut", () => {
    const t = tokenizer("<s> $ </s>");
    expect([0, 1, 4, 5, 50].map((n) => t.count("a ".repeat(n), "passage"))).toEqual([2, 3, 6, 7, 52]);
    expect(t.count("a", "query")).toBe(4);
  });

  it("have the prefix of their kind in front, in small letters where the model wants them", () => {
    expect(read(tokenizer("<s> $ </s>"), "A b", "query")).toBe("<s> q A b </s>");
    expect(read(tokenizer("<s> $ </s>", { lowercase: true, prefixes: { query: "Q ", passage: "C " } }), "A b", "query")).toBe(
      "<s> q a b </s>",
    );
    expect(read(tokenizer("<s> $ </s>", { lowercase: true, prefixes: { query: "Q ", passage: "C " } }), "A b")).toBe("<s> c a b </s>");
  });

  it("follow the section, not what the file says of cutting and padding", () => {
    const change = {
      truncation: { max_length: 3, strategy: "LongestFirst", stride: 0 },
      padding: { strategy: { Fixed: 6 }, pad_id: 0, pad_token: "<s>" },
    };
    expect(read(tokenizer("<s> $ </s>", {}, change), "a b")).toBe("<s> a b </s>");
    expect(read(tokenizer("<s> $ </s>", {}, change), "a b c a")).toBe("<s> a b c a </s>");
  });

  it("need a tokenizer", () => {
    expect(() => tokenizer("<s> $ </s>", {}, { model: 3 })).toThrow(
      expect.objectContaining({
        code: "bad-manifest",
        message: expect.stringMatching(/^The tokenizer of this model cannot be used: ./),
        cause: expect.any(Error),
      }),
    );
  });
});
