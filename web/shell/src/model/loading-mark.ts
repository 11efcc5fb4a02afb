/**
 * Notices on the next visit that the page was ended while it loaded its model. Systems that are short of memory end pages
 * without a word: an iPhone just opens the page anew.
 */

import type { KeyValueStore } from "../store/storage";

export interface LoadingMark {
  /** Whether the last load neither ended nor was left by the reader. */
  interrupted(): Promise<boolean>;
  begin(): void;
  end(): void;
}

const KEY = "loading";

/** Sets a mark in storage while the model loads; a page that the reader closes, or does not look at, takes it away. */
export class StoredLoadingMark implements LoadingMark {
  private loading = false;
  private release: () => void = () => undefined;

  /** @param lock names this page among all of its origin */
  constructor(
    private readonly storage: KeyValueStore,
    private readonly lock: string,
  ) {
    addEventListener("pagehide", () => {
      if (this.loading) this.storage.remove(KEY);
    });
    document.addEventListener("visibilitychange", () => {
      if (!this.loading) return;
      // Pages in the background are ended all the time; that says nothing of this one's size.
      if (document.hidden) this.storage.remove(KEY);
      else this.storage.set(KEY, this.tab());
    });
  }

  async interrupted(): Promise<boolean> {
    const left = this.storage.get(KEY);
    if (left === undefined) return false;
    this.storage.remove(KEY);
    // Another tab may be loading just now: it holds the lock. Without locks only this very tab is sure to be the one.
    const locks = await navigator.locks?.query().catch(() => undefined);
    return locks === undefined ? left === this.tab() : !locks.held?.some(({ name }) => name === this.lock);
  }

  begin(): void {
    this.end();
    this.loading = true;
    if (!document.hidden) this.storage.set(KEY, this.tab());
    const held = new Promise<void>((resolve) => (this.release = resolve));
    void navigator.locks?.request(this.lock, { mode: "shared" }, () => held).catch(() => undefined);
  }

  end(): void {
    if (!this.loading) return;
    this.loading = false;
    this.storage.remove(KEY);
    this.release();
  }

  /** Stays the same over reloads of this tab. */
  private tab(): string {
    try {
      const kept = sessionStorage.getItem(this.lock) ?? Array.from(crypto.getRandomValues(new Uint32Array(2))).join("-");
      sessionStorage.setItem(this.lock, kept);
      return kept;
    } catch {
      return "unknown";
    }
  }
}
