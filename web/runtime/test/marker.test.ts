import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { LoadOptions } from "../src/connection.js";
import { deviceKind, memoryBudget } from "../src/device.js";
import { Chat } from "../src/client.js";
import { LoadMarker, smaller, type InterruptedLoad } from "../src/marker.js";
import { BASE } from "./fake-server.js";
import type { Progress } from "../src/host.js";
import { LocalWorker } from "./local-worker.js";

const GIB = 2 ** 30;
const KEY = `tinyweb-loading:${BASE.href}`;

/** A page, as far as the marker sees one. */
class Page extends EventTarget {
  hidden = false;
  readonly kept = new Map<string, string>();
  readonly localStorage = {
    getItem: (key: string) => this.kept.get(key) ?? null,
    setItem: (key: string, value: string) => void this.kept.set(key, value),
    removeItem: (key: string) => void this.kept.delete(key),
  };
  readonly held: { name: string; mode?: LockMode | undefined }[] = [];
  readonly locks = {
    query: async () => ({ held: this.held }),
    request: async (name: string, { mode }: LockOptions, work: () => Promise<void>) => {
      const lock = { name, mode };
      this.held.push(lock);
      await work();
      this.held.splice(this.held.indexOf(lock), 1);
    },
  };
}

let page: Page;
const chats: Chat[] = [];
beforeEach(() => {
  page = new Page();
  vi.stubGlobal("document", page);
  vi.stubGlobal("localStorage", page.localStorage);
  vi.stubGlobal("navigator", { locks: page.locks });
  for (const name of ["addEventListener", "removeEventListener"] as const) vi.stubGlobal(name, page[name].bind(page));
});
afterEach(async () => {
  await Promise.all(chats.splice(0).map((chat) => chat.dispose()));
  vi.unstubAllGlobals();
});

async function open(options: LoadOptions = {}): Promise<Chat> {
  const chat = await Chat.open(new LocalWorker(), BASE, { backend: "wasm-single", ...options });
  chats.push(chat);
  return chat;
}

const left = (change: object = {}): void =>
  void page.kept.set(
    KEY,
    JSON.stringify({
      time: 5,
      phase: "weights",
      loadedBytes: 10,
      totalBytes: 100,
      times: 1,
      backend: "auto",
      ...change,
    }),
  );

