/** Programs and servers that tests start: one for a whole run, with limits, and the only second tries there are. */

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { errors } from "playwright-core";

/** The work's result, or an error that says what was waited for. */
export async function within<T>(ms: number, what: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Waited ${ms / 1000} s for ${what}.`)), ms);
  });
  try {
    return await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}

interface Shared {
  value: Promise<unknown>;
  users: number;
}

/** Vitest loads the set-up files of each project anew; what they share hangs on the process. */
const all = ((globalThis as unknown as { tinywebShared?: Map<string, Shared> }).tinywebShared ??= new Map());

/** What several projects of a run use: made for the first, `end`ed after the last. Returns it and what gives it back. */
export async function shared<T>(name: string, make: () => Promise<T>, end: (made: T) => Promise<void>): Promise<[T, () => Promise<void>]> {
  const entry = all.get(name) ?? { value: make(), users: 0 };
  all.set(name, entry);
  entry.users += 1;
  const made = (await entry.value) as T;
  return [
    made,
    async () => {
      entry.users -= 1;
      if (entry.users === 0) {
        all.delete(name);
        await end(made);
      }
    },
  ];
}

const MOST_RETRIES = 5;
let retries = 0;

/** Counts a second try, in the file that all test programs of a run share, if there is one. */
function noteRetry(line: string): void {
  const log = process.env["TINYWEB_RETRY_LOG"];
  const before = log === undefined ? retries : existsSync(log) ? readFileSync(log, "utf8").split("\n").filter(Boolean).length : 0;
  retries += 1;
  if (log !== undefined) appendFileSync(log, `${line}\n`);
  console.warn(`second try: ${line}`);
  if (before >= MOST_RETRIES) throw new Error(`More than ${MOST_RETRIES} programs had to be started twice in this run; the last: ${line}`);
}

/** A browser that a busy machine did not let come up: it said nothing in time, or ended before it did. */
function didNotStart(error: unknown): error is Error {
  return (
    error instanceof errors.TimeoutError ||
    (error instanceof Error && /browser has been closed|Failed to launch the browser process/u.test(error.message))
  );
}

/** Starts a browser, once more if it did not come up. */
export async function startBrowser<T>(launch: () => Promise<T>): Promise<T> {
  try {
    return await launch();
  } catch (error) {
    if (!didNotStart(error)) throw error;
    noteRetry(`starting the browser: ${error.name}: ${error.message.split("\n", 1)[0]}`);
    return launch();
  }
}
