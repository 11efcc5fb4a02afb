/** Section `embed` of a manifest (docs/bundle.md), checked as the untrusted JSON it is. */

import { Value } from "../check.js";
import { TinywebError } from "../errors.js";
import { FILTER_NAMES, type Scaling } from "./resample.js";

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
  /** The token that fills texts up to the length of their function, where the model reads it too. */
  fill: number | null;
  /** What the dot product of a text's and a picture's vector is multiplied with, and what is added, in training. */
  logitScale: number;
  logitBias: number;
  /** How pictures are read; null: they are not. */
  pictures: PictureSection | null;
}

export interface PictureSection extends Scaling {
  /** Fewest pictures first. */
  functions: { name: string; batch: number }[];
}

const MAX_TOKENS = 2 ** 20;
const MAX_WIDTH = 2 ** 20;
const MAX_VOCABULARY = 2 ** 24;
const MAX_SIDE = 4096;
const MAX_PICTURES = 4096;

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
  const number = (key: string, usual: number): number =>
    s.at(key).raw((json, fail) => (json == null ? usual : Number.isFinite(json) ? (json as number) : fail("must be a number")));
  return {
    dimensions: s.at("dimensions").integer(1, MAX_WIDTH),
    maxLength,
    normalized: s.at("normalized").boolean(),
    lowercase: s.at("lowercase").boolean(),
    prefixes: { query: prefix("query"), passage: prefix("passage") },
    functions,
    fill: s.at("fill").present ? s.at("fill").integer(0, MAX_VOCABULARY) : null,
    logitScale: number("logit_scale", 1),
    logitBias: number("logit_bias", 0),
    pictures: s.at("pictures").present ? parsePictures(s.at("pictures")) : null,
  };
}

function parsePictures(p: Value): PictureSection {
  const size = p.at("size").integer(1, MAX_SIDE);
  const functions = p.at("functions").list((f) => ({ name: f.at("name").text(), batch: f.at("batch").integer(1, MAX_PICTURES) }));
  if (functions.length === 0) p.at("functions").fail("there is none");
  functions.sort((a, b) => a.batch - b.batch);
  const filter = p
    .at("filter")
    .raw((json, fail) => FILTER_NAMES.find((name) => name === json) ?? fail(`must be one of ${FILTER_NAMES.join(", ")}`));
  return { size, shortest: p.at("shortest").present ? p.at("shortest").integer(size, MAX_SIDE) : null, filter, functions };
}
