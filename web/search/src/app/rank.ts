/**
 * Which passages answer a query: by the cosine of the vectors, and a little by the words they share; and which pictures show it: by
 * the cosine alone. Texts are nearer to texts than to any picture, so that each kind is ranked by itself.
 */

import { share } from "../text/words";
import type { Doc } from "./library";

export interface Hit {
  doc: Doc;
  /** Of the passage. */
  index: number;
  text: string;
  /** 0 … 1. */
  score: number;
}

/** What all of a query's words in a passage are worth, as cosine. Names and numbers are found by it. */
const WORDS_WORTH = 0.15;
/** Behind the first three, passages with less than this share of the best score are left out. */
const GOOD = 0.5;
const ALWAYS = 3;
/** Behind the first six, pictures are left out whose odds, by the scale of the model's training, are so much less than the best one's. */
const ODDS = 6;
const ALWAYS_SHOWN = 6;
/** Passages whose words are looked at. */
const CANDIDATES = 200;

/**
 * @param vector of the query, length 1 @param stems of its words @param except a passage that is not to be found
 * @returns at most `limit` passages, best first
 */
export function rank(
  docs: readonly Doc[],
  vector: Float32Array,
  stems: ReadonlySet<string>,
  limit: number,
  except?: { doc: string; index: number },
): Hit[] {
  const width = vector.length;
  const found: { doc: Doc; index: number; cosine: number }[] = [];
  for (const doc of docs) {
    if (doc.picture !== undefined || doc.vectors.length !== doc.passages.length * width) continue; // another model's
    for (let index = 0; index < doc.done; index++) {
      if (except?.doc === doc.id && except.index === index) continue;
      let cosine = 0;
      for (let i = 0, at = index * width; i < width; i++) cosine += (vector[i] as number) * (doc.vectors[at + i] as number);
      found.push({ doc, index, cosine });
    }
  }
  found.sort((a, b) => b.cosine - a.cosine);
  const hits = found.slice(0, CANDIDATES).map(({ doc, index, cosine }) => {
    const { start, end } = doc.passages[index] as Doc["passages"][number];
    const text = doc.text.slice(start, end);
    return { doc, index, text, score: Math.min(1, Math.max(0, cosine + WORDS_WORTH * share(text, stems))) };
  });
  hits.sort((a, b) => b.score - a.score);
  const good = (hits[0]?.score ?? 0) * GOOD;
  return hits.slice(0, limit).filter(({ score }, i) => i < ALWAYS || score >= good);
}

export interface PictureHit {
  doc: Doc;
  /** The cosine. */
  score: number;
}

/** Whether it is a picture that the model has read: one that it could not read has nothing but zeros. */
export function isRead(doc: Doc): boolean {
  return doc.picture !== undefined && doc.done > 0 && doc.vectors.some((x) => x !== 0);
}

/**
 * @param vector of the query, or of a picture, length 1 @param scale what the model's training multiplied cosines with
 * @param except a picture that is not to be found @returns at most `limit` pictures, best first
 */
export function rankPictures(docs: readonly Doc[], vector: Float32Array, scale: number, limit: number, except?: string): PictureHit[] {
  const found: PictureHit[] = [];
  for (const doc of docs) {
    if (doc.vectors.length !== vector.length || doc.id === except || !isRead(doc)) continue;
    let score = 0;
    for (let i = 0; i < vector.length; i++) score += (vector[i] as number) * (doc.vectors[i] as number);
    found.push({ doc, score });
  }
  found.sort((a, b) => b.score - a.score);
  const good = (found[0]?.score ?? 0) - ODDS / Math.max(scale, 1);
  return found.slice(0, limit).filter(({ score }, i) => i < ALWAYS_SHOWN || score >= good);
}
