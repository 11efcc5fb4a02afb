import { describe, expect, it } from "vitest";
import { fitMessages } from "../src/fit.js";
import type { Message } from "../src/tokenizer.js";

/** Roles by their first letter and a length: "s3 u2 a4". A token for each letter of the content. */
const talk = (text: string): Message[] => text.split(" ").filter(Boolean).map((word, i) => ({
  role: { s: "system", u: "user", a: "assistant", t: "tool" }[word[0] as string] as string, content: String(i).repeat(Number(word.slice(1))),
}));
const encode = (messages: readonly Message[]): number[] => messages.flatMap(({ content }) => [...content].map(Number));

/** What is left, as the messages' places, and how many were left out. */
function fit(text: string, context: number, maxTokens: number): [string, number] {
  const { ids, dropped } = fitMessages(talk(text), context, maxTokens, encode);
  return [[...new Set(ids)].join(""), dropped];
}

describe("a conversation", () => {
  it.each<[string, number, number, string, number]>([
    ["s5 u5 a5 u5", 100, 10, "0123", 0], // all fits
    ["s5 u5 a5 u5", 30, 10, "0123", 0], // exactly
    ["s5 u5 a5 u5", 29, 10, "03", 2], // a turn is a question and its answer
    ["s5 u5 a5 u5 a5 u5", 29, 4, "0345", 2],
    ["s5 s5 u5 a5 u5", 21, 4, "014", 2], // all system messages at the start stay
    ["u5 a5 s5 u5", 16, 4, "3", 3], // not those in between
    ["u5 a5 t5 u5 a5 u5", 20, 4, "345", 3], // to where the user speaks again
    ["u5 u5 u5", 14, 4, "12", 1],
    ["a5 a5 u5", 11, 4, "2", 2],
    ["s5", 10, 4, "0", 0],
    ["s5 s5", 10, 0, "01", 0],
  ])("%s in %i with room for %i", (text, context, room, left, dropped) => {
    expect(fit(text, context, room)).toEqual([left, dropped]);
  });

  it("keeps no more than half of the context free for the answer", () => {
    expect(fit("u20 a10 u20", 100, 1000)).toEqual(["012", 0]);
    expect(fit("u20 a10 u21", 100, 1000)).toEqual(["2", 2]);
    expect(fit("u20 a10 u20", 101, 1000)).toEqual(["012", 0]); // half of it is 50
  });

  it("takes a shorter answer where nothing else can go, but no less than sixteen tokens", () => {
    expect(fit("u9 a9 u84", 100, 40)).toEqual(["2", 2]);
    const full = (text: string, context: number, room: number): unknown => {
      try {
        return fit(text, context, room);
      } catch (error) {
        return error;
      }
    };
    expect(full("u9 a9 u85", 100, 40)).toMatchObject({
      code: "context-full", message: "The message is too long: it takes 85 tokens, and this model reads at most 100 including its answer.",
    });
    expect(full("u95", 100, 5)).toEqual(["0", 0]); // a short one was asked for
    expect(full("u96", 100, 5)).toMatchObject({ code: "context-full" });
    expect(full("s50 u40", 100, 40)).toMatchObject({ code: "context-full", message: expect.stringContaining("takes 90 tokens") });
  });

  it("of system messages alone is too long as a whole", () => {
    expect(() => fit("s50 s50", 100, 40)).toThrow(expect.objectContaining({ code: "context-full", message: expect.stringContaining("takes 100 tokens") }));
  });
});
