/** Arrays as JSON: nested lists, or one list of all elements. */

import { count, shapeText } from "./arrays";
import { FeedError } from "./problem";

/** Numbers typed without brackets count, too: "1, 2, 3" or "1 2 3". */
function read(text: string): unknown {
  const given = text.trim();
  if (given === "") throw new FeedError("Type numbers, as in [1, 2, 3].");
  if (!/^[[{"]/u.test(given)) {
    const parts = given.split(/[\s,;]+/u).filter((part) => part !== "");
    const values = parts.map(Number);
    if (values.some(Number.isNaN)) throw new FeedError(`“${parts[values.findIndex(Number.isNaN)]}” is no number.`);
    return values;
  }
  try {
    return JSON.parse(given);
  } catch (error) {
    throw new FeedError(`This is no JSON: ${(error as Error).message}`);
  }
}

function flatten(value: unknown, into: number[], most: number): void {
  if (Array.isArray(value)) {
    for (const item of value) flatten(item, into, most);
    return;
  }
  if (typeof value === "boolean") into.push(Number(value));
  else if (typeof value === "number") into.push(value);
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
export function parseNumbers(text: string, shape: readonly number[]): Float64Array {
  const given = read(text);
  const wanted = count(shape);
  const values: number[] = [];
  flatten(given, values, wanted);
  const nested = nesting(given);
  if (values.length === 1 && wanted > 1) return new Float64Array(wanted).fill(values[0] as number);
  const whole = (sizes: readonly number[]): string => sizes.filter((size) => size !== 1).join();
  if (values.length !== wanted || (nested !== null && whole(nested) !== whole(shape))) {
    const got = nested === null ? `${values.length}` : shapeText(nested);
    throw new FeedError(`${wanted} numbers go in (${shapeText(shape)}), not ${got}.`);
  }
  return Float64Array.from(values);
}

/** Nested lists, as JSON. */
export function numbersText(values: ArrayLike<number>, shape: readonly number[]): string {
  let at = 0;
  const level = (depth: number): unknown => {
    if (depth === shape.length) return values[at++];
    return Array.from({ length: shape[depth] as number }, () => level(depth + 1));
  };
  return JSON.stringify(level(0));
}
