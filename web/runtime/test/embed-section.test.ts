import { describe, expect, it } from "vitest";
import { parseSection } from "../src/embed/section.js";

const SECTION = {
  dimensions: 4,
  max_length: 16,
  normalized: true,
  lowercase: false,
  prefixes: { query: "query: ", passage: "" },
  functions: [
    { name: "d", batch: 1, length: 16 },
    { name: "c", batch: 4, length: 8 },
    { name: "a", batch: 1, length: 8 },
    { name: "b", batch: 2, length: 8 },
  ],
};
const parse = (change: object = {}): ReturnType<typeof parseSection> => parseSection({ name: "tiny", embed: { ...SECTION, ...change } });

describe("the section of a manifest", () => {
  it("is read as it stands, the shapes by their size", () => {
    expect(parse()).toEqual({
      dimensions: 4,
      maxLength: 16,
      normalized: true,
      lowercase: false,
      prefixes: { query: "query: ", passage: "" },
      functions: [
        { name: "a", batch: 1, length: 8 },
        { name: "b", batch: 2, length: 8 },
        { name: "c", batch: 4, length: 8 },
        { name: "d", batch: 1, length: 16 },
      ],
      fill: null,
      logitScale: 1,
      logitBias: 0,
      pictures: null,
    });
    expect(parse({ normalized: false, lowercase: true, prefixes: { query: "", passage: "p" }, max_length: 3 })).toMatchObject({
      normalized: false,
      lowercase: true,
      prefixes: { query: "", passage: "p" },
      maxLength: 3,
    });
    const large = [{ name: "a", batch: 2 ** 20, length: 2 ** 20 }];
    expect(parse({ dimensions: 2 ** 20, max_length: 2 ** 20, functions: large }).functions).toEqual(large);
  });

  it.each<[object, string]>([
    [{ dimensions: 0 }, "dimensions: 0 is outside 1 … 1048576"],
    [{ dimensions: 2 ** 20 + 1 }, "dimensions: 1048577 is outside 1 … 1048576"],
    [{ max_length: 2 }, "max_length: 2 is outside 3 … 1048576"],
    [{ max_length: 17 }, "functions: texts of 17 tokens fit none of them"],
    [{ functions: [] }, "functions: texts of 16 tokens fit none of them"],
    [{ functions: {} }, "functions: must be a list"],
    [{ functions: [{ name: "", batch: 1, length: 16 }] }, "functions[0].name: must be a non-empty string"],
    [{ functions: [{ name: "a", batch: 0, length: 16 }] }, "functions[0].batch: 0 is outside 1 … 1048576"],
    [{ functions: [{ name: "a", batch: 1, length: 0 }] }, "functions[0].length: 0 is outside 1 … 1048576"],
    [{ normalized: 1 }, "normalized: must be true or false"],
    [{ lowercase: "no" }, "lowercase: must be true or false"],
    [{ prefixes: { query: 5, passage: "" } }, "prefixes.query: must be a string"],
    [{ prefixes: { query: "" } }, "prefixes.passage: must be a string"],
  ])("is refused with %j", (change, words) => {
    expect(() => parse(change)).toThrow(expect.objectContaining({ code: "bad-manifest", message: `manifest.json: embed.${words}` }));
  });

  it("belongs to bundles for embeddings", () => {
    for (const embed of [undefined, null]) {
      expect(() => parseSection({ name: "tiny", embed })).toThrow(
        expect.objectContaining({
          code: "bad-argument",
          message: "The bundle tiny is not for embeddings: load it with load() of tinyweb/load.",
        }),
      );
    }
  });
});
