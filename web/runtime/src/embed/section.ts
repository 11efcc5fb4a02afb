/** Section `embed` of a manifest (docs/bundle.md), checked as the untrusted JSON it is. */

import { Value } from "../check.js";
import { TinywebError } from "../errors.js";

export type Kind = "query" | "passage";

export interface EmbedFunction {
  name: string;
  /** Texts that run side by side. */
  batch: number;
  /** Tokens that each is padded to. */
  length: number;
}

export interface EmbedSection {
  /** Numbers of a vector. */
  dimensions: number;
  /** Tokens of a text, special ones included. */
  maxLength: number;
  /** Whether the network's vectors have length 1. */
  normalized: boolean;
  /** Whether texts are lowercased before the tokenizer reads them. */
  lowercase: boolean;
  /** What texts of a kind begin with. */
  prefixes: Record<Kind, string>;
  /** The shapes that the network runs at, shortest first; of one length, fewest texts first. */
  functions: EmbedFunction[];
}

const MAX_TOKENS = 2 ** 20;
const MAX_WIDTH = 2 ** 20;

/** @throws TinywebError "bad-argument" (a bundle of another kind) | "bad-manifest" naming the field that is wrong */
export function parseSection(manifest: Record<string, unknown>): EmbedSection {
  const s = new Value(manifest).at("embed");
  if (!s.present) {
    throw new TinywebError(
      "bad-argument",
      `The bundle ${String(manifest["name"])} is not for embeddings: load it with load() of tinyweb/load.`,
    );
  }
  const prefix = (kind: Kind): string =>
    s
      .at("prefixes")
      .at(kind)
      .raw((json, fail) => (typeof json === "string" ? json : fail("must be a string")));
  const functions = s.at("functions").list((f) => ({
    name: f.at("name").text(),
    batch: f.at("batch").integer(1, MAX_TOKENS),
    length: f.at("length").integer(1, MAX_TOKENS),
  }));
  functions.sort((a, b) => a.length - b.length || a.batch - b.batch);
  const maxLength = s.at("max_length").integer(3, MAX_TOKENS);
  const longest = functions.at(-1)?.length ?? 0;
  if (longest < maxLength) s.at("functions").fail(`texts of ${maxLength} tokens fit none of them`);
  return {
    dimensions: s.at("dimensions").integer(1, MAX_WIDTH),
    maxLength,
    normalized: s.at("normalized").boolean(),
    lowercase: s.at("lowercase").boolean(),
    prefixes: { query: prefix("query"), passage: prefix("passage") },
    functions,
  };
}
