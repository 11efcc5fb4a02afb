/**
 * One extra WASM thread: a worker that instantiates the module over the shared memory and sleeps until it is woken.
 * The loader's words of `control` (docs/bundle.md): a call's number, how many threads are done, how many functions to run
 * one after another, and which (up to nine). Threads wait for one another inside of the functions, so one call can hold several.
 */

/** Indices of 32-bit words in `control`; the first four belong to the module, as those after the loader's do. */
export const CALL = 4;
export const DONE = 5;
export const COUNT = 6;
export const FUNCTIONS = 7;
/** In place of a number of functions: leave. */
export const QUIT = -1;

/**
 * How often a thread looks before it sleeps, about a tenth of a millisecond: a step of a loop follows the one before sooner, and
 * waking costs as much. Longer would take the core that the page needs to take a token over.
 */
const SPINS = 20_000;

/** Waits until the word is no longer `seen`. */
export function waitWhile(control: Int32Array, word: number, seen: number): void {
  for (let i = 0; i < SPINS; i++) if (Atomics.load(control, word) !== seen) return;
  while (Atomics.load(control, word) === seen) Atomics.wait(control, word, seen);
}

export interface ThreadStart {
  type: "wasm-thread";
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  control: number;
  /** This thread's number, 1 … threads − 1. */
  thread: number;
  threads: number;
  /** End of this thread's stack, which grows downwards. */
  stackTop: number;
  functions: string[];
}

export type ThreadReply = { type: "ready" } | { type: "failed"; message: string };

export type EntryFunction = (thread: number, threads: number) => void;

/** The module's exports for one thread, with its stack set up. */
export async function instantiateThread(
  module: WebAssembly.Module,
  memory: WebAssembly.Memory,
  stackTop: number,
  functions: string[],
): Promise<EntryFunction[]> {
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  const missing = ["__stack_pointer", ...functions].find((name) => !exports[name]);
  if (missing) throw new TypeError(`it does not export ${missing}`);
  (exports["__stack_pointer"] as WebAssembly.Global).value = stackTop;
  return functions.map((name) => exports[name] as EntryFunction);
}

/** Serves calls until told to quit; blocks its worker. */
export async function serveThread(start: ThreadStart, ready: () => void): Promise<void> {
  const { thread, threads } = start;
  const functions = await instantiateThread(start.module, start.memory, start.stackTop, start.functions);
  const control = new Int32Array(start.memory.buffer, start.control, 16);
  let call = Atomics.load(control, CALL);
  ready();
  for (;;) {
    waitWhile(control, CALL, call);
    call = Atomics.load(control, CALL);
    const count = Atomics.load(control, COUNT);
    if (count === QUIT) return;
    for (let i = 0; i < count; i++) (functions[Atomics.load(control, FUNCTIONS + i)] as EntryFunction)(thread, threads);
    if (Atomics.add(control, DONE, 1) + 1 === threads - 1) Atomics.notify(control, DONE);
  }
}
