import { describe, expect, it } from "vitest";
import { Stops } from "../src/openai/stops.js";

describe("stop sequences", () => {
  it.each([
    [["END"], ["one EN", "D two"], "one "],
    [["END"], ["one E", "N", "EN", "Dx"], "one EN"],
    [["\n\n", "User:"], ["a\n", "b\n", "\nc"], "a\nb"],
    [["aab"], ["a", "a", "a", "b"], "a"],
    [["no"], ["n", "n", "n"], "nnn"],
    [[], ["a", "b"], "ab"],
  ])("%j in %j leaves %j", (sequences, pieces, left) => {
    const stops = new Stops(sequences);
    const out = pieces.map((piece) => stops.push(piece)).join("") + stops.end();
    expect(out).toBe(left);
  });
});

it("stop sequences hold back what may begin one, and nothing else", () => {
  let state = 1;
  const random = (below: number): number => (state = (state * 48271) % 2147483647) % below;
  const word = (length: number): string => Array.from({ length }, () => "abc"[random(3)]).join("");
  let found = 0;
  for (let round = 0; round < 300; round++) {
    const sequences = Array.from({ length: 1 + random(3) }, () => word(1 + random(4)));
    const stops = new Stops(sequences);
    let [told, out] = ["", ""];
    for (let piece = 0; piece < 8; piece++) {
      const text = word(random(3));
      if (!stops.found) told += text;
      out += stops.push(text);
      const starts = sequences.map((sequence) => told.indexOf(sequence)).filter((start) => start >= 0);
      const ends = Array.from({ length: told.length }, (_, i) => i).filter((i) =>
        sequences.some((sequence) => sequence.startsWith(told.slice(i))),
      );
      expect(out, JSON.stringify([sequences, told])).toBe(
        told.slice(0, starts.length > 0 ? Math.min(...starts) : (ends[0] ?? told.length)),
      );
      expect(stops.found).toBe(starts.length > 0);
    }
    const rest = stops.end();
    if (stops.found) expect(rest).toBe("");
    else expect(out + rest).toBe(told);
    found += Number(stops.found);
  }
  expect(found).toBeGreaterThan(50);
  expect(found).toBeLessThan(300);
});

it("nothing comes out behind a sequence that was found, however much follows", () => {
  const stops = new Stops(["END"]);
  expect(stops.push("a END b")).toBe("a ");
  expect([stops.push("c"), stops.push("END"), stops.end()]).toEqual(["", "", ""]);
});