describe("a load that is interrupted", () => {
  it("is marked as long as it lasts", async () => {
    const phases: unknown[] = [];
    const chat = await open({ onProgress: () => phases.push((JSON.parse(page.kept.get(KEY) ?? "{}") as { phase?: string }).phase) });
    expect([...new Set(phases)]).toEqual(["manifest", "weights", "compile", "ready"]);
    expect(page.kept.size).toBe(0);
    await Promise.resolve();
    expect(page.held.filter(({ name }) => !name?.startsWith("tinyweb-worker-"))).toEqual([]); // workers hold theirs
    expect(chat.previousLoadInterrupted).toBeUndefined();
  });

  it("is not one that failed, was stopped, or whose reader left", async () => {
    await expect(open({ memoryBudgetBytes: 1 })).rejects.toMatchObject({ code: "out-of-memory" });
    expect(page.kept.size).toBe(0);
    const controller = new AbortController();
    await expect(open({ signal: controller.signal, onProgress: () => controller.abort() })).rejects.toMatchObject({ code: "aborted" });
    expect(page.kept.size).toBe(0);
    await open({ onProgress: ({ phase }) => phase === "weights" && page.dispatchEvent(new Event("pagehide")) });
    expect(page.kept.size).toBe(0);
  });

  it("is not one of a page that nobody looked at", async () => {
    const kept: boolean[] = [];
    const show = (hidden: boolean): void => {
      page.hidden = hidden;
      page.dispatchEvent(new Event("visibilitychange"));
      kept.push(page.kept.has(KEY));
    };
    await open({
      onProgress: ({ phase }) => {
        if (phase === "weights" && kept.length === 0) show(true);
        if (phase === "compile") {
          kept.push(page.kept.has(KEY));
          show(false);
        }
      },
    });
    expect(kept).toEqual([false, false, true]);
    expect(page.kept.size).toBe(0);
    show(true);
    show(false);
    expect(page.kept.size).toBe(0);
  });

  it("is noticed the next time, before anything is downloaded, and the smaller setting is taken", async () => {
    left();
    const told: InterruptedLoad[] = [];
    const chat = await open({
      backend: "wasm",
      context: 60,
      onInterrupted: (previous) => {
        told.push(previous);
        return { backend: "wasm-single", context: 32 };
      },
    });
    expect(told).toEqual([
      { time: 5, phase: "weights", loadedBytes: 10, totalBytes: 100, times: 1, recommended: { backend: "wasm", context: 1024 } },
    ]);
    expect(chat.previousLoadInterrupted).toEqual(told[0]);
    expect(chat.info).toMatchObject({ backend: "wasm-single", context: 32, fullContext: 64 });
    await expect(chat.logits(Array.from({ length: 33 }, () => 1))).rejects.toMatchObject({ code: "context-full" });
    expect(page.kept.size).toBe(0);
  });

  it("is asked about without being answered", async () => {
    left({ times: 2, backend: "wasm" });
    const chat = await open({ onInterrupted: async () => undefined });
    expect(chat.previousLoadInterrupted?.recommended).toEqual({ backend: "wasm-single", context: 512 });
    expect(chat.info).toMatchObject({ backend: "wasm-single", context: 64 });
  });

  it("counts how often", async () => {
    left({ times: 3 });
    let times: unknown;
    await open({ onProgress: () => (times ??= (JSON.parse(page.kept.get(KEY) as string) as { times: number }).times) });
    expect(times).toBe(4);
    expect(smaller({ backend: "auto", times: 9 })).toEqual({ backend: "wasm", context: 256 });
  });

  it("ends with what the question throws, and is asked about once", async () => {
    left();
    const onInterrupted = (): never => {
      throw new Error("asked");
    };
    await expect(open({ onInterrupted })).rejects.toThrow("asked");
    expect((await open({ onInterrupted })).previousLoadInterrupted).toBeUndefined();
  });

  it("is this tab's own matter where nothing tells of others", async () => {
    vi.stubGlobal("navigator", {});
    left();
    vi.stubGlobal("sessionStorage", { getItem: () => null, setItem: () => undefined, removeItem: () => undefined });
    expect((await open()).previousLoadInterrupted).toBeUndefined();
    vi.stubGlobal("sessionStorage", page.localStorage);
    expect((await open()).previousLoadInterrupted?.times).toBe(1);
  });

  it("holds a lock of its name, and listens, from the beginning to the end", async () => {
    const marker = LoadMarker.of(BASE) as LoadMarker;
    marker.set("wasm");
    expect(JSON.parse(page.kept.get(KEY) as string)).toMatchObject({
      phase: "manifest",
      loadedBytes: 0,
      totalBytes: 0,
      times: 1,
      backend: "wasm",
    });
    await new Promise(setImmediate);
    expect(page.held).toEqual([{ name: KEY, mode: "shared" }]);
    page.dispatchEvent(new Event("pagehide"));
    expect(page.kept.size).toBe(0);
    await new Promise(setImmediate);
    expect(page.held).toEqual([]);
    // what another tab's load writes from now on is that tab's
    for (const event of ["pagehide", "visibilitychange"]) {
      left();
      page.dispatchEvent(new Event(event));
      expect(page.kept.has(KEY)).toBe(true);
    }
    marker.progress({ phase: "weights", loadedBytes: 1, totalBytes: 2 } as Progress);
    expect(JSON.parse(page.kept.get(KEY) as string)).toMatchObject({ loadedBytes: 10 });
  });

  it("recommends what takes less, whatever was asked for", () => {
    for (const [backend, less] of [
      ["auto", "wasm"],
      ["webgpu", "wasm"],
      [undefined, "wasm"],
      ["wasm", "wasm-single"],
      ["wasm-single", "wasm-single"],
    ] as const) {
      expect(smaller({ backend, times: 1 })).toEqual({ backend: less, context: 1024 });
    }
  });

  it("is noticed while other models are loaded, and where locks are not told of", async () => {
    left();
    page.held.push({ name: `${KEY}other` });
    expect((await LoadMarker.of(BASE)?.previous())?.times).toBe(1);
    page.locks.query = async () => ({}) as never;
    expect((await LoadMarker.of(BASE)?.previous())?.times).toBe(1);
  });

  it("is none while another tab loads", async () => {
    left();
    page.held.push({ name: KEY });
    const onInterrupted = vi.fn();
    expect((await open({ onInterrupted })).previousLoadInterrupted).toBeUndefined();
    expect(onInterrupted).not.toHaveBeenCalled();
  });

  it("costs nothing where storage is refused, damaged, or there is no page", async () => {
    page.kept.set(KEY, "{");
    expect((await open()).previousLoadInterrupted).toBeUndefined();
    page.localStorage.setItem = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
    await open();
    vi.stubGlobal("localStorage", undefined);
    Object.defineProperty(globalThis, "localStorage", {
      configurable: true,
      get: () => {
        throw new DOMException("no", "SecurityError");
      },
    });
    await open();
    vi.stubGlobal("document", undefined);
    expect(LoadMarker.of(BASE)).toBeUndefined();
  });
});

