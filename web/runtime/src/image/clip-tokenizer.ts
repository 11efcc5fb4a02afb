/**
 * CLIP's byte-pair encoding, from a tokenizer.json: text to the ids of a text encoder. Only what CLIP's tokenizers use is
 * read (lower case, words split by one fixed pattern, bytes as characters, an end-of-word suffix), which spares the page a
 * general tokenizer.
 */

import { TinywebError } from "../errors.js";

export interface Tokens {
  /** `length` ids: start, text, end, padding. */
  ids: number[];
  /** The text that was cut off because the model reads no more; "" where all of it fitted. */
  cut: string;
}

/** What is written like the ends of a text, which stays text; contractions, runs of letters, single digits, runs of anything else that is no space. */
const WORD = /<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+/giu;
/** Longer texts are cut before they are split: no model reads this much, and pasting a book must not stop the page. */
const MAX_CHARACTERS = 20_000;
/** Joining pairs takes time that grows with the square of a word's length. */
const MAX_WORD = 500;

/** The printable character that stands for each byte value (as in GPT-2: printable bytes are themselves, the others follow 255). */
const BYTES: readonly string[] = ((): string[] => {
  let extra = 256;
  const printable = (byte: number): boolean => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : extra++));
})();

type Json = Record<string, unknown>;

export class ClipTokenizer {
  private readonly vocab: ReadonlyMap<string, number>;
  private readonly ranks: ReadonlyMap<string, number>;
  private readonly suffix: string;
  private readonly words = new Map<string, number[]>();

  /**
   * @param json content of tokenizer.json
   * @param form ids that every text gets: before it, after it, and to fill up to `length`
   * @throws TinywebError "bad-manifest" for anything but CLIP's tokenizer
   */
  constructor(
    json: unknown,
    private readonly form: { length: number; bos: number; eos: number; pad: number },
  ) {
    const model = Object((Object(json) as Json)["model"]) as Json;
    const { vocab, merges, end_of_word_suffix: suffix } = model;
    if (typeof vocab !== "object" || vocab === null || !Array.isArray(merges) || typeof suffix !== "string" || !suffix) {
      throw new TinywebError("bad-manifest", "tokenizer.json is not the byte-pair encoding of a CLIP model.");
    }
    this.vocab = new Map(Object.entries(vocab as Record<string, number>));
    // Older files write a merge as "a b", newer ones as ["a", "b"].
    this.ranks = new Map(merges.map((merge: unknown, rank) => [Array.isArray(merge) ? merge.join(" ") : String(merge), rank]));
    this.suffix = suffix;
  }

  encode(text: string): Tokens {
    const { length, bos, eos, pad } = this.form;
    // Letter by letter: at a word's end, a whole text's lower case has another sigma.
    const plain = Array.from(text.normalize("NFC"), (letter) => letter.toLowerCase()).join("");
    const ids: number[] = [bos];
    let cut = plain.slice(MAX_CHARACTERS);
    for (const { 0: word, index } of plain.slice(0, MAX_CHARACTERS).matchAll(WORD)) {
      const pieces = this.word(word.slice(0, MAX_WORD));
      if (ids.length + pieces.length > length - 1) {
        ids.push(...pieces.slice(0, length - 1 - ids.length));
        cut = plain.slice(index);
        break;
      }
      ids.push(...pieces);
    }
    ids.push(eos);
    while (ids.length < length) ids.push(pad);
    return { ids, cut: cut.trim() };
  }

  /** The pair that was learned first is joined first, until none is left. */
  private word(word: string): number[] {
    const known = this.words.get(word);
    if (known) return known;
    let parts = Array.from(new TextEncoder().encode(word), (byte) => BYTES[byte] as string);
    parts.push((parts.pop() as string) + this.suffix);
    for (;;) {
      const pairs = parts.map((part, i) => `${part} ${parts[i + 1]}`);
      const ranks = pairs.map((pair) => this.ranks.get(pair) ?? Infinity);
      const best = Math.min(...ranks);
      if (best === Infinity) break;
      const pair = pairs[ranks.indexOf(best)];
      const merged: string[] = [];
      for (let i = 0; i < parts.length; i++) merged.push(pairs[i] === pair ? `${parts[i]}${parts[++i]}` : (parts[i] as string));
      parts = merged;
    }
    const ids = parts.map((part) => this.vocab.get(part) ?? this.form.eos);
    this.words.set(word, ids);
    return ids;
  }
}
