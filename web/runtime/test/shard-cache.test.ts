import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { openShardCache } from "../src/shard-cache.js";

/** A file of storage whose locks are given when `give` says so, if ever. */
class Storage {
  readonly written: number[] = [];
  closed = 0;
  silent = false;
  private readonly waiting: (() => void)[] = [];
  private readonly handle = {
    truncate: () => undefined,
    flush: () => undefined,
    write: (bytes: Uint8Array) => this.written.push(bytes.length) && bytes.length,
    close: () => (this.closed += 1),
  };
  private readonly file = {
    createSyncAccessHandle: () => new Promise((resolve) => (this.silent ? this.waiting.push(() => resolve(this.handle)) : resolve(this.handle))),
  };
  private readonly folder = { getDirectoryHandle: async () => this.folder, getFileHandle: async () => this.file } as object;
  readonly getDirectory = async (): Promise<object> => this.folder;

  give(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}

describe("browser storage that does not answer", () => {
  let storage: Storage;
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    storage = new Storage();
    vi.stubGlobal("navigator", { storage });
  });
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  it("is done without, and what it gives too late is given back", async () => {
    const cache = await openShardCache("model");
    expect(storage.closed).toBe(1); // the mark of the last use
    storage.silent = true;
    const writer = cache?.open("shard", 0);
    await vi.advanceTimersByTimeAsync(6000);
    expect(await writer).toBeUndefined();
    storage.give();
    await vi.advanceTimersByTimeAsync(1);
    expect(storage.closed).toBe(2);
    storage.silent = false;
    const next = await cache?.open("shard", 0);
    expect(next?.write(new Uint8Array(5), 0)).toBe(true);
    expect(storage.written).toEqual([1, 5]);
  });

  it("does not keep a model from opening", async () => {
    storage.silent = true;
    const opening = openShardCache("model");
    await vi.advanceTimersByTimeAsync(6000);
    expect(await opening).toBeDefined();
  });
});
