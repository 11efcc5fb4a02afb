/** Arrays as JSON: nested lists, or one list of all elements. */

import { count, type Numeric, shapeText } from "./arrays";
import { FeedError } from "./problem";

/** A number that is written out: a bigint where a double would round it. */
function numberOf(text: string): number | bigint {
  const value = Number(text);
  return !Number.isSafeInteger(value) && /^[+-]?\d+$/u.test(text) ? BigInt(text.replace("+", "")) : value;
}

/** Numbers typed without brackets count, too: "1, 2, 3" or "1 2 3". */
function read(text: string): unknown {
  const given = text.trim();
  if (given === "") throw new FeedError("Type numbers, as in [1, 2, 3].");
  if (!/^[[{"]/u.test(given)) {
    const parts = given.split(/[\s,;]+/u).filter((part) => part !== "");
    const values = parts.map(numberOf);
    if (values.some(Number.isNaN)) throw new FeedError(`“${parts[values.findIndex(Number.isNaN)]}” is no number.`);
    return values;
  }
  try {
    // JSON.parse makes doubles: long integers become texts first, as which they may come, too
    return JSON.parse(given.replaceAll(/(^|[[,\s])(-?\d{16,})(?=[\],\s]|$)/gu, '$1"$2"'));
  } catch (error) {
    throw new FeedError(`This is no JSON: ${(error as Error).message}`);
  }
}

function flatten(value: unknown, into: (number | bigint)[], most: number): void {
  if (Array.isArray(value)) {
    for (const item of value) flatten(item, into, most);
    return;
  }
  if (typeof value === "boolean") into.push(Number(value));
  else if (typeof value === "number" || typeof value === "bigint") into.push(value);
  else if (typeof value === "string" && /^-?\d+$/u.test(value)) into.push(numberOf(value));
  else throw new FeedError(`${JSON.stringify(value)?.slice(0, 40)} is no number.`);
  if (into.length > most) throw new FeedError(`More than the ${most} numbers that go in.`);
}

/** The sizes of nested lists; null where they differ, or there is one list only. */
function nesting(value: unknown): number[] | null {
  const shape: number[] = [];
  for (let at = value; Array.isArray(at); at = at[0]) shape.push(at.length);
  return shape.length > 1 ? shape : null;
}

/** @throws FeedError where it is no JSON of `shape`; a single number fills it, one list gives all elements in order */
export function parseNumbers(text: string, shape: readonly number[]): Numeric {
  const given = read(text);
  const wanted = count(shape);
  const values: (number | bigint)[] = [];
  flatten(given, values, wanted);
  const nested = nesting(given);
  if (values.length === 1 && wanted > 1) return new Array<number | bigint>(wanted).fill(values[0] as number | bigint);
  const whole = (sizes: readonly number[]): string => sizes.filter((size) => size !== 1).join();
  if (values.length !== wanted || (nested !== null && whole(nested) !== whole(shape))) {
    const got = nested === null ? `${values.length}` : shapeText(nested);
    throw new FeedError(`${wanted} numbers go in (${shapeText(shape)}), not ${got}.`);
  }
  return values;
}

/** @throws FeedError where they are not as many as `shape` has; a single text fills it; without brackets and quotes commas and lines divide */
export function parseTexts(text: string, shape: readonly number[]): string[] {
  const given = text.trim();
  let values: unknown[] = given.split(/\s*[,\n]\s*/u);
  if (/^["[]/u.test(given)) {
    try {
      values = ([JSON.parse(given)] as unknown[]).flat(Infinity);
    } catch (error) {
      throw new FeedError(`This is no JSON: ${(error as Error).message}`);
    }
  }
  const wanted = count(shape);
  const texts = values.map((value) => (typeof value === "string" ? value : JSON.stringify(value)));
  if (texts.length === 1) return new Array<string>(wanted).fill(texts[0] as string);
  if (texts.length !== wanted) throw new FeedError(`${wanted} texts go in (${shapeText(shape)}), not ${texts.length}.`);
  return texts;
}

/** A text as `parseTexts` reads it. */
export const writtenText = (text: string): string => (/^[\s"[]|[,\n]|\s$/u.test(text) ? JSON.stringify(text) : text);

/** Nested lists, as JSON, with all digits of integers. */
export function numbersText(values: ArrayLike<number | bigint | string>, shape: readonly number[]): string {
  let at = 0;
  const level = (depth: number): string => {
    if (depth < shape.length) return `[${Array.from({ length: shape[depth] as number }, () => level(depth + 1)).join()}]`;
    const value = values[at++] as number | bigint | string;
    return typeof value === "bigint" ? String(value) : JSON.stringify(value);
  };
  return level(0);
}
