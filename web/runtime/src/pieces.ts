/** The pieces of a Unigram model and their scores, in typed arrays: the library's tree of objects takes a kilobyte for each. */

import type { Tokenizer } from "@huggingface/tokenizers";
import type { JsonReader } from "./json-reader.js";
import { type Part, Vocabulary } from "./vocabulary.js";

/** What the least likely piece is more likely than what is none (SentencePiece). */
const PENALTY = 10;

/** The one piece of a tokenizer that is made without: the library asks for one. */
export const STAND_IN = "";

/** What the library looks pieces up for. */
interface Lattice {
  readonly chars: readonly string[];
  insert(begin: number, length: number, score: number, id: number | null | undefined): void;
}

/** The library's model, as far as it has tables of its own. */
interface Model {
  tokens_to_ids: Map<string, number>;
  vocab: string[];
  unk_token?: string | undefined;
  unk_token_id: number | null | undefined;
  unk_score: number;
  populate_nodes(lattice: Lattice): void;
}

/** Words whose ids are their places in a list, each with a score. */
export class Pieces extends Vocabulary {
  readonly scores: Float64Array;
  /** Words by their bytes. */
  private order: Int32Array | undefined;

  /** @param json with a list of pairs of a word and a number at `part` */
  constructor(json: Uint8Array, part: Part) {
    const scores = new Float64Array(part.count);
    let count = 0;
    super(json, part, (file: JsonReader): number => {
      let place = 0;
      file.each(() => {
        if (place === 0) file.text();
        else scores[count] = file.number();
        place += 1;
      });
      if (place !== 2) throw new SyntaxError("a piece is no word with a score");
      return count++;
    });
    if (count === 0) throw new SyntaxError("there are no pieces");
    this.scores = scores;
  }

  get least(): number {
    return this.scores.reduce((least, score) => Math.min(least, score), Infinity);
  }

  /** Calls `found` with the length in characters and the id of each piece that `text` has at a place, the shortest first. */
  at(text: Uint8Array, from: number, found: (length: number, id: number) => void): void {
    this.order ??= this.sorted();
    const { order } = this;
    let [low, high, length] = [0, order.length, 0];
    for (let depth = 0; low < high && from + depth < text.length; depth++) {
      const byte = text[from + depth] as number;
      low = this.first(low, high, depth, byte);
      high = this.first(low, high, depth, byte + 1);
      if (((text[from + depth + 1] ?? 0) & 0xc0) === 0x80) continue; // within a character
      length += 1;
      const longer = this.first(low, high, depth + 1, 0);
      if (longer > low) found(length, order[longer - 1] as number); // of equal ones the last, as in a map that is filled in order
    }
  }

  /** The first place from `low` on whose word has at least this byte at a depth; words that end before come first. */
  private first(low: number, high: number, depth: number, byte: number): number {
    const order = this.order as Int32Array;
    let [begin, end] = [low, high];
    while (begin < end) {
      const middle = (begin + end) >>> 1;
      if (this.byteOf(order[middle] as number, depth) < byte) begin = middle + 1;
      else end = middle;
    }
    return begin;
  }

  private sorted(): Int32Array {
    return new Int32Array(this.scores.length)
      .map((_, i) => i)
      .sort((a, b) => {
        const [size, other] = [this.sizeOf(a), this.sizeOf(b)];
        for (let i = 0; i < size && i < other; i++) {
          const difference = this.byteOf(a, i) - this.byteOf(b, i);
          if (difference !== 0) return difference;
        }
        return size - other || a - b;
      });
  }
}

/** Puts pieces in the place of the tables of a tokenizer that was made without. @param unknown the id of what is no piece */
export function givePieces(tokenizer: Tokenizer, pieces: Pieces, unknown: number | null | undefined): void {
  const model = tokenizer.model as unknown as Model;
  const ids = model.tokens_to_ids;
  ids.delete(STAND_IN);
  if (model.vocab[0] === STAND_IN) delete model.vocab[0];
  const others = new Map<number, number>(); // pieces that were added with an id of their own
  for (const [text, id] of ids) {
    const own = pieces.id(text);
    if (own !== undefined && own !== id) others.set(own, id);
  }
  model.unk_score = pieces.least - PENALTY;
  model.unk_token_id = unknown;
  if (typeof unknown === "number") {
    model.unk_token = pieces.text(unknown);
    pieces.scores[unknown] = model.unk_score;
  } else {
    delete model.unk_token;
  }
  const encoder = new TextEncoder();
  model.populate_nodes = (lattice) => {
    const bytes = encoder.encode(lattice.chars.join(""));
    let offset = 0;
    for (let begin = 0; begin < lattice.chars.length; begin++) {
      let single = false;
      pieces.at(bytes, offset, (length, piece) => {
        const id = others.get(piece) ?? piece;
        lattice.insert(begin, length, pieces.scores[id] as number, id);
        single ||= length === 1;
      });
      if (!single) lattice.insert(begin, 1, model.unk_score, model.unk_token_id);
      do offset++;
      while (((bytes[offset] ?? 0) & 0xc0) === 0x80);
    }
  };
}
