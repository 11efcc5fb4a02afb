import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Slice } from "../src/engine.js";
import { sha256Hex } from "../src/hash.js";
import { parseManifest } from "../src/manifest.js";
import { loadWeights, type StoreSettings, type WeightsProgress } from "../src/store.js";
import { fakeBundle } from "./fake-bundle.js";
import { BASE, broken, FakeServer } from "./fake-server.js";
import { MemoryStorage } from "./memory-cache.js";

const bundle = fakeBundle();
const manifest = parseManifest(bundle.manifest);
const shard = (i: number): Uint8Array => bundle.files.get(`weights/00${i}.bin`) as Uint8Array;
const PATHS = [0, 1, 2].map((i) => `weights/00${i}.bin`);
const sha = (i: number): string => manifest.weights.shards[i]!.sha256;

let server: FakeServer;
let storage: MemoryStorage;
/** Whether the device's memory takes bytes as they come. */
let inPlace = false;

beforeEach(() => {
  server = new FakeServer(bundle.files);
  storage = new MemoryStorage();
});

/** Loads everything; returns the device's buffers. */
async function load(settings: Partial<StoreSettings> = {}): Promise<Map<number, Uint8Array>> {
  const device = new Map([0, 1].map((id) => [id, new Uint8Array(manifest.buffers[id]!.bytes)]));
  const target = {
    write: (buffer: number, offset: number, bytes: Uint8Array) => void device.get(buffer)!.set(bytes, offset),
    flush: async () => undefined,
    ...(inPlace && { place: ({ buffer, offset, bytes }: Slice) => device.get(buffer)!.subarray(offset, offset + bytes) }),
  };
  await loadWeights(manifest, target, {
    baseUrl: BASE,
    cache: storage.open(manifest.weights.sha256),
    fetch: server.fetch,
    backoffMs: 1,
    stallMs: 60_000,
    ...settings,
  });
  return device;
}

/** Loads the first shard alone. */
const loadFirst = (settings: Partial<StoreSettings> = {}): Promise<void> =>
  loadWeights(
    { ...manifest, weights: { ...manifest.weights, bytes: 600, shards: manifest.weights.shards.slice(0, 1) } },
    { write: () => undefined, flush: async () => undefined },
    {
      baseUrl: BASE,
      cache: storage.open(manifest.weights.sha256),
      fetch: server.fetch,
      backoffMs: 1,
      stallMs: 60_000,
      ...settings,
    },
  );

const all = Buffer.concat([shard(0), shard(1), shard(2)]);

function expectWeights(device: Map<number, Uint8Array>): void {
  expect(Buffer.concat([device.get(0)!, device.get(1)!]).equals(all)).toBe(true);
}

