import { readFileSync } from "node:fs";
import { describe, expect, it, onTestFinished } from "vitest";
import { ControlTokens } from "../src/control-tokens.js";
import { Pieces } from "../src/pieces.js";
import { readTokenizer } from "../src/read-tokenizer.js";
import { Merges, Vocabulary } from "../src/vocabulary.js";

type Json = Record<string, any>;

const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
const written = (content: unknown): Json => readTokenizer(bytes(JSON.stringify(content))) as Json;
const file = (name: string): string => readFileSync(new URL(`../../../assets/models/${name}/tokenizer.json`, import.meta.url), "utf8");

const TEXTS = ["Hello there, world!", "  two  spaces\n\n\ttabs", "naïve café — ½ €", "日本語 👩‍👩‍👧‍👦", "1234 aaaa", "<|user|> </s>", ""];

describe("tables of a tokenizer.json", () => {
  it.each(["tinychat-7m", "tinyembed"])("give the library's ids for %s", (name) => {
    const text = file(name);
    const content = readTokenizer(bytes(text)) as Json;
    expect(content["model"].vocab).toBeInstanceOf(Vocabulary);
    const [own, library] = [content, JSON.parse(text) as Json].map((json) => new ControlTokens(json).tokenizer(json, {}));
    for (const one of TEXTS) expect(own?.encode(one)).toEqual(library?.encode(one));
    const ids = Object.values((JSON.parse(text) as Json)["model"].vocab as Record<string, number>);
    for (const id of [...ids, ids.length + 1000]) expect(own?.id_to_token(id)).toBe(library?.id_to_token(id));
    expect(own?.decode(ids.slice(0, 300))).toBe(library?.decode(ids.slice(0, 300)));
    expect(own?.token_to_id("nothing like it")).toBeUndefined();
  });

  const letters = ["a", "b", "c", "é", "\ufeff", '"', "\\", "🦊", "\u0001\n", "<0x0A>", "?"];
  const pairs = [
    ["a", "b"],
    ["ab", "c"],
    ["é", "🦊"],
    ["b", "c"],
    ['"', "\\"],
    ["\ufeff", "a"],
    ["ab", "ab"],
    ["a", "b"],
  ] as const;
  const words = [...new Set([...letters, ...pairs.map((pair) => pair.join(""))])];
  const bpe = (merges: unknown, more: object = {}): Json => ({
    added_tokens: [{ id: 90, content: "bc", special: true }],
    model: { type: "BPE", unk_token: "?", vocab: Object.fromEntries(words.map((word, i) => [word, 3 * i])), merges, ...more },
  });

  it.each([
    ["lists", bpe(pairs)],
    ["texts", bpe(pairs.map((pair) => pair.join(" ")))],
    ["bytes of what is unknown", bpe(pairs, { byte_fallback: true })],
    ["words as they are", bpe(pairs, { ignore_merges: true })],
    ["suffixes", bpe([["b", "a</w>"]], { end_of_word_suffix: "</w>", vocab: { a: 0, b: 1, "a</w>": 2, "ba</w>": 3, "?": 4 } })],
  ])("give the library's ids for merges as %s", (_name, json) => {
    const [own, library] = [written(json), json].map((content) => new ControlTokens(content).tokenizer(content, {}));
    let state = 1;
    for (let i = 0; i < 200; i++) {
      const text = Array.from({ length: i % 12 }, () => [...letters, "z", "\n", "bc"][(state = (state * 48271) % 2147483647) % 14]).join(
        "",
      );
      expect(own?.encode(text), JSON.stringify(text)).toEqual(library?.encode(text));
    }
  });

  const likely = (pieces: readonly string[], more: Json = {}, added: Json[] = []): Json => ({
    added_tokens: [{ id: 1, content: "</s>", special: true }, ...added],
    pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "always" },
    model: { type: "Unigram", unk_id: 0, vocab: pieces.map((piece, i) => [piece, -((i * 37) % 11) - i / 8]), ...more },
  });
  const several = ["<unk>", "</s>", "▁", "a", "b", "ab", "▁ab", "aba", "é", "日本", "日", "🦊", "🦊a", "<", "s>", "/", "bb", "ab", '"\\'];

  it.each([
    ["as they are", likely(several)],
    ["without what is unknown", likely([...several, ...'bz\n "\\'], { unk_id: null })],
    [
      "with others of the same text",
      likely(several, {}, [
        { id: 40, content: "aba" },
        { id: 19, content: "zz" },
      ]),
    ],
    ["of one piece", likely(["<unk>"])],
  ])("give the library's ids for pieces %s", (_name, json) => {
    const content = written(json);
    expect(content["model"].vocab).toBeInstanceOf(Pieces);
    const [own, library] = [content, json].map((given) => new ControlTokens(given).tokenizer(given, { eos_token: "</s>" }));
    let state = 1;
    const letters = [...'ab é日本🦊</s>"\\z', "</s>", "aba", "zz"];
    for (let i = 0; i < 300; i++) {
      const text = Array.from({ length: i % 14 }, () => letters[(state = (state * 48271) % 2147483647) % letters.length]).join("");
      expect(own?.encode(text), JSON.stringify(text)).toEqual(library?.encode(text));
    }
    for (let id = 0; id < 50; id++) expect(own?.id_to_token(id), String(id)).toBe(library?.id_to_token(id));
    expect(own?.decode([3, 5, 9, 11])).toBe(library?.decode([3, 5, 9, 11]));
  });

  it("keep what is beside them", () => {
    const json = { version: "1.0", ...bpe(["a b"], { dropout: null }), normalizer: { type: "Replace", content: '"}{[' } };
    const content = written(json);
    expect(content["model"].merges).toBeInstanceOf(Merges);
    const plain = (given: Json): Json => ({ ...given, model: { ...given["model"], vocab: 0, merges: 0 } });
    expect(plain(content)).toEqual(plain(json));
  });

  it("are for words with ids: other models stay as they are", () => {
    for (const json of [
      { model: { type: "Unigram", vocab: {} } },
      { model: { type: "WordLevel", vocab: { a: 0 } } },
      { model: 3 },
      null,
      [{ model: { vocab: {} } }],
    ])
      expect(written(json)).toEqual(json);
  });

  it("are searched in a few steps, also where all words or pairs are alike", () => {
    const own = Vocabulary.prototype as unknown as { equals(...given: unknown[]): boolean };
    const { equals } = own;
    let steps = 0;
    own.equals = function (...given) {
      steps += 1;
      return equals.apply(this, given);
    };
    onTestFinished(() => {
      own.equals = equals;
    });
    const characters = Array.from({ length: 2000 }, (_, i) => String.fromCharCode(0x4e00 + i));
    const vocab = Object.fromEntries(characters.map((word, i) => [word, i]));
    const merges = characters.slice(0, 100).flatMap((left) => characters.slice(0, 100).map((right) => [left, right]));
    const content = written({ model: { type: "BPE", vocab, merges } });
    characters.forEach((word, i) => expect(content["model"].vocab.id(word)).toBe(i));
    merges.forEach(([left, right], i) =>
      expect((content["model"].merges as Merges).rank(vocab[left as string], vocab[right as string])).toBe(i),
    );
    expect(steps).toBeLessThan(3 * (characters.length + 2 * merges.length));
  });

  const damaged = (text: string): unknown => {
    try {
      return readTokenizer(bytes(text));
    } catch (error) {
      return error;
    }
  };

  it("say what is wrong", () => {
    for (const vocab of [
      '{"a":-1}',
      '{"a":1.5}',
      '{"a":1e3}',
      '{"a":99999999999}',
      '{"a":20000000}',
      '{"a":"1"}',
      '{"a":null}',
      '{"a":}',
      '{"a":1,}',
      '{"a" 1}',
      "{a:1}",
    ])
      expect(damaged(`{"model":{"type":"BPE","vocab":${vocab},"merges":[]}}`), vocab).toBeInstanceOf(SyntaxError);
    for (const merges of ['["a b","a c"]', '["ab"]', '[["a"]]', '[["a","a","a"]]', "[3]", '["a b",]', "[,]"])
      expect(damaged(`{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":${merges}}}`), merges).toBeInstanceOf(SyntaxError);
  });

  it("say what is wrong with pieces", () => {
    for (const vocab of [
      '["a",1]',
      '[["a"]]',
      '[["a",1,2]]',
      '[[1,"a"]]',
      '[["a","b"]]',
      '[["a",1e999]]',
      '[["a",null]]',
      '[["a",01]]',
      "[]",
      "[3]",
    ])
      expect(damaged(`{"model":{"type":"Unigram","unk_id":0,"vocab":${vocab}}}`), vocab).toBeInstanceOf(SyntaxError);
  });

  it.each([bpe(pairs), likely(several)])("end with a cut file", (json) => {
    const text = JSON.stringify(json);
    for (let end = 0; end < text.length; end++) expect(damaged(text.slice(0, end)), text.slice(0, end)).toBeInstanceOf(SyntaxError);
  });
});
