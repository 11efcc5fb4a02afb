/** Sentence embeddings: tokens as Python counts them, batches, passages, and what embed() makes of them. */

import { readFileSync } from "node:fs";
import { describe, expect, it, vi } from "vitest";
import type { FunctionModel } from "../src/client.js";
import { padBatch, planBatches } from "../src/embed/batches.js";
import { Embedder } from "../src/embed/embedder.js";
import { parseSection, type EmbedSection } from "../src/embed/section.js";
import { passagesOf, splitText } from "../src/embed/split.js";
import { TextTokenizer } from "../src/embed/tokenizer.js";
import type { Arrays } from "../src/function.js";

const read = (path: string): never => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8")) as never;
const MODEL = "../../../assets/models/tinyembed";

const SECTION = {
  dimensions: 4,
  max_length: 16,
  normalized: true,
  lowercase: false,
  prefixes: { query: "query: ", passage: "" },
  functions: [
    { name: "embed_1x16", batch: 1, length: 16 },
    { name: "embed_4x8", batch: 4, length: 8 },
    { name: "embed_1x8", batch: 1, length: 8 },
  ],
};
const section = (change: object = {}): EmbedSection => parseSection({ embed: { ...SECTION, ...change } });
const tokenizer = (change: object = {}): TextTokenizer =>
  new TextTokenizer(read(`${MODEL}/tokenizer.json`), read(`${MODEL}/tokenizer_config.json`), section(change));

describe("tokens", () => {
  it("are those of Python's tokenizer", () => {
    const long = tokenizer({ max_length: 512, functions: [{ name: "f", batch: 1, length: 512 }] });
    const fixtures: { text: string; ids: number[] }[] = read("./fixtures/embed-tokens.json");
    expect(fixtures.length).toBeGreaterThan(80);
    for (const { text, ids } of fixtures) expect(long.encode(text, "passage"), JSON.stringify(text)).toEqual(ids);
  });

  it("are cut so that the end token stays", () => {
    const text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen";
    const long = tokenizer({ max_length: 512, functions: [{ name: "f", batch: 1, length: 512 }] }).encode(text, "passage");
    expect([long.length, long[0], long.at(-1)]).toEqual([17, 2, 3]);
    expect(tokenizer().encode(text, "passage")).toEqual([...long.slice(0, 15), 3]);
    const exact = { max_length: 17, functions: [{ name: "f", batch: 1, length: 17 }] };
    expect(tokenizer(exact).encode(text, "passage")).toEqual(long);
    expect(tokenizer().count("one two three", "passage")).toBe(5);
  });

  it("fill a text where the model reads what fills it", () => {
    const filled = tokenizer({ fill: 7 });
    const ids = tokenizer().encode("one two", "passage");
    expect(filled.encode("one two", "passage")).toEqual([...ids, ...new Array<number>(16 - ids.length).fill(7)]);
    expect(filled.count("one two", "passage")).toBe(ids.length);
  });

  it("begin with the prefix of their kind", () => {
    const t = tokenizer();
    expect(t.encode("cats", "query")).toEqual(t.encode("query: cats", "passage"));
    const cased = { ...(read(`${MODEL}/tokenizer.json`) as object), normalizer: null };
    const of = (lowercase: boolean): TextTokenizer =>
      new TextTokenizer(cased, read(`${MODEL}/tokenizer_config.json`), section({ lowercase }));
    expect(of(false).encode("CATS", "query")).not.toEqual(of(false).encode("cats", "query"));
    expect(of(true).encode("CATS", "query")).toEqual(of(false).encode("cats", "query"));
  });

  it("need a tokenizer", () => {
    expect(() => new TextTokenizer({ model: 3 }, {}, section())).toThrow(
      expect.objectContaining({ code: "bad-manifest", message: expect.stringContaining("tokenizer of this model") }),
    );
  });
});

