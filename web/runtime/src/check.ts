/** Small readers for untrusted JSON: each returns the value with its type, or throws "bad-manifest" naming the place. */

import { TinywebError } from "./errors.js";

export type Json = Record<string, unknown>;

export function bad(where: string, what: string): never {
  throw new TinywebError("bad-manifest", `manifest.json: ${where}: ${what}`);
}

export function object(value: unknown, where: string): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return bad(where, "must be an object");
  return value as Json;
}

export function list<T>(value: unknown, where: string, item: (value: unknown, where: string, index: number) => T, max = 1e6): T[] {
  if (!Array.isArray(value)) return bad(where, "must be a list");
  if (value.length > max) return bad(where, `has ${value.length} items, more than ${max}`);
  return value.map((entry: unknown, index) => item(entry, `${where}[${index}]`, index));
}

export function record<T>(value: unknown, where: string, item: (value: unknown, where: string, key: string) => T): Map<string, T> {
  return new Map(Object.entries(object(value, where)).map(([key, entry]) => [key, item(entry, `${where}.${key}`, key)]));
}

export function integer(value: unknown, where: string, min = 0, max: number = Number.MAX_SAFE_INTEGER): number {
  if (!Number.isSafeInteger(value)) return bad(where, `must be an integer, not ${JSON.stringify(value)}`);
  const number = value as number;
  if (number < min || number > max) return bad(where, `${number} is outside ${min} … ${max}`);
  return number;
}

export function number(value: unknown, where: string, min: number, max: number): number {
  if (typeof value !== "number" || !(value >= min && value <= max)) return bad(where, `must be a number in ${min} … ${max}`);
  return value;
}

export function text(value: unknown, where: string): string {
  if (typeof value !== "string" || value === "") return bad(where, "must be a non-empty string");
  return value;
}

export function boolean(value: unknown, where: string): boolean {
  return typeof value === "boolean" ? value : bad(where, "must be true or false");
}

export function oneOf<T extends string>(value: unknown, where: string, words: readonly T[]): T {
  return words.includes(value as T) ? (value as T) : bad(where, `must be one of ${words.join(", ")}`);
}

export function hash(value: unknown, where: string): string {
  return typeof value === "string" && /^[0-9a-f]{64}$/.test(value) ? value : bad(where, "must be a SHA-256 in lowercase hex");
}

/** A path below the bundle's folder: no scheme, no "..", nothing absolute, so that a manifest cannot name another site. */
export function path(value: unknown, where: string): string {
  const word = "[A-Za-z0-9_-][A-Za-z0-9_.-]*";
  const safe = typeof value === "string" && new RegExp(`^${word}(/${word})*$`).test(value);
  return safe ? value : bad(where, `${JSON.stringify(value)} is not a path inside the bundle`);
}
