/**
 * Notices that a page was ended while it loaded a model: on phones that is how too little memory shows, without any error. A marker in
 * the page's storage says that a load is on its way; it goes when the load ends in any way that a page can see. One that is still there
 * next time, and that no other tab is using, was left by a page that was ended.
 */

import type { BackendOptions } from "./backend.js";
import type { Phase, Progress } from "./host.js";

/** What to load instead. */
export type SmallerSetting = Pick<BackendOptions, "backend" | "context">;

/** A load of this model that did not come to an end the last time. */
export interface InterruptedLoad {
  /** When it began, in milliseconds since 1970. */
  time: number;
  /** How far it came. */
  phase: Phase;
  loadedBytes: number;
  totalBytes: number;
  /** How many times in a row. */
  times: number;
  /** Load options that take less memory, less each time. */
  recommended: SmallerSetting;
}

interface Marker extends Omit<InterruptedLoad, "recommended"> {
  backend: BackendOptions["backend"];
}

/** Tokens of context to begin with; halved with every further time. */
const CONTEXT = 1024;
const LEAST = 256;

/** WASM memory that nothing was written to costs nothing, so that there a smaller context takes less. */
export function smaller({ backend, times }: Pick<Marker, "backend" | "times">): SmallerSetting {
  return { backend: backend?.startsWith("wasm") ? "wasm-single" : "wasm", context: Math.max(LEAST, CONTEXT >> (times - 1)) };
}

/** Storage that is full, damaged or refused only costs the notice. */
function quietly<Result>(work: () => Result): Result | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** The marker of one model, for one load. */
export class LoadMarker {
  private marker: Marker | undefined;
  private release = (): void => undefined;
  private readonly leave = (): void => this.clear();
  private readonly look = (): void => this.write();

  private constructor(
    private readonly key: string,
    private readonly storage: Storage,
  ) {}

  /** @returns nothing where there is no storage: in workers, in Node, where the browser refuses it */
  static of(baseUrl: string | URL): LoadMarker | undefined {
    // Node has a `localStorage` that warns when it is touched; only pages have a document.
    // Without locks (plain http) nothing tells of other tabs: each has a marker of its own.
    return quietly(
      () => globalThis.document && new LoadMarker(`tinyweb-loading:${String(baseUrl)}`, navigator.locks ? localStorage : sessionStorage),
    );
  }

  /** The load that was interrupted, if one was. */
  async previous(): Promise<InterruptedLoad | undefined> {
    const left = quietly(() => JSON.parse(this.storage.getItem(this.key) as string) as Marker);
    const locks = await navigator.locks?.query().catch(() => undefined);
    if (!left?.times || locks?.held?.some(({ name }) => name === this.key)) return undefined; // another tab is at it
    this.marker = left;
    const { backend: _tried, ...rest } = left;
    return { ...rest, recommended: smaller(left) };
  }

  /** Loading begins. */
  set(backend: BackendOptions["backend"]): void {
    const times = (this.marker?.times ?? 0) + 1;
    this.marker = { time: Date.now(), phase: "manifest", loadedBytes: 0, totalBytes: 0, times, backend };
    globalThis.addEventListener("pagehide", this.leave);
    document?.addEventListener("visibilitychange", this.look);
    const over = new Promise<void>((resolve) => (this.release = resolve));
    navigator.locks?.request(this.key, { mode: "shared" }, () => over).catch(() => undefined);
    this.write();
  }

  progress({ phase, loadedBytes, totalBytes }: Progress): void {
    if (!this.marker) return;
    Object.assign(this.marker, { phase, loadedBytes, totalBytes });
    this.write();
  }

  /** Loading has ended, well or not, or the reader leaves. */
  clear(): void {
    this.marker = undefined;
    globalThis.removeEventListener("pagehide", this.leave);
    document?.removeEventListener("visibilitychange", this.look);
    this.release();
    this.write();
  }

  /** Pages that nobody looks at are ended all the time; that says nothing of this one's memory. */
  private write(): void {
    const { key, marker, storage } = this;
    quietly(() => (marker && !document?.hidden ? storage.setItem(key, JSON.stringify(marker)) : storage.removeItem(key)));
  }
}