describe("the section of the manifest", () => {
  it("is sorted and checked", () => {
    expect(section().functions.map(({ name }) => name)).toEqual(["embed_1x8", "embed_4x8", "embed_1x16"]);
    expect(() => section({ dimensions: 0 })).toThrowError(/embed\.dimensions/u);
    expect(() => section({ prefixes: { query: 1, passage: "" } })).toThrowError(/prefixes\.query.*must be a string/u);
    expect(() => section({ functions: "none" })).toThrowError(/functions/u);
    expect(() => parseSection({ name: "tiny", functions: {} })).toThrow(expect.objectContaining({ code: "bad-argument" }));
    expect(() => section({ functions: [] })).toThrowError(/fit none/u);
    expect(() => section({ max_length: 17 })).toThrowError(/fit none/u);
    expect(() => parseSection({ name: "tiny", functions: {} })).toThrowError(/tiny is not for embeddings: load it with load\(\)/u);
  });
});

describe("batches", () => {
  it("hold texts of similar length, each once", () => {
    const lengths = [3, 16, 8, 5, 9, 4, 2, 7];
    const batches = planBatches(lengths, section().functions);
    expect(batches.flatMap(({ texts }) => texts).sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    for (const { run, texts } of batches) {
      expect(texts.length).toBeLessThanOrEqual(run.batch);
      for (const i of texts) expect(lengths[i]).toBeLessThanOrEqual(run.length);
    }
    expect(batches.map(({ run }) => run.name)).toEqual(["embed_4x8", "embed_1x8", "embed_1x8", "embed_1x16", "embed_1x16"]);
    expect(planBatches([], section().functions)).toEqual([]);
  });

  it("are padded on the right", () => {
    expect(padBatch({ name: "", batch: 2, length: 3 }, [[5, 6]])).toEqual({
      ids: Int32Array.of(5, 6, 0, 0, 0, 0),
      lengths: Int32Array.of(2, 1),
    });
  });
});

/** A model whose vector is (sum of the ids, tokens, 0, 0). */
function pretended(calls: string[] = []): FunctionModel {
  const run = (inputs: Arrays, { function: name = "", signal }: { function?: string; signal?: AbortSignal }): Promise<Arrays> => {
    if (signal?.aborted) return Promise.reject(new Error("aborted"));
    calls.push(name);
    const { ids, lengths } = inputs as { ids: Int32Array; lengths: Int32Array };
    const output = new Float32Array(4 * lengths.length);
    lengths.forEach((n, i) => {
      const length = ids.length / lengths.length;
      output[4 * i] = ids.slice(i * length, i * length + n).reduce((a, b) => a + b, 0);
      output[4 * i + 1] = n;
    });
    return Promise.resolve({ output });
  };
  return { run, info: { model: "m", functions: {}, sections: {} } } as unknown as FunctionModel;
}

describe("embed", () => {
  const texts = ["one", "two words", "three words here", "a text that is a good deal longer than the others are", "five", "six"];

  it("gives a vector of length 1 for each text, in their order", async () => {
    const calls: string[] = [];
    const embedder = new Embedder(pretended(calls), tokenizer(), section());
    const vectors = await embedder.embed(texts);
    expect(vectors).toHaveLength(6);
    for (const [i, text] of texts.entries()) {
      const ids = tokenizer().encode(text, "passage");
      const [x, y] = [ids.reduce((a, b) => a + b, 0), ids.length];
      expect(vectors[i]?.[0]).toBeCloseTo(x / Math.hypot(x, y), 5);
      expect(vectors[i]?.[1]).toBeCloseTo(y / Math.hypot(x, y), 5);
    }
    expect(calls).toEqual(["embed_4x8", "embed_1x8", "embed_1x16"]);
    expect(embedder.info).toMatchObject({ dimensions: 4, maxLength: 16 });
    expect(await embedder.embed([])).toEqual([]);
  });

  it("tells how far it is, and gives out what it has", async () => {
    const seen: number[] = [];
    const progress: [number, number][] = [];
    const embedder = new Embedder(pretended(), tokenizer(), section());
    const vectors = await embedder.embed(texts, {
      onVector: (index) => seen.push(index),
      onProgress: ({ done, total, secondsLeft }) => {
        progress.push([done, total]);
        expect(secondsLeft).toBeGreaterThanOrEqual(0);
      },
    });
    expect(seen.sort()).toEqual([0, 1, 2, 3, 4, 5]);
    expect(progress).toEqual([
      [4, 6],
      [5, 6],
      [6, 6],
    ]);
    expect(vectors.every((v) => v.length === 4)).toBe(true);
  });

  it("estimates the rest by what the shapes cost", async () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    try {
      const model = pretended();
      const run = model.run.bind(model);
      model.run = (...given) => {
        vi.advanceTimersByTime(1000);
        return run(...given);
      };
      const seen: (number | undefined)[] = [];
      await new Embedder(model, tokenizer(), section()).embed(texts, { onProgress: ({ secondsLeft }) => seen.push(secondsLeft) });
      // 4 × 8, 1 × 8 and 1 × 16 tokens
      [24 / 32, (2 * 16) / 40, 0].forEach((seconds, i) => expect(seen[i]).toBeCloseTo(seconds, 6));
      expect(seen).toHaveLength(3);
    } finally {
      vi.useRealTimers();
    }
  });

  it("hands each batch on with its function and signal, and keeps zeros as they are", async () => {
    const given: unknown[] = [];
    const model = pretended();
    model.run = (async (_inputs: Arrays, options: unknown) => (given.push(options), { output: new Float32Array(16) })) as never;
    const embedder = new Embedder(model, tokenizer(), section());
    const { signal } = new AbortController();
    expect(await embedder.embed(["a"], { signal })).toEqual([new Float32Array(4)]);
    await embedder.embed(["a"]);
    expect(given).toEqual([{ function: "embed_1x8", signal }, { function: "embed_1x8" }]);
  });

  it("reads queries with their prefix, and counts tokens", async () => {
    const rows: number[][] = [];
    const model = pretended();
    const run = model.run.bind(model);
    model.run = (inputs, options) => (rows.push([...(inputs["ids"] as Int32Array)]), run(inputs, options));
    const embedder = new Embedder(model, tokenizer(), section());
    await embedder.embed(["cats"], { kind: "query" });
    const ids = tokenizer().encode("cats", "query");
    expect(rows[0]?.slice(0, ids.length)).toEqual(ids);
    expect(embedder.countTokens("cats", "query")).toBe(ids.length);
    expect(embedder.countTokens("cats")).toBe(tokenizer().encode("cats", "passage").length);
    expect(() => embedder.countTokens(5 as never)).toThrow("The text must be a string, not 5.");
    const none = embedder.countTokens("");
    const long = "one two three four five six seven eight nine ten ".repeat(9);
    const passages = embedder.split(long, { overlap: 0 });
    expect(passages.length).toBeGreaterThan(3);
    for (const { text } of passages) expect(embedder.countTokens(text)).toBeLessThanOrEqual(16);
    expect(Math.max(...passages.map(({ text }) => embedder.countTokens(text)))).toBeGreaterThan(16 / 2);
    for (const { text } of embedder.split(long, { size: 5, overlap: 0 })) expect(embedder.countTokens(text) - none).toBeLessThanOrEqual(5);
  });

  it("stops", async () => {
    const stop = new AbortController();
    const embedder = new Embedder(pretended(), tokenizer(), section());
    const run = embedder.embed(texts, { signal: stop.signal, onProgress: () => stop.abort() });
    await expect(run).rejects.toThrowError(/abort/u);
    await expect(embedder.embed(texts, { signal: stop.signal })).rejects.toMatchObject({ code: "aborted" });
  });

  it("refuses what is no list of texts", async () => {
    const embedder = new Embedder(pretended(), tokenizer(), section());
    await expect(embedder.embed("text" as never)).rejects.toMatchObject({ code: "bad-argument" });
    await expect(embedder.embed(["a", 3] as never)).rejects.toThrowError(/number 1/u);
    await expect(embedder.embed(["a"], { kind: "title" as never })).rejects.toMatchObject({ code: "bad-argument" });
  });
});

