/** Texts as token ids, by a tokenizer.json of the bundle or of the reader. */

import { Tokenizer } from "@huggingface/tokenizers";
import { FeedError } from "./problem";

export interface TextReader {
  ids(text: string): number[];
  /** Of padding, 0 where none is told. */
  pad: number;
}

type Json = Record<string, unknown>;
const ABSENT: Json = { added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };

/** @throws FeedError for what is no tokenizer.json */
export function openTokenizer(text: string): TextReader {
  let made: Tokenizer;
  let json: Json;
  try {
    json = JSON.parse(text) as Json;
    made = new Tokenizer({ ...ABSENT, ...json }, {});
    made.encode("a");
  } catch (error) {
    throw new FeedError(`This is no tokenizer.json that can be used: ${error instanceof Error ? error.message : String(error)}`);
  }
  const padding = json["padding"] as { pad_id?: unknown } | null | undefined;
  return { ids: (given) => made.encode(given).ids, pad: typeof padding?.pad_id === "number" ? padding.pad_id : 0 };
}

/** Ids for an input of so many: cut, or filled. */
export function fitIds(ids: readonly number[], length: number, pad: number): Float64Array {
  return Float64Array.from({ length }, (_, i) => ids[i] ?? pad);
}