describe.each([false, true])("weights store, bytes put in place as they come: %s", (placed) => {
  beforeEach(() => {
    inPlace = placed;
  });

  it("puts every segment in its place, with at most two shards on their way", async () => {
    expectWeights(await load());
    expect(server.asked.map(({ path }) => path).sort()).toEqual(PATHS);
    expect(server.mostOpen).toBe(2);
  });

  it("downloads nothing on the second visit", async () => {
    const seen: WeightsProgress[] = [];
    await load();
    server.asked.length = 0;
    expectWeights(await load({ onProgress: (progress) => seen.push(progress) }));
    expect(server.asked).toEqual([]);
    expect(seen.at(-1)).toEqual({ loadedBytes: all.length, totalBytes: all.length, fromCache: true });
  });

  it("fetches again what is stored and cannot be read", async () => {
    await load();
    server.asked.length = 0;
    const open = storage.open.bind(storage);
    storage.open = (model) => {
      const cache = open(model);
      const gone = Object.assign(new Blob([new Uint8Array(shard(1).length)]), {
        stream: () => new ReadableStream({ start: (controller) => controller.error(new DOMException("gone", "NotReadableError")) }),
      });
      return { ...cache, read: async (sha256) => (sha256 === sha(1) ? gone : cache.read(sha256)) };
    };
    expectWeights(await load());
    expect(server.asked.map(({ path }) => path)).toEqual([PATHS[1]]);
  });

  it("reports progress up to the total", async () => {
    const seen: WeightsProgress[] = [];
    await load({ onProgress: (progress) => seen.push(progress) });
    expect(seen[0]).toEqual({ loadedBytes: 0, totalBytes: all.length, fromCache: true });
    expect(seen.at(-1)).toMatchObject({ loadedBytes: all.length, totalBytes: all.length, fromCache: false });
    expect(seen.at(-1)?.secondsLeft).toBe(0);
  });

  it("tells how long the rest takes, by what came over the network in the last five seconds, ten times a second at most", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    try {
      const seen: (WeightsProgress & { time: number })[] = [];
      server.fault = (_asked, _count, bytes) => slowly(bytes, 1000);
      let ended = false;
      const loading = load({ onProgress: (progress) => seen.push({ ...progress, time: performance.now() }) }).finally(() => (ended = true));
      while (!ended) await vi.advanceTimersByTimeAsync(50);
      expectWeights(await loading);
      expect(seen.length).toBeGreaterThan(7);
      const times = seen.slice(0, -1).map(({ time }) => time);
      times.slice(1).forEach((time, i) => expect(time - (times[i] as number)).toBeGreaterThanOrEqual(100));
      seen.forEach(({ time, loadedBytes, secondsLeft }, i) => {
        const first = seen.slice(0, i).find((earlier) => time - earlier.time < 5000);
        const speed = first && (loadedBytes - first.loadedBytes) / (time - first.time);
        if (speed) expect(secondsLeft).toBeCloseTo((all.length - loadedBytes) / speed / 1000, 6);
        else expect(secondsLeft).toBeUndefined();
      });
      expect(seen.filter(({ secondsLeft }) => secondsLeft! > 1).length).toBeGreaterThan(3);
    } finally {
      vi.useRealTimers();
    }
  });

  it("reports at once what comes a tenth of a second later", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
    try {
      for (const [pause, bytes] of [
        [100, [0, 100, 200, 300, 400, 500, 600, 600]],
        [99, [0, 200, 400, 600, 600]],
      ] as const) {
        const seen: number[] = [];
        server.fault = (_asked, _count, content) => slowly(content, pause);
        let ended = false;
        const loading = loadFirst({ cache: undefined, onProgress: ({ loadedBytes }) => seen.push(loadedBytes) }).finally(
          () => (ended = true),
        );
        while (!ended) await vi.advanceTimersByTimeAsync(pause);
        await loading;
        expect(seen).toEqual(bytes);
      }
    } finally {
      vi.useRealTimers();
    }
  });

  it("works without storage, and when storage cannot be written", async () => {
    expectWeights(await load({ cache: undefined }));
    storage.locked = true;
    expectWeights(await load());
  });

  it("fetches a shard with a wrong hash once more, past the browser's cache", async () => {
    server.fault = ({ path }, count) => (path === PATHS[1] && count === 1 ? new Response(shard(1).map((b) => b ^ 1)) : undefined);
    expectWeights(await load());
    expect(server.asked.filter(({ path }) => path === PATHS[1]).map(({ cache }) => cache)).toEqual(["default", "reload"]);
  });

  it("gives up on a shard that is wrong twice, and keeps nothing of it", async () => {
    server.fault = ({ path }) => (path === PATHS[1] ? new Response(shard(1).map((b) => b ^ 1)) : undefined);
    await expect(load()).rejects.toMatchObject({ code: "hash-mismatch", message: expect.stringContaining(PATHS[1]!) });
    expect(server.count(PATHS[1]!)).toBe(2);
    expect(storage.models.get(manifest.weights.sha256)?.has(sha(1))).toBe(false);
    await expect(load({ cache: undefined })).rejects.toMatchObject({ code: "hash-mismatch" });
  });

  it("counts what comes again only once", async () => {
    server.ranges = false;
    server.fault = ({ path }, count, content) => {
      if (path !== PATHS[1]) return undefined;
      return count === 1 ? broken(content.slice(0, 100)) : count === 2 ? new Response(content.map((b) => b ^ 1) as BodyInit) : undefined;
    };
    const seen: number[] = [];
    vi.spyOn(performance, "now").mockImplementation(() => 1000 * seen.length + 1000 * server.asked.length); // every report is due
    expectWeights(await load({ onProgress: ({ loadedBytes }) => seen.push(loadedBytes) }));
    vi.restoreAllMocks();
    expect(server.count(PATHS[1]!)).toBe(3);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(seen.at(-1)).toBe(manifest.weights.bytes);
  });

  it("takes no page for a shard, and asks twice at most", async () => {
    server.fault = ({ path }) =>
      path === PATHS[0] ? new Response("<!doctype html>", { headers: { "content-type": "text/html" } }) : undefined;
    await expect(load()).rejects.toMatchObject({ code: "hash-mismatch", message: expect.stringMatching(`${PATHS[0]}: text/html came`) });
    expect(server.count(PATHS[0]!)).toBe(2);
    expect(storage.models.get(manifest.weights.sha256)?.has(sha(0))).toBe(false);
  });

  it("does not swallow a file that is longer than promised", async () => {
    server.fault = ({ path }) => (path === PATHS[0] ? new Response(new Uint8Array(100_000)) : undefined);
    await expect(load()).rejects.toMatchObject({ code: "hash-mismatch" });
    expect(server.count(PATHS[0]!)).toBe(2);
  });

  it("replaces a stored shard that was damaged", async () => {
    await load();
    storage.models.get(manifest.weights.sha256)!.get(sha(2))![0]! ^= 1;
    server.asked.length = 0;
    expectWeights(await load());
    expect(server.asked.map(({ path }) => path)).toEqual([PATHS[2]]);
    server.asked.length = 0;
    expectWeights(await load());
    expect(server.asked).toEqual([]);
  });

  it("goes on where a connection broke", async () => {
    server.fault = ({ path }, count, bytes) => (path === PATHS[0] && count === 1 ? broken(bytes.slice(0, 123)) : undefined);
    expectWeights(await load());
    expect(server.asked.filter(({ path }) => path === PATHS[0]).map(({ range }) => range)).toEqual([null, "bytes=123-"]);
  });

  it("starts again where the server knows no ranges", async () => {
    server.ranges = false;
    server.fault = ({ path }, count, bytes) => (path === PATHS[0] && count === 1 ? broken(bytes.slice(0, 123)) : undefined);
    expectWeights(await load());
  });

  it("goes on with what an earlier visit left", async () => {
    server.fault = (_asked, count, bytes) => (count === 1 ? broken(bytes.slice(0, 50)) : new Response("", { status: 404 }));
    await expect(load()).rejects.toMatchObject({ code: "download-failed" });
    server.fault = () => undefined;
    server.asked.length = 0;
    expectWeights(await load());
    expect(server.asked.find(({ path }) => path === PATHS[0])).toMatchObject({ range: "bytes=50-", cache: "no-store" });
  });

  it("does not blame the server for a damaged beginning", async () => {
    storage.open(manifest.weights.sha256);
    storage.models.get(manifest.weights.sha256)!.set(sha(0), new Uint8Array(40));
    expectWeights(await load());
    expect(server.asked.filter(({ path }) => path === PATHS[0]).map(({ range }) => range)).toEqual(["bytes=40-", null]);
  });

  it("takes no beginning from what is longer than the shard", async () => {
    storage.open(manifest.weights.sha256);
    storage.models.get(manifest.weights.sha256)!.set(sha(0), new Uint8Array(700));
    expectWeights(await load());
    expect(server.asked.filter(({ path }) => path === PATHS[0]).map(({ range }) => range)).toEqual([null]);
  });

  it("waits for a server in trouble", async () => {
    server.fault = ({ path }, count) => (path === PATHS[2] && count <= 2 ? new Response("", { status: 503 }) : undefined);
    expectWeights(await load());
    expect(server.count(PATHS[2]!)).toBe(3);
  });

  it("names the file and the status when it is refused", async () => {
    server.fault = ({ path }) => (path === PATHS[2] ? new Response("", { status: 404, statusText: "Not Found" }) : undefined);
    await expect(load()).rejects.toMatchObject({ code: "download-failed", message: expect.stringMatching(/002\.bin.*404/) });
    expect(server.count(PATHS[2]!)).toBe(1);
  });

  it("gives up after some attempts that bring nothing", async () => {
    server.fault = () => {
      throw new TypeError("Failed to fetch");
    };
    await expect(load()).rejects.toMatchObject({ code: "download-failed", message: expect.stringContaining("Failed to fetch") });
    expect(server.count(PATHS[0]!)).toBe(4);
  });

  it("does not wait for ever on a silent connection", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      server.fault = ({ path }, count) => (path === PATHS[0] && count === 1 ? silent() : undefined);
      let ended = false;
      const loading = load({ stallMs: 200 }).finally(() => (ended = true));
      while (!ended) await vi.advanceTimersByTimeAsync(5);
      expectWeights(await loading);
      expect(server.count(PATHS[0]!)).toBe(2);
    } finally {
      vi.useRealTimers();
    }
  });

  it("stops when asked, at once", async () => {
    const controller = new AbortController();
    server.fault = () => silent();
    setTimeout(() => controller.abort(), 10);
    await expect(load({ signal: controller.signal, stallMs: 60_000 })).rejects.toMatchObject({ code: "aborted" });
    await expect(load({ signal: controller.signal })).rejects.toMatchObject({ code: "aborted" });
  });

  it("gives up an older model when storage is full", async () => {
    storage.open("older");
    storage.models.get("older")!.set("x", new Uint8Array(5000));
    storage.capacity = 5000 + 700;
    expectWeights(await load());
    expect(storage.models.has("older")).toBe(false);
    server.asked.length = 0;
    expectWeights(await load());
    expect(server.asked.length).toBeLessThan(3);
  });

  it("gives up one older model after another, until there is room", async () => {
    for (const [name, bytes] of [
      ["oldest", 100],
      ["older", 5000],
    ] as const) {
      storage.open(name);
      storage.models.get(name)!.set("x", new Uint8Array(bytes));
    }
    storage.capacity = 5100 + 100;
    await loadFirst();
    expect([...storage.models.keys()]).toEqual([manifest.weights.sha256]);
    expect(storage.models.get(manifest.weights.sha256)?.get(sha(0))).toEqual(shard(0));
  });

  it("gives up nothing more where another tab has the file", async () => {
    for (const name of ["oldest", "older"]) {
      storage.open(name);
      storage.models.get(name)!.set("x", new Uint8Array(3000));
    }
    storage.capacity = 6000;
    const cache = storage.open(manifest.weights.sha256);
    let opened = 0;
    const one = { ...cache, open: async (...given: Parameters<typeof cache.open>) => (opened++ > 0 ? undefined : cache.open(...given)) };
    await loadFirst({ cache: one });
    expect(opened).toBe(2);
    expect([...storage.models.keys()]).toEqual(["older", manifest.weights.sha256]);
  });

  it("does without storage from the first shard on that has no room, and not because of a damaged one", async () => {
    storage.capacity = 10;
    const cache = storage.open(manifest.weights.sha256);
    let opened = 0;
    await load({ cache: { ...cache, open: (...given) => ((opened += 1), cache.open(...given)) } });
    expect(opened).toBe(2); // the third shard came after that
    server.fault = (_asked, count) => {
      if (count === 1) return new Response(shard(0).map((b) => b ^ 1));
      storage.capacity = Infinity;
      return undefined;
    };
    server.asked.length = 0;
    await loadFirst();
    expect(server.asked.map(({ cache: mode }) => mode)).toEqual(["default", "reload"]);
    expect(storage.models.get(manifest.weights.sha256)?.get(sha(0))).toEqual(shard(0));
  });

  it("gives up no other model for a shard that is wrong", async () => {
    storage.open("older");
    storage.models.get("older")!.set("x", new Uint8Array(5000));
    storage.capacity = 5000 + 10;
    server.fault = (_asked, _count, bytes) => new Response(bytes.map((b) => b ^ 1));
    await expect(load()).rejects.toMatchObject({ code: "hash-mismatch" });
    expect(storage.models.has("older")).toBe(true);
  });

  it("goes on without storage when there is no room", async () => {
    storage.capacity = 650;
    expectWeights(await load());
    storage.models.clear();
    storage.capacity = all.length - 1;
    expectWeights(await load());
    const lengths = new Map([0, 1, 2].map((i) => [sha(i), shard(i).length]));
    const kept = [...storage.models.values()].flatMap((shards) => [...shards]);
    expect(kept).toHaveLength(2); // one byte was missing for the third
    for (const [name, bytes] of kept) expect(bytes.length).toBe(lengths.get(name)); // beginnings are of no use
  });
});

