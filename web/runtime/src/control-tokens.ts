/**
 * Text that only looks like a control token stays text: who writes a message cannot end a turn, or begin one.
 *
 * A tokenizer recognises its control tokens wherever their text stands, in what a template writes and in what a user does. `guard`
 * therefore puts a mark, a character that no text has, into what looks like one, and the tokenizer gets a pre-tokenizer that takes the
 * mark out again after control tokens have been recognised. (Not a normalizer, as in Python: this library looks for them behind those.)
 */

import { Tokenizer } from "@huggingface/tokenizers";
import { boundSearch } from "./longest-match.js";
import { givePieces, Pieces, STAND_IN } from "./pieces.js";
import { giveTables, Merges, Vocabulary } from "./vocabulary.js";

/** A noncharacter: not for interchange (Unicode, 23.7). */
const MARK = "\ufdd0";
/** Control tokens that some models do not call special. */
const BETWEEN_BARS = /^<[|｜].+[|｜]>$/su;

/** What tokenizer.json may leave out, and the tokenizer library asks for. */
const ABSENT: Json = { added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };

type Json = Record<string, unknown>;
interface Added extends Json {
  content: string;
  special?: boolean;
}

/** Those that a tokenizer.json calls special, and what is written as they are, <|…|>. One of a single character cannot be told from text. */
export class ControlTokens {
  private readonly texts: Set<string>;
  private readonly byFirst = new Map<string, string[]>();

  /** @param content of tokenizer.json, which is not kept: that of a large vocabulary takes tens of MB */
  constructor(content: Json) {
    const added = (content["added_tokens"] ?? []) as Added[];
    this.texts = new Set(
      added.filter(({ content: text, special }) => text.length > 1 && (special || BETWEEN_BARS.test(text))).map((token) => token.content),
    );
    for (const text of this.texts) this.byFirst.set(text.charAt(0), [...(this.byFirst.get(text.charAt(0)) ?? []), text]);
  }

  /** The text with a mark in all that looks like a control token, or at the end like the beginning of one. */
  guard(given: string): string {
    const text = given.replaceAll(MARK, "");
    let out = "";
    for (let at = 0; at < text.length; at++) {
      const first = text.charAt(at);
      const same = this.byFirst
        .get(first)
        ?.some((token) => text.startsWith(token, at) || token.startsWith(text.slice(at, at + token.length)));
      out += same ? first + MARK : first;
    }
    return out;
  }

  /** The tokenizer of `content`, the same as at first. @param config content of tokenizer_config.json */
  tokenizer(content: Json, config: Json): Tokenizer {
    const guarded = this.guarded(content);
    const model = { ...(guarded["model"] as Json) };
    const { vocab, merges } = model;
    const own = vocab instanceof Vocabulary;
    if (own) Object.assign(model, { vocab: vocab instanceof Pieces ? [[STAND_IN, 0]] : {}, merges: [] });
    const made = new Tokenizer({ ...ABSENT, ...guarded, model }, config);
    if (vocab instanceof Pieces) givePieces(made, vocab, model["unk_id"] as number | null | undefined);
    if (own) giveTables(made, vocab, merges as Merges | undefined);
    boundSearch(made, { ...model, vocab });
    // It has made tables of these, and would keep them too: half of its memory.
    for (const kept of [model, made.model as unknown as Json]) delete kept["merges"];
    delete model["vocab"];
    return made;
  }

  /** The tokenizer.json for texts with marks; texts without get the same ids as before. */
  guarded(content: Json): Json {
    const { texts } = this;
    const model = { ...(content["model"] as Json) };
    if (model["type"] === "WordLevel") return content; // a word with a mark in it is an unknown one, which is what a look-alike should be
    // no merge makes a control token
    if (model["merges"] instanceof Merges) {
      const vocab = model["vocab"] as Vocabulary;
      for (const text of texts) {
        for (let i = 1; i < text.length; i++) model["merges"].drop(vocab.id(text.slice(0, i)), vocab.id(text.slice(i)));
      }
    } else if (Array.isArray(model["merges"])) {
      model["merges"] = (model["merges"] as (string | string[])[]).filter(
        (merge) => !texts.has(typeof merge === "string" ? merge.replace(" ", "") : merge.join("")),
      );
    } else if (model["vocab"] instanceof Pieces) {
      const { scores } = model["vocab"];
      const least = Math.min(0, model["vocab"].least);
      for (const text of texts) {
        const id = model["vocab"].id(text);
        if (id !== undefined) scores[id] = least * text.length - 1;
      }
    } else if (Array.isArray(model["vocab"])) {
      // nor is one more likely than its letters
      const vocab = model["vocab"] as [string, number][];
      const least = vocab.reduce((low, [, score]) => Math.min(low, score), 0);
      model["vocab"] = vocab.map(([piece, score]) => [piece, texts.has(piece) ? least * piece.length - 1 : score]);
    }
    const remove = { type: "Replace", pattern: { String: MARK }, content: "" };
    const after = content["pre_tokenizer"];
    return {
      ...content,
      model,
      pre_tokenizer: after ? { type: "Sequence", pretokenizers: [remove, after] } : remove,
      added_tokens: ((content["added_tokens"] ?? []) as Added[]).map((token) =>
        texts.has(token.content) ? { ...token, normalized: false } : token,
      ),
    };
  }
}
