/** Reads untrusted JSON: every value knows its place, and every reader throws "bad-manifest" naming it. */

import { TinywebError } from "./errors.js";

const MAX_ITEMS = 1_000_000;
/** No scheme, no "..", nothing absolute: a manifest cannot name another site's file. */
const PATH = /^[\w-][\w.-]*(\/[\w-][\w.-]*)*$/;

export class Value {
  constructor(
    private readonly json: unknown,
    private readonly place = "",
  ) {}

  get present(): boolean {
    return this.json !== undefined && this.json !== null;
  }

  /** A field of this object; absent fields are complained about when they are read. */
  at(key: string): Value {
    return new Value(this.object()[key], this.place ? `${this.place}.${key}` : key);
  }

  fail(what: string): never {
    throw new TinywebError("bad-manifest", `manifest.json: ${this.place || "the file"}: ${what}`);
  }

  list<T>(item: (value: Value, index: number) => T): T[] {
    const { json } = this;
    if (!Array.isArray(json)) return this.fail("must be a list");
    if (json.length > MAX_ITEMS) this.fail("is too long");
    return json.map((entry: unknown, index) => item(new Value(entry, `${this.place}[${index}]`), index));
  }

  map<T>(item: (value: Value, key: string) => T): Map<string, T> {
    return new Map(Object.keys(this.object()).map((key) => [key, item(this.at(key), key)]));
  }

  integer(min = 0, max = Number.MAX_SAFE_INTEGER, divisor = 1): number {
    const { json } = this;
    if (!Number.isSafeInteger(json)) this.fail(`must be an integer, not ${JSON.stringify(json)}`);
    if ((json as number) % divisor !== 0) this.fail(`must be a multiple of ${divisor}`);
    return this.number(min, max);
  }

  number(min: number, max: number): number {
    const { json } = this;
    if (typeof json !== "number") return this.fail("must be a number");
    return json >= min && json <= max ? json : this.fail(`${json} is outside ${min} … ${max}`);
  }

  text(): string {
    return typeof this.json === "string" && this.json ? this.json : this.fail("must be a non-empty string");
  }

  boolean(): boolean {
    return typeof this.json === "boolean" ? this.json : this.fail("must be true or false");
  }

  oneOf<T extends string>(...words: T[]): T {
    return words.includes(this.json as T) ? (this.json as T) : this.fail(`must be ${words.join(" or ")}`);
  }

  hash(): string {
    const text = this.text();
    return /^[0-9a-f]{64}$/.test(text) ? text : this.fail("must be a SHA-256 in lowercase hex");
  }

  path(): string {
    const text = this.text();
    return PATH.test(text) ? text : this.fail(`"${text}" is not a path inside the bundle`);
  }

  /** A value of unknown form, for a reader of its own that reports through `fail`. */
  raw<T>(read: (json: unknown, fail: (what: string) => never) => T): T {
    return read(this.json, (what) => this.fail(what));
  }

  private object(): Record<string, unknown> {
    const { json } = this;
    return typeof json === "object" && json && !Array.isArray(json) ? (json as Record<string, unknown>) : this.fail("must be an object");
  }
}