describe("shards that are copied", () => {
  beforeEach(() => {
    inPlace = false;
  });

  it("hashes one shard at a time, also after one that could not be hashed", async () => {
    let now = 0;
    let most = 0;
    const hash = async (bytes: Uint8Array<ArrayBuffer>): Promise<string> => {
      most = Math.max(most, ++now);
      await new Promise((done) => setTimeout(done, 5));
      now--;
      return sha256Hex(bytes);
    };
    expectWeights(await load({ hash }));
    expect(most).toBe(1);
    await expect(load({ cache: undefined, hash: () => Promise.reject(Error("no hash")) })).rejects.toThrow("no hash");
  });

  it("says what memory was asked for in vain", async () => {
    const enormous = { ...manifest, weights: { ...manifest.weights, shards: [{ ...manifest.weights.shards[0]!, bytes: 2 ** 50 }] } };
    const target = { write: () => undefined, flush: async () => undefined };
    await expect(loadWeights(enormous, target, { baseUrl: BASE, cache: undefined, fetch: server.fetch })).rejects.toMatchObject({
      code: "out-of-memory",
      message: `The browser could not allocate the ${2 ** 50} bytes a part of this model needs.`,
    });
  });
});

/** An answer of 100 bytes after each pause. */
function slowly(bytes: Uint8Array, ms: number): Response {
  let at = 0;
  return new Response(
    new ReadableStream(
      {
        pull: async (controller) => {
          await new Promise((resolve) => setTimeout(resolve, ms));
          controller.enqueue(bytes.slice(at, at + 100));
          at += 100;
          if (at >= bytes.length) controller.close();
        },
      },
      { highWaterMark: 0 },
    ),
  );
}

/** An answer that never brings a byte. */
function silent(): Response {
  return new Response(new ReadableStream({ pull: () => new Promise(() => undefined) }));
}
