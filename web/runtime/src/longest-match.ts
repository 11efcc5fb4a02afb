/** Tokenizers that take the longest token of a list from the left, again and again (WordPiece, and RWKV's, of which words have no limit). */

import type { Tokenizer } from "@huggingface/tokenizers";
import type { Vocabulary } from "./vocabulary.js";

type Json = Record<string, unknown>;

/**
 * The same tokens as the library's, which tries all ends of a word for each of them: cubic in the word's length, minutes for a page of one
 * letter. No token is longer than the longest. @param settings the `model` of tokenizer.json
 */
export function boundSearch({ model }: Tokenizer, settings: Json): void {
  if (!model || settings["type"] !== "WordPiece") return;
  const prefix = (settings["continuing_subword_prefix"] as string | undefined) ?? "";
  const limit = (settings["max_input_chars_per_word"] as number | undefined) ?? 100;
  const { tokens_to_ids: known, unk_token: unknown = "" } = model;
  let { longest = 0 } = settings["vocab"] as Partial<Vocabulary>;
  for (const token of known.keys()) longest = Math.max(longest, token.length);
  const tokens = (word: string): string[] => {
    if (word.length > limit && Array.from(word).length > limit) return [unknown];
    const found: string[] = [];
    for (let at = 0; at < word.length; ) {
      const before = at > 0 ? prefix : "";
      let end = Math.min(word.length, at + longest - before.length);
      while (end > at && !known.has(before + word.slice(at, end))) end--;
      if (end <= at) return [unknown];
      found.push(before + word.slice(at, end));
      at = end;
    }
    return found;
  };
  model.encode = (words) => words.flatMap(tokens);
}