describe("splitText", () => {
  const words = (text: string): number => text.split(/\s+/u).filter(Boolean).length;
  const TEXT = [
    "Bread needs time. Knead the dough, and let it rest for an hour! Is it larger now?",
    "Then bake it. The oven should be hot.",
    "- flour\n- water\n- salt",
  ].join("\n\n");

  it("refuses what is no text, and sizes that cannot be", () => {
    expect(() => splitText(undefined as never)).toThrowError(/must be a string, not undefined/u);
    expect(() => splitText("a", { size: 0 })).toThrowError(/size must be a number of at least 1, not 0/u);
    expect(() => splitText("a", { overlap: NaN })).toThrowError(/overlap must be/u);
  });

  it("keeps a short text whole, and an empty one away", () => {
    expect(splitText("One sentence.")).toEqual([{ start: 0, end: 13, text: "One sentence." }]);
    expect(splitText(" \n\n\t ")).toEqual([]);
  });

  it("cuts at sentences, says all, and overlaps", () => {
    const passages = splitText(TEXT, { size: 12, overlap: 4 });
    for (const { start, end, text } of passages) {
      expect(text).toBe(TEXT.slice(start, end));
      expect(words(text)).toBeLessThanOrEqual(12);
    }
    expect(passages[0]?.text).toBe("Bread needs time.");
    expect(splitText(TEXT, { size: 110 }).map(({ text }) => text.split(" ", 1)[0])).toEqual(["Bread", "Then"]); // the list is short
    const covered = new Set(passages.flatMap(({ start, end }) => Array.from({ length: end - start }, (_, i) => start + i)));
    for (const [i, c] of [...TEXT].entries()) if (/\S/u.test(c)) expect(covered.has(i), `${i} ${c}`).toBe(true);
  });

  it("repeats the last sentences of a passage in the next", () => {
    const text = Array.from({ length: 9 }, (_, i) => `Sentence number ${i} is here.`).join(" ");
    const passages = splitText(text, { size: 20, overlap: 5 });
    expect(passages.length).toBe(3);
    expect(passages[1]?.text.startsWith("Sentence number 3 is here.")).toBe(true);
    expect(splitText(text, { size: 20, overlap: 0 })[1]?.text.startsWith("Sentence number 4")).toBe(true);
  });

  it("cuts sentences that are too long between words, and words without spaces anywhere", () => {
    const short = splitText("a ".repeat(50), { size: 10, overlap: 0 });
    const counts = short.map(({ text }) => words(text));
    expect(Math.max(...counts)).toBeLessThanOrEqual(10);
    expect(counts.reduce((a, b) => a + b, 0)).toBe(50);
    const long = "漢𠀀".repeat(40);
    const passages = splitText(long, { size: 20, overlap: 0, measure: (text) => [...text].length });
    expect(passages.map(({ text }) => text).join("")).toBe(long);
    expect(passages.length).toBeGreaterThanOrEqual(4);
    expect(passages.every(({ text }) => [...text].length <= 20 && !text.includes("\ufffd"))).toBe(true);
  });

  it("takes long texts quickly", () => {
    const text = "The same sentence stands here again. ".repeat(20_000);
    const passages = splitText(text);
    expect(passages.length).toBeGreaterThan(1000);
  });

  it("reads a text without sentences or paragraphs only a few times", () => {
    let read = 0;
    const measure = (text: string): number => ((read += text.length), text.split(/\s+/u).filter(Boolean).length);
    const text = "word ".repeat(100_000);
    const passages = splitText(text, { size: 50, measure });
    expect(passages.length).toBeGreaterThanOrEqual(2000);
    expect(passages.every((passage) => words(passage.text) <= 50)).toBe(true);
    expect(read).toBeLessThan(8 * text.length);
    const unbroken = splitText("x".repeat(100_000), { size: 50, measure: (t) => t.length });
    expect(unbroken.length).toBeGreaterThanOrEqual(2000);
    expect(unbroken.every((passage) => passage.text.length <= 50)).toBe(true);
  });

  it("makes passages when they are asked for", () => {
    let read = 0;
    const passages = passagesOf("A sentence. ".repeat(1000), { size: 4, overlap: 0, measure: (text) => ((read += 1), words(text)) });
    expect(passages.next().value?.text).toBe("A sentence. A sentence.");
    expect(read).toBeLessThan(10);
  });
});