describe("what a page may count on", () => {
  const IPHONE =
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1";
  const MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Safari/605.1.15";
  const PIXEL = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Mobile Safari/537.36";

  it.each([
    ["iphone", { userAgent: IPHONE, maxTouchPoints: 5 }, GIB],
    ["ipad", { userAgent: MAC, maxTouchPoints: 5 }, 1.5 * GIB],
    ["android", { userAgent: PIXEL, deviceMemory: 4 }, 1.6 * GIB],
    ["android", { userAgent: PIXEL }, GIB],
    ["computer", { userAgent: MAC, maxTouchPoints: 0 }, Infinity],
    ["computer", { deviceMemory: 4 }, 2 * GIB],
    ["computer", { deviceMemory: 8 }, Infinity],
    ["computer", {}, Infinity],
  ] as const)("%s: %j", (kind, told, budget) => {
    expect(deviceKind(told)).toBe(kind);
    expect(memoryBudget(told)).toBeCloseTo(budget, -3);
  });

  it("is what load compares with, unless it is told otherwise", async () => {
    vi.stubGlobal("navigator", { userAgent: PIXEL, deviceMemory: 1e-6, locks: page.locks });
    await expect(open()).rejects.toMatchObject({
      code: "out-of-memory",
      message: expect.stringContaining("a page can count on about 1 MB here"),
    });
    await open({ memoryBudgetBytes: Infinity });
  });
});

describe("a hidden page", () => {
  it("gets as many tokens per second as it asks for, and all of them when it is seen again", async () => {
    const chat = await open();
    const options = { maxTokens: 12, temperature: 0.5, topK: 1, seed: 1 };
    const all: number[] = [];
    for await (const token of chat.generateIds([4], options)) all.push(token);
    page.hidden = true;
    page.dispatchEvent(new Event("visibilitychange"));
    const seen: number[] = [];
    const running = (async () => {
      for await (const token of chat.generateIds([4], { ...options, hiddenTokensPerSecond: 0 })) seen.push(token);
    })();
    await expect.poll(() => seen.length).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 300)); // in which there would be more
    expect(seen.length).toBe(1);
    page.hidden = false;
    page.dispatchEvent(new Event("visibilitychange"));
    await running;
    expect(seen).toEqual(all);
    page.hidden = true;
    page.dispatchEvent(new Event("visibilitychange"));
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 100);
    const stopped = chat.generateIds([4], { ...options, hiddenTokensPerSecond: 0, signal: controller.signal });
    await expect(
      (async () => {
        for await (const _ of stopped);
      })(),
    ).rejects.toMatchObject({ code: "aborted" });
    seen.length = 0;
    for await (const token of chat.generateIds([4], { ...options, hiddenTokensPerSecond: 100 })) seen.push(token);
    expect(seen).toEqual(all);
  });
});
