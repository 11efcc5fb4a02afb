/** Passages: where texts are cut, by small cases, and by what holds of every text. */

import { describe, expect, it } from "vitest";
import { checkText, passagesOf, splitText, type SplitOptions } from "../src/embed/split.js";

const words = (text: string): number => text.split(/\s+/u).filter(Boolean).length;
const letters = (text: string): number => text.length;
const split = (text: string, options?: SplitOptions): string[] => splitText(text, options).map((passage) => passage.text);

describe("passages", () => {
  it.each<[string, SplitOptions, string[]]>([
    ["a. b. c. d.", { size: 2, overlap: 0 }, ["a. b.", "c. d."]],
    ["a. b. c. d.", { size: 2, overlap: 1 }, ["a. b.", "b. c.", "c. d."]],
    ["a. b. c. d.", { size: 2, overlap: 9 }, ["a. b.", "b. c.", "c. d."]], // always something new
    ["a a. b b. c c c.", { size: 5, overlap: 2 }, ["a a. b b.", "b b. c c c."]],
    ["a a. b b. c c c c.", { size: 5, overlap: 2 }, ["a a. b b.", "c c c c."]], // no room for what is said again
    ["a. b b. c.", { size: 3, overlap: 1 }, ["a. b b.", "c."]], // longer than may be said again
    ["A b c.\n\nD e f.", { size: 10 }, ["A b c.", "D e f."]], // with its paragraph
    ["A\n\nd e f.", { size: 20 }, ["A\n\nd e f."]], // a heading stays with what follows
    ["A b\n\nd e f.", { size: 20 }, ["A b", "d e f."]], // a tenth is enough
    ["a b c d e", { size: 2, overlap: 0 }, ["a b", "c", "d e"]], // by halves
    ["  a.  b.  \n ", { size: 9 }, ["a.  b."]],
  ])("%j by %j", (text, options, passages) => {
    expect(split(text, options)).toEqual(passages);
    expect([...passagesOf(text, options)]).toEqual(splitText(text, options));
  });

  it.each<[string, string[]]>([
    ["Is it? Yes! No… So.", ["Is it?", "Yes!", "No…", "So."]],
    ['He said "No." She did (so.) ‘A.’ “B!” [c.] d.', ['He said "No."', "She did (so.)", "‘A.’", "“B!”", "[c.]", "d."]],
    ["Of 3.5 m, e.g. here.", ["Of 3.5 m, e.g.", "here."]],
    ["一。二！三？「四。」五", ["一。", "二！", "三？", "「四。」", "五"]],
    [
      "list:\n- a\n* b\n• c\n# d\n| e\n1. f\n2) g\n  - h\nmore",
      ["list:", "- a", "* b", "• c", "# d", "| e", "1.", "f", "2) g", "- h\nmore"],
    ],
    ["a\n\nb\n \t\nc\r\n\r\nd\n\n\n\ne\nf", ["a", "b", "c", "d", "e\nf"]],
    ["End.\n\n", ["End."]],
    ["What?! Well... fine.", ["What?!", "Well...", "fine."]],
  ])("sentences of %j", (text, sentences) => {
    // each measures as much as fits
    expect(split(text, { size: 10, overlap: 0, measure: () => 10 })).toEqual(
      sentences.flatMap((s) => (s.length < 2 ? [s] : split(s, { size: 10, overlap: 0, measure: () => 10 }))),
    );
    expect(split(text, { size: 10, overlap: 0, measure: () => 10 })).toEqual(sentences);
  });

  it("have a size of 120 words, of which a sixth is said again", () => {
    const text = Array.from({ length: 400 }, (_, i) => `Number ${i}.`).join(" ");
    const passages = splitText(text);
    expect(passages[0]).toMatchObject({ start: 0 });
    expect(
      passages
        .map((passage) => words(passage.text))
        .slice(0, -1)
        .every((n) => n === 120),
    ).toBe(true);
    expect(passages[1]?.text.startsWith("Number 50.")).toBe(true); // of 60 sentences ten
    expect(split(text, { size: 20 })[1]?.startsWith("Number 9.")).toBe(true); // three words: one of two
  });

  it("of a sentence without end are cut at the word next to the middle, and between letters where there is none", () => {
    const by = (text: string, size: number): string[] => split(text, { size, overlap: 0, measure: letters });
    expect(by("aaaa bb", 5)).toEqual(["aaaa", "bb"]);
    expect(by("aa bbbb", 5)).toEqual(["aa", "bbbb"]);
    expect(by("a bbb c", 5)).toEqual(["a", "bbb c"]); // the nearer begin, of two the first
    expect(by("abcdefgh", 4)).toEqual(["abcd", "efgh"]);
    expect(by("abcdefghi", 3)).toEqual(["ab", "cd", "ef", "ghi"]);
    expect(by("ab", 1)).toEqual(["a", "b"]);
    expect(split("a", { size: 1, measure: () => 5 })).toEqual(["a"]); // what cannot be cut
    const far = `${"x".repeat(1200)} y`;
    expect(by(far, 1200)[0]).toHaveLength(1200);
    expect(by(`${"x".repeat(3000)} y`, 1600)[0]).toHaveLength(1501); // no word is looked for so far away
    expect(by("😀😀😀", 2)).toEqual(["😀", "😀", "😀"]); // never half of a character
    expect(by("a😀b", 3)).toEqual(["a😀", "b"]);
  });

  it("say all of a text in order, and are never too long", () => {
    let state = 7;
    const random = (below: number): number => (state = (state * 48271) % 2147483647) % below;
    const parts = ["a", "bb", "ccc", " ", " ", ". ", "! ", "\n", "\n\n", "\n- ", "é", "漢字。", "😀", "\t", '." '];
    for (let round = 0; round < 150; round++) {
      const text = Array.from({ length: 1 + random(60) }, () => parts[random(parts.length)]).join("");
      const size = 2 + random(12);
      const overlap = random(4);
      const measure = [words, letters][random(2)] as typeof words;
      const passages = splitText(text, { size, overlap, measure });
      let [told, before] = ["", { start: -1, end: 0 }];
      for (const { start, end, text: said } of passages) {
        expect(said).toBe(text.slice(start, end));
        expect(said).toBe(said.trim());
        expect([...said].every((c) => !/^[\ud800-\udfff]$/u.test(c))).toBe(true);
        expect(start > before.start && end > before.end, JSON.stringify([text, size, overlap])).toBe(true);
        told += text.slice(Math.max(before.end, start), end);
        expect(text.slice(before.end, Math.max(before.end, start)).trim()).toBe("");
        if (measure === words) expect(words(said)).toBeLessThanOrEqual(size);
        before = { start, end };
      }
      expect(told.replace(/\s/gu, "")).toBe(text.replace(/\s/gu, ""));
    }
  });

  it("are measured little where a text has no sentences", () => {
    let read = 0;
    const measure = (text: string): number => ((read += text.length), text.length);
    splitText("word ".repeat(20_000), { size: 50, overlap: 0, measure });
    expect(read).toBeLessThan(8 * 100_000); // not the whole text for each of its halves
    const seen: number[] = [];
    splitText("x".repeat(641), { size: 10, measure: (text) => (seen.push(text.length), text.length) });
    expect(Math.max(...seen)).toBeLessThan(640);
    seen.length = 0;
    splitText("x".repeat(640), { size: 10, measure: (text) => (seen.push(text.length), text.length) });
    expect(Math.max(...seen)).toBe(640);
  });

  it.each<[string, () => unknown, string]>([
    ["no text", () => splitText(5 as never), "The text must be a string, not 5."],
    ["no text", () => checkText(null), "The text must be a string, not null."],
    ["no room", () => splitText("a", { size: 0.5 }), "size must be a number of at least 1, not 0.5."],
    ["less than nothing", () => splitText("a", { overlap: -1 }), "overlap must be a number of at least 0, not -1."],
    ["nothing to measure with", () => splitText("a", { measure: 5 as never }), "measure must be a function, not 5."],
    ["no options", () => splitText("a", 5 as never), "The options of splitText() must be an object, such as { signal }, not 5."],
  ])("need %s", (_name, call, words) => {
    expect(call).toThrow(expect.objectContaining({ code: "bad-argument", message: words }));
    expect(splitText("a", { size: 1, overlap: 0 })).toEqual([{ start: 0, end: 1, text: "a" }]);
  });
});
