/** What callers give, looked at where it comes in: a mistake is told in one sentence that says what was wrong and what to do. */

import { TinywebError } from "./errors.js";

export function badArgument(message: string, cause?: unknown): TinywebError {
  return new TinywebError("bad-argument", message, cause);
}

/** @param name what was given @param must what it must be */
export function unlike(name: string, must: string, value: unknown, cause?: unknown): TinywebError {
  return badArgument(`${name} must be ${must}, not ${shown(value)}.`, cause);
}

/** A value in a message: texts and numbers as they are, of anything else its kind. */
function shown(value: unknown): string {
  if (typeof value === "string") return `"${value.slice(0, 80)}"`;
  return Object(value) === value ? Object.prototype.toString.call(value).slice(8, -1) : String(value);
}

/** Whether something is given: null counts as absent, as undefined does. */
const present = (value: unknown): boolean => (value ?? undefined) !== undefined;

/** Signals of other windows and of polyfills will do. */
const isSignal = (value: unknown): boolean => typeof (Object(value) as Partial<AbortSignal>).aborted === "boolean";

/** @throws TinywebError "bad-argument" */
export function checkOneOf(name: string, value: unknown, known: readonly string[]): void {
  if (!known.includes(value as string)) throw unlike(name, `one of ${known.join(", ")}`, value);
}

/** @throws TinywebError "bad-argument" */
export function checkFunction(name: string, value: unknown): void {
  if (typeof value !== "function") throw unlike(name, "a function", value);
}

const warned = new Set<string>();

/** For what may be meant well, such as settings of another call that are spread in: told once, and ignored. */
function warn(message: string): void {
  if (warned.size < warned.add(message).size) console.warn(`tinyweb: ${message}`);
}

/**
 * The options of a call, those that are given: undefined and null count as absent, all of them and each.
 * @param call its name, for the message
 * @param known the names there are: others are warned of; undefined: whoever reads the options looks at their names
 * @throws TinywebError "bad-argument": no object, a `signal` that is none, an `on…` that cannot be called
 */
export function optionsOf<Options extends object>(given: Options | null | undefined, call: string, known?: readonly string[]): Options {
  const options: Record<string, unknown> = {};
  if (!present(given)) return options as Options;
  if (typeof given !== "object" || Array.isArray(given) || isSignal(given))
    throw unlike(`The options of ${call}`, "an object, such as { signal }", given);
  for (const [name, value] of Object.entries(given as object)) {
    if (!present(value)) continue;
    if (known && !known.includes(name)) {
      warn(`${call} ignores the option "${name}"; it knows ${known.join(", ")}.`);
      continue;
    }
    if (name === "signal" && !isSignal(value)) throw unlike(name, "an AbortSignal, such as controller.signal", value);
    if (/^on[A-Z]/.test(name)) checkFunction(name, value);
    options[name] = value;
  }
  return options as Options;
}

/** Smallest and largest value of a number; whether it must be an integer. */
export type Range = [min: number, max?: number, whole?: boolean];

/** @throws TinywebError "bad-argument" */
export function checkNumbers<Name extends string>(options: { [name in Name]?: unknown }, ranges: Record<Name, Range>): void {
  for (const [name, range] of Object.entries<Range>(ranges)) checkNumber(name, options[name as Name], ...range);
}

/** @param whole whether it must be an integer @returns what was given; undefined if nothing was @throws TinywebError "bad-argument" */
export function checkNumber(name: string, value: unknown, min: number, max = Infinity, whole = false): number | undefined {
  if (!present(value)) return undefined;
  if (typeof value === "number" && value >= min && value <= max && (!whole || Number.isInteger(value))) return value;
  throw unlike(name, `${whole ? "an integer" : "a number"} ${max === Infinity ? `of at least ${min}` : `in ${min} … ${max}`}`, value);
}
