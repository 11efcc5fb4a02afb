/**
 * Whether a worker is still there. A browser ends one that takes too much memory without a word: the worker holds a Web Lock,
 * which the page is granted when it has ended. Where there are no locks (pages over http) it is asked from time to time.
 */

/** Seconds between two questions, and how many in a row may stay without an answer: a worker that computes does not listen. */
const ASK_MS = 30_000;
const MOST_UNANSWERED = 10;

/** In the worker. @param tell gets the lock's name once it is held */
export function holdLock(tell: (lock: string) => void): void {
  const locks = globalThis.navigator?.locks as LockManager | undefined;
  if (!locks) return;
  const lock = `tinyweb-worker-${crypto.randomUUID()}`;
  const held = locks.request(lock, () => {
    tell(lock);
    return new Promise(() => undefined);
  });
  held.catch(() => undefined); // a page that may store nothing has no locks
}

/** In the page. */
export class Watch {
  private readonly stopped = new AbortController();
  private unanswered = 0;
  private timer: ReturnType<typeof setInterval> | undefined;

  /** @param ended called when the worker has ended, or says nothing any more @param ask asks the worker, if it has something to do */
  constructor(
    private readonly ended: (why: string) => void,
    private readonly ask: () => boolean,
  ) {
    if (globalThis.document) this.timer = setInterval(() => this.question(), ASK_MS);
  }

  private question(): void {
    if (this.unanswered >= MOST_UNANSWERED) this.ended(`it has not answered for ${(ASK_MS * MOST_UNANSWERED) / 60_000} minutes`);
    else if (this.ask()) this.unanswered += 1;
    else this.unanswered = 0;
  }

  /** The worker has said something. */
  heard(): void {
    this.unanswered = 0;
  }

  /** The worker holds this lock: there is nothing to ask any more. */
  held(lock: string): void {
    clearInterval(this.timer);
    const granted = navigator.locks.request(lock, { signal: this.stopped.signal }, () => this.ended("the browser has ended it"));
    granted.catch(() => undefined); // stopped, or no locks for this page
  }

  stop(): void {
    clearInterval(this.timer);
    this.stopped.abort();
  }
}
