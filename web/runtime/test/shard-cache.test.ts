import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { openShardCache, type ShardCache } from "../src/shard-cache.js";
import { type File_, Folder } from "./opfs.js";

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
    createSyncAccessHandle: () =>
      new Promise((resolve) => (this.silent ? this.waiting.push(() => resolve(this.handle)) : resolve(this.handle))),
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

describe("browser storage", () => {
  let root: Folder;
  beforeEach(() => {
    root = new Folder();
    vi.stubGlobal("navigator", { storage: { getDirectory: async () => root } });
  });
  afterEach(() => vi.unstubAllGlobals());

  const open = async (model = "model"): Promise<ShardCache> => (await openShardCache(model)) as ShardCache;
  const models = (): Folder => root.folders.get("tinyweb-weights") as Folder;
  const folder = (model = "model"): Folder => models().folders.get(model) as Folder;
  const file = (name: string): File_ => folder().files.get(name) as File_;

  it("has a folder for each model, with the mark of its last use", async () => {
    await open("one");
    await open("two");
    await open("one");
    expect([...root.folders.keys()]).toEqual(["tinyweb-weights"]);
    expect([...models().folders.keys()]).toEqual(["one", "two"]);
    expect([...folder("one").files].map(([name, { content, lastModified, open }]) => [name, content.length, lastModified, open])).toEqual([
      ["last-used", 1, 2, false],
    ]);
  });

  it("is opened though another tab marks it at this moment, and not where the browser refuses it", async () => {
    await open();
    file("last-used").open = true;
    expect(await openShardCache("model")).toBeDefined();
    vi.stubGlobal("navigator", {
      storage: {
        getDirectory: async () => {
          throw new DOMException("private", "SecurityError");
        },
      },
    });
    expect(await openShardCache("model")).toBeUndefined();
    vi.stubGlobal("navigator", {});
    expect(await openShardCache("model")).toBeUndefined();
  });

  const bytes = async (read: Promise<Blob | undefined>): Promise<number[]> => [
    ...new Uint8Array((await (await read)?.arrayBuffer()) ?? []),
  ];

  it("gives back what was written, as far as it is kept", async () => {
    const cache = await open();
    expect(await cache.read("a")).toBeUndefined();
    const writer = await cache.open("a", 0);
    expect(await cache.read("a")).toBeUndefined(); // nothing yet
    expect(writer?.write(Uint8Array.of(1, 2, 3), 0)).toBe(true);
    expect(writer?.write(Uint8Array.of(4, 5), 3)).toBe(true);
    await writer?.close();
    expect([file("a").flushed, file("a").open]).toEqual([1, false]);
    expect(await bytes(cache.read("a"))).toEqual([1, 2, 3, 4, 5]);
    const again = await cache.open("a", 2);
    expect(again?.write(Uint8Array.of(9), 2)).toBe(true);
    await again?.close();
    expect(await bytes((await open()).read("a"))).toEqual([1, 2, 9]);
    await cache.remove("a");
    expect(await cache.read("a")).toBeUndefined();
    expect([...folder().files.keys()]).toEqual(["last-used"]);
    await cache.remove("a"); // no matter
  });

  it("says what does not fit, and lets go of the file in any case", async () => {
    const cache = await open();
    const writer = await cache.open("a", 0);
    file("a").room = 4;
    expect([writer?.write(Uint8Array.of(1, 2, 3), 0), writer?.write(Uint8Array.of(4, 5), 3)]).toEqual([true, false]);
    file("a").broken = true;
    expect(writer?.write(Uint8Array.of(6), 0)).toBe(false);
    await expect(writer?.close()).rejects.toThrow("full");
    expect(file("a").open).toBe(false);
  });

  it("is not written by two at once", async () => {
    const cache = await open();
    const writer = await cache.open("a", 0);
    expect(writer).toBeDefined();
    expect(await (await open()).open("a", 0)).toBeUndefined();
    await writer?.close();
    expect(await cache.open("a", 0)).toBeDefined();
  });

  it("gives up the model that was used longest ago, never its own", async () => {
    const cache = await open("mine");
    for (const [name, used] of [
      ["newer", 7],
      ["older", 5],
      ["newest", 9],
      ["mine", 1],
    ] as const) {
      await open(name);
      (folder(name).files.get("last-used") as File_).lastModified = used;
    }
    models().folders.set("unmarked", new Folder());
    await models().getFileHandle("no folder", { create: true });
    const left = async (): Promise<string[]> => [String(await cache.evictOther()), ...models().folders.keys()];
    expect(await left()).toEqual(["true", "mine", "newer", "older", "newest"]);
    expect(await left()).toEqual(["true", "mine", "newer", "newest"]);
    models().held.add("newer");
    expect(await left()).toEqual(["false", "mine", "newer", "newest"]);
    models().held.clear();
    (folder("newest").files.get("last-used") as File_).getFile = async () => {
      throw new DOMException("gone", "NotFoundError");
    };
    expect(await left()).toEqual(["true", "mine", "newer"]); // what cannot be read counts as old
    expect(await left()).toEqual(["true", "mine"]);
    expect(await left()).toEqual(["false", "mine"]);
    expect([...models().files.keys()]).toEqual(["no folder"]);
  });
});
