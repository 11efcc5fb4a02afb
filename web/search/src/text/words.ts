/** The words of a query, and where a passage has them. */

const WORD = /[\p{L}\p{N}]+(?:['’][\p{L}]+)?/gu;
const COMMON = new Set(
  (
    "a about after all also an and any are as at be because been before but by can could did do does for from had has have he her him his how i if in into " +
    "is it its just me more most my no not of on one or other our out over she so some such than that the their them then there these they this to up us was " +
    "we were what when where which while who why will with would you your"
  ).split(" "),
);

/** A word without the endings that English gives it; good enough to find "trains" for "train". */
export function stem(word: string): string {
  const lower = word.toLowerCase().replace(/['’].*$/u, "");
  for (const ending of ["ingly", "edly", "ing", "ies", "ed", "es", "ly", "s"]) {
    if (lower.length - ending.length >= 3 && lower.endsWith(ending)) {
      const left = lower.slice(0, -ending.length);
      return /([^aeiou])\1$/u.test(left) && left.length > 3 ? left.slice(0, -1) : left.replace(/e$/u, "");
    }
  }
  return lower.length > 3 ? lower.replace(/e$/u, "") : lower;
}

/** Stems of the words that say what a query is about. */
export function keywords(query: string): Set<string> {
  const found = [...query.matchAll(WORD)].map(([word]) => word.toLowerCase()).filter((word) => !COMMON.has(word));
  return new Set(found.map(stem));
}

export interface Run {
  text: string;
  marked: boolean;
}

/** A text in runs, those of the keywords marked. */
export function highlight(text: string, stems: ReadonlySet<string>): Run[] {
  const runs: Run[] = [];
  let at = 0;
  for (const match of stems.size === 0 ? [] : text.matchAll(WORD)) {
    if (!stems.has(stem(match[0]))) continue;
    if (match.index > at) runs.push({ text: text.slice(at, match.index), marked: false });
    at = match.index + match[0].length;
    runs.push({ text: match[0], marked: true });
  }
  if (at < text.length) runs.push({ text: text.slice(at), marked: false });
  return runs;
}

/** Which share of the keywords a text has, 0 … 1. */
export function share(text: string, stems: ReadonlySet<string>): number {
  if (stems.size === 0) return 0;
  const found = new Set([...text.matchAll(WORD)].map(([word]) => stem(word)).filter((word) => stems.has(word)));
  return found.size / stems.size;
}
