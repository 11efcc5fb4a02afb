import type { Tokenizer } from "@huggingface/tokenizers";
import { describe, expect, it } from "vitest";
import { createDetokenizer, type Detokenizer } from "../src/detokenizer.js";

const say = (detokenizer: Detokenizer, ids: number[]): string[] => [...ids.map((id) => detokenizer.push(id)), detokenizer.end()];

describe("a vocabulary that spells bytes", () => {
  // In the GPT-2 alphabet "Ġ" is a space, "âĤ¬" the bytes of "€", "ï»¿" those of a byte order mark; "漢" is none of its characters.
  const words: Record<number, string> = { 0: "A", 1: "Ġb", 2: "âĤ", 3: "¬", 4: "ï»¿", 5: "漢", 6: "<end>", 7: "<think>" };
  const added = new Map([
    [6, { content: "<end>", special: true }],
    [7, { content: "<think>é", special: false }],
  ]);
  const tokenizer = { get_added_tokens_decoder: () => added, id_to_token: (id: number) => words[id] } as unknown as Tokenizer;
  const make = (): Detokenizer => createDetokenizer(tokenizer, true);

  it("gives words, and characters when their last byte is there", () => {
    expect(say(make(), [0, 1, 2, 3, 1])).toEqual(["A", " b", "", "€", " b", ""]);
  });

  it("keeps what looks like a byte order mark, and characters beyond the alphabet", () => {
    expect(say(make(), [4, 5, 4])).toEqual(["\ufeff", "漢", "\ufeff", ""]);
  });

  it("leaves out special tokens, keeps other added ones, and knows nothing of other ids", () => {
    expect(say(make(), [0, 6, 7, 99, 0])).toEqual(["A", "", "<think>é", "", "A", ""]);
  });

  it("shows at the end what is incomplete, and may be used again", () => {
    const detokenizer = make();
    expect(say(detokenizer, [2])).toEqual(["", "\ufffd"]);
    expect(say(detokenizer, [3, 2, 3])).toEqual(["\ufffd", "", "€", ""]);
  });
});

describe("a vocabulary of another kind", () => {
  const words = ["▁one", "▁two", "\n", "<half>", "<other half>", "<end>", "▁x\n"];
  /** Words behind a space, but for the first; two halves are a character. */
  function make(): { detokenizer: Detokenizer; asked: [number[], unknown][] } {
    const asked: [number[], unknown][] = [];
    const decode = (ids: number[], options: unknown): string => {
      asked.push([[...ids], options]);
      const text = ids
        .map((id) => words[id])
        .join("")
        .replaceAll("<half><other half>", "€")
        .replaceAll("<half>", "\ufffd")
        .replaceAll("<end>", "");
      return text.replaceAll("▁", " ").replace(/^ /, "");
    };
    return { detokenizer: createDetokenizer({ decode } as unknown as Tokenizer, false), asked };
  }

  it("gives what each token adds, and whole characters", () => {
    const { detokenizer, asked } = make();
    expect(say(detokenizer, [0, 1, 3, 4, 5, 0])).toEqual(["one", " two", "", "€", "", " one", ""]);
    expect(asked.every(([, options]) => JSON.stringify(options) === '{"skip_special_tokens":true}')).toBe(true);
    expect(asked.map(([ids]) => ids).slice(0, 3)).toEqual([[0], [0, 1], [0, 1, 3]]);
  });

  it("forgets what lies before the end of a line, and nothing else", () => {
    const { detokenizer, asked } = make();
    expect(say(detokenizer, [0, 2, 1, 6, 1])).toEqual(["one", "\n", " two", " x\n", " two", ""]);
    expect(asked.map(([ids]) => ids.length)).toEqual([1, 2, 1, 2, 3, 1, 2, 2]);
  });

  it("shows at the end what is incomplete, and may be used again", () => {
    const { detokenizer, asked } = make();
    expect(say(detokenizer, [0, 3])).toEqual(["one", "", "\ufffd"]);
    expect(say(detokenizer, [1])).toEqual(["two", ""]);
    asked.length = 0;
    expect(detokenizer.end()).toBe(""); // nothing to decode
    expect(asked).toEqual([]);
  });
});
