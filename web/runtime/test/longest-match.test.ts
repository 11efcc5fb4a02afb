import { Tokenizer } from "@huggingface/tokenizers";
import { describe, expect, it } from "vitest";
import { boundSearch } from "../src/longest-match.js";

const PIECES = ["?", "a", "b", "é", "🦊", "ab", "aba", "aaaa", "a".repeat(40), "é🦊", "bé🦊a"];

function both(prefix: string, limit?: number): [library: Tokenizer, bounded: Tokenizer] {
  const inner = PIECES.filter((piece) => piece !== "b").map((piece) => prefix + piece);
  const vocab = Object.fromEntries([...new Set([...PIECES, ...inner])].map((piece, id) => [piece, id]));
  const model = { type: "WordPiece", unk_token: "?", continuing_subword_prefix: prefix, max_input_chars_per_word: limit ?? 1 << 30, vocab };
  const made = [0, 1].map(
    () => new Tokenizer({ added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, model }, {}),
  ) as [Tokenizer, Tokenizer];
  boundSearch(made[1], model);
  return made;
}

describe("the longest token", () => {
  it.each(["", "##"])("is the library's, with the prefix %j", (prefix) => {
    const [library, bounded] = both(prefix);
    let state = 1;
    for (let i = 0; i < 300; i++) {
      const text = Array.from({ length: i % 20 }, () => PIECES[(state = (state * 48271) % 2147483647) % PIECES.length]).join("");
      expect(bounded.encode(text).ids).toEqual(library.encode(text).ids);
    }
  });

  it("leaves words beyond the limit unknown", () => {
    const [library, bounded] = both("", 5);
    for (const text of ["aaaaa", "aaaaaa", "🦊🦊🦊🦊🦊", "🦊🦊🦊🦊🦊🦊"])
      expect(bounded.encode(text).ids).toEqual(library.encode(text).ids);
  });

  it("takes a time in proportion to the text", () => {
    const [, bounded] = both("");
    expect(bounded.encode("a".repeat(400_001)).ids).toHaveLength(10_001); // of the library: hours
  });

  it("leaves other kinds of models alone", () => {
    const [library] = both("");
    const { encode } = library.model as { encode: unknown };
    boundSearch(library, { type: "BPE" });
    expect(library.model?.encode).toBe(encode);
  });
});
