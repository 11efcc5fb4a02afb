/** Keeps the screen on while something is made: a phone that goes to sleep would stop it. */

export class WakeLock {
  private wanted = false;
  private sentinel: { release(): Promise<void> } | null = null;

  constructor() {
    // Browsers take the lock away when the page is hidden.
    document.addEventListener("visibilitychange", () => {
      if (this.wanted && document.visibilityState === "visible") void this.request();
    });
  }

  hold(): void {
    this.wanted = true;
    void this.request();
  }

  release(): void {
    this.wanted = false;
    void this.sentinel?.release().catch(() => undefined);
    this.sentinel = null;
  }

  private async request(): Promise<void> {
    try {
      const sentinel = await navigator.wakeLock?.request("screen");
      if (sentinel === undefined) return;
      if (this.wanted) this.sentinel = sentinel;
      else await sentinel.release();
    } catch {
      // Low battery, or not allowed here: then it is not kept on.
    }
  }
}
