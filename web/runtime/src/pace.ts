/** What nobody watches may go slowly. */

import { sleep } from "./download.js";

const LONGEST_MS = 2 ** 31 - 1;

/** Knows whether the page is seen. */
export class Pace {
  private hidden = false;
  private waiting: (() => void)[] = [];

  set(hidden: boolean): void {
    this.hidden = hidden;
    if (!hidden) for (const wake of this.waiting.splice(0)) wake();
  }

  /** In a hidden page: waits as long as one of so many per second takes, or until the page is seen. */
  async wait(perSecond: number, signal: AbortSignal | undefined): Promise<void> {
    if (!this.hidden || perSecond === Infinity) return;
    const seen = new Promise<void>((resolve) => this.waiting.push(resolve));
    await Promise.race([seen, sleep(Math.min(1000 / perSecond, LONGEST_MS), signal)]);
  }
}
