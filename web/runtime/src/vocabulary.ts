/**
 * The words and merges of a tokenizer.json, read from its bytes into typed arrays. As objects and strings, those of a
 * vocabulary of 128,000 words take more than 50 MB, beside its text; these take 7.
 */

import type { Tokenizer } from "@huggingface/tokenizers";
import { JsonReader } from "./json-reader.js";

/** Largest id; those of the largest vocabularies are a sixtieth of that. */
const MAX_ID = 1 << 24;

/** A value in a file: where it lies, of how many values it consists, and how many bytes their names are, at most. */
export interface Part {
  begin: number;
  end: number;
  count: number;
  names: number;
}

/** Entries by what they hash to: a table of 1 + their numbers, at least twice as long as they are many. */
function tableFor(count: number): Int32Array {
  return new Int32Array(2 << Math.ceil(Math.log2(count + 1)));
}

/** Bits of a hash: intermediate results of 30 bits are no objects, as larger ones are in code that is not yet optimised. */
const HASH = 0xffffff;

/**
 * A hash with one more number below 2²⁴. What is shifted back spreads numbers that lie side by side, as the bytes of CJK characters do:
 * sums of multiples alone would be the same for thousands of words.
 */
const hashed = (hash: number, more: number): number => (61 * ((hash ^ (hash >>> 11) ^ (more << 9)) & HASH) + more) & HASH;

/** The slot where the search for what hashes to this begins. */
const firstSlot = (table: Int32Array, hash: number): number => (hash ^ (hash >>> 15)) & (table.length - 1);

/** Words, as UTF-8 behind one another, and their ids. */
export class Vocabulary {
  /** UTF-16 units of the longest word, or more. */
  longest = 0;
  private readonly table: Int32Array;
  private readonly pool: Uint8Array;
  /** Where words end in the pool; the first one stands at 1. */
  private readonly ends: Uint32Array;
  private readonly ids: Int32Array;
  /** 1 + the word of an id. */
  private readonly words: Int32Array;
  private scratch = new Uint8Array(64);
  private readonly encoder = new TextEncoder();
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  /** @param entry reads the id of a word, which is the text that was read last */
  constructor(json: Uint8Array, { begin, end, count, names }: Part, entry = (file: JsonReader): number => file.integer()) {
    const file = new JsonReader(json.subarray(begin, end));
    this.table = tableFor(count);
    this.ends = new Uint32Array(count + 1);
    this.ids = new Int32Array(count);
    this.pool = new Uint8Array(names);
    const { pool } = this;
    let [word, filled, largest] = [0, 0, -1];
    file.each(() => {
      const id = entry(file);
      const { source, begin: from } = file;
      const size = file.end - from;
      for (let i = 0; i < size; i++) pool[filled + i] = source[from + i] as number;
      this.longest = Math.max(this.longest, size);
      if (id > MAX_ID) throw new SyntaxError(`${id} is no id of a word`);
      this.ends[word + 1] = filled += size;
      this.ids[word] = id;
      largest = Math.max(largest, id);
      word += 1;
    });
    this.words = new Int32Array(largest + 1);
    for (let i = 0; i < word; i++) {
      this.table[this.slot(pool, this.ends[i] as number, this.ends[i + 1] as number)] = i + 1;
      this.words[this.ids[i] as number] = i + 1;
    }
  }

  /** Where the word is in the table that these bytes are, or would be. */
  private slot(text: Uint8Array, begin: number, end: number): number {
    const { table } = this;
    let hash = end - begin;
    for (let i = begin; i < end; i++) hash = hashed(hash, text[i] as number);
    let slot = firstSlot(table, hash);
    for (let word = table[slot]; word && !this.equals(word - 1, text, begin, end); word = table[slot])
      slot = (slot + 1) & (table.length - 1);
    return slot;
  }

  protected sizeOf(word: number): number {
    return (this.ends[word + 1] as number) - (this.ends[word] as number);
  }

  /** -1 behind a word's end. */
  protected byteOf(word: number, place: number): number {
    const at = (this.ends[word] as number) + place;
    return at < (this.ends[word + 1] as number) ? (this.pool[at] as number) : -1;
  }

  private equals(word: number, text: Uint8Array, begin: number, end: number): boolean {
    const { pool } = this;
    const own = this.ends[word] as number;
    if ((this.ends[word + 1] as number) - own !== end - begin) return false;
    for (let i = begin; i < end; i++) if (pool[own + i - begin] !== text[i]) return false;
    return true;
  }

