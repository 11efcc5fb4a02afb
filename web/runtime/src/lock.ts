/** Calls that wait for one another, in the order they came. */

import { aborted } from "./errors.js";

export class Lock {
  private tail: Promise<void> = Promise.resolve();

  /** Resolves with the function that lets the next one in. Gives up at once when `signal` fires while waiting. */
  async acquire(signal?: AbortSignal): Promise<() => void> {
    const before = this.tail;
    let release = (): void => undefined;
    this.tail = new Promise<void>((resolve) => (release = resolve));
    const stop = new Promise<"stop">((resolve) => {
      if (signal?.aborted) resolve("stop");
      else signal?.addEventListener("abort", () => resolve("stop"), { once: true });
    });
    if ((await Promise.race([before, stop])) === "stop") {
      void before.then(release);
      throw aborted();
    }
    return release;
  }
}
