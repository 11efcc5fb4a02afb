/** Long texts to passages: at paragraphs, sentences and words, in this order, with a little overlap. */

import { checkFunction, checkNumber, optionsOf, unlike } from "../arguments.js";

export interface Passage {
  /** Where it begins in the text, and where it ends, in UTF-16 units as strings count. */
  start: number;
  end: number;
  text: string;
}

export interface SplitOptions {
  /** The most a passage may measure; 120 by default. */
  size?: number;
  /** How much of a passage, at most, is said again at the beginning of the next; a sixth of `size` by default. */
  overlap?: number;
  /** What a piece measures; words by default. `(text) => embedder.countTokens(text)` measures tokens. */
  measure?: (text: string) => number;
}

interface Piece {
  start: number;
  end: number;
  size: number;
}

const DEFAULT_SIZE = 120;
/** @throws TinywebError "bad-argument" */
export function checkText(text: unknown): asserts text is string {
  if (typeof text !== "string") throw unlike("The text", "a string", text);
}

/** Below this share of the size a passage is too short to end with its paragraph. */
const SHORT = 0.1;
/** Characters that no unit of a measure has on average. */
const LONG = 64;
/** Characters of a word that is cut where it has no end. */
const LONGEST_WORD = 1000;

function countWords(text: string): number {
  return text.split(/\s+/u).filter(Boolean).length;
}

/**
 * Passages of at most `size`, in order; together they say all that the text says. Sentences are kept whole where they fit, and a
 * passage ends with its paragraph unless that is very short; in a paragraph passages overlap.
 * @throws TinywebError "bad-argument": no text, or sizes that cannot be
 */
export function splitText(text: string, options?: SplitOptions | null): Passage[] {
  return [...passagesOf(text, options)];
}

/** The passages of `splitText`, each made when it is asked for: pages that split a book can do other things in between. */
export function* passagesOf(text: string, given?: SplitOptions | null): Generator<Passage, void, void> {
  const options = optionsOf(given, "splitText()", ["size", "overlap", "measure"]);
  const { size = DEFAULT_SIZE, measure = countWords } = options;
  const { overlap = Math.floor(size / 6) } = options;
  checkText(text);
  checkNumber("size", size, 1);
  checkNumber("overlap", overlap, 0);
  checkFunction("measure", measure);
  let open: Piece[] = [];
  let total = 0;
  let fresh = false; // whether `open` holds more than the last passage's end

  const close = (): Passage[] => {
    const [first, last] = [open[0], open.at(-1)];
    const closed = fresh && first && last ? [{ start: first.start, end: last.end, text: text.slice(first.start, last.end) }] : [];
    fresh = false;
    return closed;
  };
  /** Begins the next passage with the last sentences of this one. */
  const carry = (room: number): void => {
    let from = open.length;
    let kept = 0;
    while (from > 1 && kept + (open[from - 1] as Piece).size <= Math.min(overlap, room)) kept += (open[--from] as Piece).size;
    open = open.slice(from);
    total = kept;
  };

  for (const paragraph of paragraphsOf(text)) {
    if (total >= size * SHORT) {
      // paragraphs speak of different things; a heading stays with what follows it
      yield* close();
      open = [];
      total = 0;
    }
    for (const sentence of sentencesOf(text, paragraph)) {
      for (const piece of fitting(text, sentence, size, measure)) {
        if (total + piece.size > size) {
          yield* close();
          carry(size - piece.size);
        }
        open.push(piece);
        total += piece.size;
        fresh = true;
      }
    }
  }
  yield* close();
}

interface Span {
  start: number;
  end: number;
}

/** Without white space at the ends; undefined where nothing is left. */
function trim(text: string, { start, end }: Span): Span | undefined {
  while (start < end && /\s/u.test(text[start] as string)) start++;
  while (end > start && /\s/u.test(text[end - 1] as string)) end--;
  return start < end ? { start, end } : undefined;
}

/** Spans between matches of `pattern`, without the white space around them. */
function between(text: string, { start, end }: Span, pattern: RegExp): Span[] {
  const spans: Span[] = [];
  let at = start;
  for (const match of text.slice(start, end).matchAll(pattern)) {
    const stop = start + match.index + match[0].length;
    spans.push({ start: at, end: stop });
    at = stop;
  }
  spans.push({ start: at, end });
  return spans.map((span) => trim(text, span)).filter((span) => span !== undefined);
}

function paragraphsOf(text: string): Span[] {
  return between(text, { start: 0, end: text.length }, /\n\s*\n|\r\n\s*\r\n/gu);
}

function sentencesOf(text: string, span: Span): Span[] {
  // after . ! ? … and what closes a quotation; Chinese and Japanese sentences end without a space; a line of a list is one, too
  return between(text, span, /[.!?…]+["'”’)\]]*\s+(?=\S)|[。！？]+[」』”]*|\n(?=\s*(?:[-*•#|]|\d+[.)]))/gu);
}

/** A sentence, or where that is too long, its words in pieces that fit. */
function* fitting(text: string, span: Span, size: number, measure: (text: string) => number): Generator<Piece, void, void> {
  const length = span.end - span.start;
  // what is certainly too long is not measured, so that text without sentences is not read again for each of its halves
  const whole = length > LONG * size ? Infinity : measure(text.slice(span.start, span.end));
  if (whole <= size || length < 2) return yield { ...span, size: whole };
  const cut = wordNear(text, span) ?? middle(text, span);
  for (const half of [
    { start: span.start, end: cut },
    { start: cut, end: span.end },
  ]) {
    const trimmed = trim(text, half);
    if (trimmed) yield* fitting(text, trimmed, size, measure);
  }
}

/** Where the word begins that is nearest to the middle; undefined where none does for long. */
function wordNear(text: string, { start, end }: Span): number | undefined {
  const at = start + Math.floor((end - start) / 2);
  const begins = (i: number): boolean => i > start && i < end && /\s\S/u.test(text.slice(i - 1, i + 1));
  for (let away = 0; away < LONGEST_WORD && away <= end - at; away++) {
    if (begins(at - away)) return at - away;
    if (begins(at + away)) return at + away;
  }
  return undefined;
}

/** Half of a word without spaces; never inside of a surrogate pair. */
function middle(text: string, { start, end }: Span): number {
  const at = start + Math.floor((end - start) / 2);
  const pair = /[\udc00-\udfff]/u.test(text[at] ?? "") || (text.charCodeAt(at) & 0xfc00) === 0xdc00;
  return pair && at + 1 < end ? at + 1 : at;
}
