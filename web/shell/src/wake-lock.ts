/** Keeps the screen on while the model works: a phone that goes to sleep would stop it. */

/** Between two runs of a kind that never really pauses, as of a camera's pictures. */
const LINGER_MS = 3000;

export class WakeLock {
  private wanted = false;
  private asking = false;
  private sentinel: WakeLockSentinel | null = null;
  private timer = 0;

  constructor() {
    // Browsers take the lock away when the page is hidden.
    document.addEventListener("visibilitychange", () => this.settle());
  }

  /** @param busy whether the model works now */
  follow(busy: boolean): void {
    clearTimeout(this.timer);
    if (busy === this.wanted) return;
    if (busy) {
      this.wanted = true;
      this.settle();
    } else {
      this.timer = window.setTimeout(() => {
        this.wanted = false;
        this.settle();
      }, LINGER_MS);
    }
  }

  private settle(): void {
    if (this.sentinel?.released === true) this.sentinel = null;
    if (!this.wanted) {
      void this.sentinel?.release().catch(() => undefined);
      this.sentinel = null;
    } else if (this.sentinel === null && !this.asking && !document.hidden) {
      this.asking = true;
      // Refused with a low battery, or where it is not allowed: then the screen is not kept on.
      void Promise.resolve(navigator.wakeLock?.request("screen"))
        .then((sentinel) => (this.sentinel = sentinel ?? null))
        .catch(() => undefined)
        .finally(() => {
          this.asking = false;
          if (!this.wanted) this.settle();
        });
    }
  }
}
