/** Calls that wait for one another, in the order they came. */

import { aborted } from "./errors.js";

export class Lock {
  private tail: Promise<void> = Promise.resolve();

  /** Resolves with the function that lets the next one in. Gives up at once when `signal` fires while waiting. */
  async acquire(signal?: AbortSignal): Promise<() => void> {
    const before = this.tail;
    let release = (): void => undefined;
    this.tail = new Promise<void>((resolve) => (release = resolve));
    let stop = (): void => undefined;
    const stopped = new Promise<"stop">((resolve) => (stop = () => resolve("stop")));
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop);
    const first = await Promise.race([before, stopped]);
    signal?.removeEventListener("abort", stop); // one signal may serve many calls
    if (first === "stop") {
      void before.then(release);
      throw aborted();
    }
    return release;
  }
}