  /** The id of the word that these bytes are, in UTF-8. */
  idOf(text: Uint8Array, begin: number, end: number): number | undefined {
    const word = this.table[this.slot(text, begin, end)];
    return word ? this.ids[word - 1] : undefined;
  }

  id(text: string): number | undefined {
    if (text.length > this.longest) return undefined;
    if (3 * text.length > this.scratch.length) this.scratch = new Uint8Array(6 * text.length);
    return this.idOf(this.scratch, 0, this.encoder.encodeInto(text, this.scratch).written);
  }

  text(id: number): string | undefined {
    const word = this.words[id];
    return word ? this.decoder.decode(this.pool.subarray(this.ends[word - 1], this.ends[word])) : undefined;
  }
}

/** Pairs of words that become one, the first before the others. */
export class Merges {
  private readonly table: Int32Array;
  private readonly pairs: Int32Array;

  /** @throws SyntaxError, also for words that the vocabulary lacks */
  constructor(json: Uint8Array, { begin, end, count }: Part, vocabulary: Vocabulary) {
    const file = new JsonReader(json.subarray(begin, end));
    this.table = tableFor(count);
    this.pairs = new Int32Array(2 * count);
    let at = 0;
    const word = (begin: number, end: number): void => {
      const id = vocabulary.idOf(file.source, begin, end);
      if (id === undefined) throw new SyntaxError(`a merge has a word that is not in the vocabulary: ${file.string}`);
      this.pairs[at++] = id;
    };
    const read = (): void => {
      file.text();
      word(file.begin, file.end);
    };
    file.each(() => {
      const begun = at;
      if (file.peek() === 0x22) {
        file.text();
        const space = file.source.indexOf(0x20, file.begin);
        if (space >= 0 && space < file.end) {
          word(file.begin, space);
          word(space + 1, file.end);
        }
      } else {
        file.each(read);
      }
      if (at !== begun + 2) throw new SyntaxError("a merge is no pair of words");
      this.table[this.slot(this.pairs[begun] as number, this.pairs[begun + 1] as number)] = at / 2;
    });
  }

  private slot(left: number, right: number): number {
    const { pairs, table } = this;
    let slot = firstSlot(table, hashed(hashed(0, right), left));
    for (let pair = table[slot]; pair && !(pairs[2 * pair - 2] === left && pairs[2 * pair - 1] === right); pair = table[slot])
      slot = (slot + 1) & (table.length - 1);
    return slot;
  }

  /** When these two become one; undefined where they do not. */
  rank(left: number | undefined, right: number | undefined): number | undefined {
    if (left === undefined || right === undefined) return undefined;
    const pair = this.table[this.slot(left, right)];
    return pair ? pair - 1 : undefined;
  }

  drop(left: number | undefined, right: number | undefined): void {
    const pair = this.rank(left, right);
    if (pair !== undefined) this.pairs[2 * pair] = -1;
  }
}

interface Node {
  token: string;
  id?: number | undefined;
  next: Node;
  score: number;
  bias: number;
}

/** The library's model, as far as it has tables of its own. */
interface Model {
  tokens_to_ids: Map<string, number>;
  vocab: string[];
  unk_token_id: number | undefined;
  unk_token: string | undefined;
  add_node(queue: { push(node: Node): void }, node: Node): void;
}

/** Words of a vocabulary beside those that were added. */
class Words extends Map<string, number> {
  constructor(
    added: Iterable<[string, number]>,
    private readonly vocabulary: Vocabulary,
  ) {
    super(added);
  }

  override get(text: string): number | undefined {
    return super.get(text) ?? this.vocabulary.id(text);
  }

  override has(text: string): boolean {
    return this.get(text) !== undefined;
  }
}

/** Puts tables in the place of those of a tokenizer that was made without words. */
export function giveTables(tokenizer: Tokenizer, vocabulary: Vocabulary, merges: Merges | undefined): void {
  const model = tokenizer.model as unknown as Model;
  model.tokens_to_ids = new Words(model.tokens_to_ids, vocabulary);
  model.vocab = new Proxy(model.vocab, { get: (added, id) => added[id as never] ?? vocabulary.text(Number(String(id))) });
  if (typeof model.unk_token === "string") model.unk_token_id = model.tokens_to_ids.get(model.unk_token);
  if (!merges) return;
  const id = (node: Node): number | undefined => (node.id ??= vocabulary.id(node.token));
  model.add_node = (queue, node) => {
    const rank = merges.rank(id(node), id(node.next));
    if (rank === undefined) return;
    node.score = rank + node.bias; // of equal ones the leftmost first
    queue.push(node);
  };
}
