/** What is said between a page and its model's worker, with a worker that answers when the test says so. */

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Chat, FunctionModel } from "../src/client.js";
import type { LoadOptions, WorkerLike } from "../src/connection.js";
import type { Reply, Request } from "../src/protocol.js";
import { collect } from "./open.js";

class Scripted implements WorkerLike {
  onmessage: WorkerLike["onmessage"] = null;
  onerror: WorkerLike["onerror"] = null;
  readonly told: Request[] = [];
  readonly transferred: unknown[] = [];
  ended = 0;
  /** What posting throws. */
  refuses: Error | undefined;

  postMessage(message: unknown, transfer?: Transferable[]): void {
    if (this.refuses) throw this.refuses;
    this.told.push(message as Request);
    this.transferred.push(transfer);
  }
  terminate(): void {
    this.ended += 1;
  }
  say(reply: object): void {
    this.onmessage?.({ data: reply as Reply });
  }
  /** Requests since the last look. */
  heard(): Request[] {
    return this.told.splice(0);
  }
}

let worker: Scripted;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  worker = new Scripted();
});
afterEach(() => vi.useRealTimers());

const turn = (): Promise<unknown> => vi.advanceTimersByTimeAsync(0);
const BASE = "http://site.test/model/";

async function open(options: LoadOptions = {}): Promise<Chat> {
  const loading = Chat.open(worker, BASE, options);
  await turn();
  worker.say({ type: "info", info: { model: "m" } });
  worker.say({ type: "end", id: 0, value: undefined });
  const chat = await loading;
  worker.heard();
  return chat;
}

describe("loading", () => {
  it("asks for a model, with the options that concern the worker", async () => {
    const before = performance.timeOrigin + performance.now();
    const progress: unknown[] = [];
    const { signal } = new AbortController();
    const loading = Chat.open(worker, BASE, {
      backend: "wasm",
      context: 32,
      memoryBudgetBytes: 5,
      workerUrl: "x.js",
      signal,
      onProgress: (p) => progress.push(p),
      onInterrupted: () => undefined,
    });
    await turn();
    expect(worker.heard()).toEqual([
      { type: "hidden", hidden: false },
      {
        type: "call",
        id: 0,
        call: {
          method: "load",
          task: "chat",
          baseUrl: BASE,
          options: { backend: "wasm", context: 32, memoryBudgetBytes: 5 },
          begun: expect.any(Number),
        },
      },
    ]);
    worker.say({ type: "ready" });
    worker.say({ type: "progress", progress: { phase: "weights" } });
    worker.say({ type: "info", info: { model: "m" } });
    worker.say({ type: "end", id: 0 });
    const chat = await loading;
    expect([progress, chat.info, chat.previousLoadInterrupted]).toEqual([[{ phase: "weights" }], { model: "m" }, undefined]);
    expect(performance.timeOrigin + performance.now()).toBeGreaterThanOrEqual(before);
    expect(worker.ended).toBe(0);
  });

  it("says when it began, by a clock that the worker has too", async () => {
    const loading = FunctionModel.open(worker, new URL(BASE), { memoryBudgetBytes: 1 });
    await turn();
    const { call } = worker.heard()[1] as Extract<Request, { type: "call" }>;
    expect(call).toMatchObject({ method: "load", task: "function", baseUrl: BASE });
    expect(Math.abs((call as { begun: number }).begun - (performance.timeOrigin + performance.now()))).toBeLessThan(60_000);
    worker.say({ type: "end", id: 0 });
    await loading;
  });

  it.each<[string, (w: Scripted) => void, string, string]>([
    ["its script fails", (w) => w.onerror?.({ message: "404" }), "worker-failed", "The model's worker failed: 404"],
    [
      "its script fails without words",
      (w) => w.onerror?.({}),
      "worker-failed",
      "The model's worker failed; is tinyweb-chat-worker.js beside tinyweb.js?",
    ],
    [
      "nothing is heard of it",
      () => vi.advanceTimersByTime(60_000),
      "worker-failed",
      "The model's worker did not start; is tinyweb-chat-worker.js beside tinyweb.js?",
    ],
    [
      "it says no",
      (w) => w.say({ type: "end", id: 0, error: { code: "no-backend", message: "None.", stack: "s" } }),
      "no-backend",
      "None.",
    ],
  ])("ends the worker where %s", async (_name, happens, code, message) => {
    const failed = expect(Chat.open(worker, BASE, {})).rejects.toMatchObject({ code, message });
    await turn();
    happens(worker);
    await failed;
    expect(worker.ended).toBeGreaterThan(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("waits as long as the worker says anything", async () => {
    const loading = Chat.open(worker, BASE, {});
    await vi.advanceTimersByTimeAsync(59_999);
    worker.say({ type: "ready" });
    await vi.advanceTimersByTimeAsync(600_000);
    worker.say({ type: "end", id: 0 });
    expect(await loading).toBeInstanceOf(Chat);
  });
});

describe("a call", () => {
  it("has an id of its own, and its answer's value", async () => {
    const chat = await open();
    const [one, two] = [chat.logits([1]), chat.countTokens([{ role: "user", content: "x" }])];
    await turn();
    expect(worker.heard()).toEqual([
      { type: "call", id: 1, call: { method: "logits", ids: [1] } },
      { type: "call", id: 2, call: { method: "countTokens", messages: [{ role: "user", content: "x" }] } },
    ]);
    worker.say({ type: "end", id: 2, value: 7 });
    worker.say({ type: "end", id: 1, value: Float32Array.of(1) });
    worker.say({ type: "end", id: 1, value: "late" });
    expect([await one, await two]).toEqual([Float32Array.of(1), 7]);
    expect(worker.heard()).toEqual([]); // nothing to cancel
  });

  it("gives parts in their order, also those that came at once, then its end", async () => {
    const chat = await open();
    const parts = collect(chat.generateIds([1], { maxTokens: 2 }));
    await turn();
    expect(worker.heard()).toEqual([{ type: "call", id: 1, call: { method: "generateIds", ids: [1], options: { maxTokens: 2 } } }]);
    for (const part of [5, 6]) worker.say({ type: "part", id: 1, part: { part } });
    await turn();
    worker.say({ type: "part", id: 1, part: { part: 7 } });
    worker.say({ type: "end", id: 1 });
    expect(await parts).toEqual([5, 6, 7]);
  });

  it("is cancelled in the worker when its loop is left", async () => {
    const chat = await open();
    const stream = chat.generateIds([1]);
    const first = stream.next();
    await turn();
    worker.say({ type: "part", id: 1, part: { part: 5 } });
    expect(await first).toEqual({ done: false, value: 5 });
    worker.heard();
    await stream.return();
    expect(worker.heard()).toEqual([{ type: "cancel", id: 1 }]);
  });

  it("ends by its signal: with the worker, or a tenth of a second later without it", async () => {
    const chat = await open();
    for (const listens of [true, false]) {
      const controller = new AbortController();
      let ended = false;
      const stopped = expect(chat.logits([1], controller.signal).finally(() => (ended = true))).rejects.toMatchObject({ code: "aborted" });
      await turn();
      const [{ id } = { id: -1 }] = worker.heard() as Extract<Request, { type: "call" }>[];
      controller.abort();
      expect(worker.heard()).toEqual([{ type: "cancel", id }]);
      if (listens) worker.say({ type: "end", id, error: { code: "aborted", message: "Stopped.", stack: "" } });
      await vi.advanceTimersByTimeAsync(99);
      expect(ended).toBe(listens);
      await vi.advanceTimersByTimeAsync(1);
      await stopped;
      expect(vi.getTimerCount()).toBe(0);
      worker.heard();
    }
    await expect(chat.logits([1], AbortSignal.abort())).rejects.toMatchObject({ code: "aborted" });
    expect(worker.heard()).toEqual([]);
  });

  it("has no result if it was stopped, also where the result came first", async () => {
    const chat = await open();
    const controller = new AbortController();
    const stopped = expect(chat.logits([1], controller.signal)).rejects.toMatchObject({ code: "aborted" });
    await turn();
    worker.say({ type: "end", id: 1, value: Float32Array.of(1) });
    controller.abort();
    await stopped;
  });

  it("that cannot be sent is the caller's mistake, and leaves nothing behind", async () => {
    const chat = await open();
    worker.refuses = new DOMException("() => 1 could not be cloned.", "DataCloneError");
    await expect(chat.logits([1])).rejects.toMatchObject({
      code: "bad-argument",
      message: "The arguments cannot be sent to the worker: () => 1 could not be cloned.",
      cause: worker.refuses,
    });
    worker.refuses = undefined;
    expect(worker.heard()).toEqual([]);
  });
});

describe("a model", () => {
  it("tells its events to those who listen", async () => {
    const chat = await open();
    const heard: unknown[] = [];
    const leave = chat.on("device-lost", (data) => heard.push(data));
    chat.on("backend-changed", (data) => heard.push(data));
    worker.say({ type: "event", name: "device-lost", data: { reason: "a" } });
    worker.say({ type: "event", name: "backend-changed", data: { backend: "wasm" } });
    leave();
    worker.say({ type: "event", name: "device-lost", data: { reason: "b" } });
    expect(heard).toEqual([{ reason: "a" }, { backend: "wasm" }]);
  });

  it("is lost with a thread of its worker", async () => {
    const chat = await open();
    const lost = expect(chat.logits([1])).rejects.toMatchObject({
      code: "worker-failed",
      message: "The model's worker failed: out of memory",
    });
    await turn();
    const port: { onmessage?: (event: object) => void } = {};
    worker.say({ type: "thread", port });
    port.onmessage?.({ data: { message: "out of memory" } });
    await lost;
    expect(worker.ended).toBe(1);
    await expect(chat.logits([1])).rejects.toMatchObject({ code: "worker-failed" });
  });

  it("that is disposed fails what runs, waits for the worker, and ends it once", async () => {
    const chat = await open();
    const running = expect(chat.logits([1])).rejects.toMatchObject({ code: "disposed", message: "This model was disposed." });
    await turn();
    worker.heard();
    const disposed = chat.dispose();
    await running;
    expect(worker.heard()).toEqual([{ type: "dispose" }]);
    worker.say({ type: "part", id: 1, part: { part: 5 } });
    await turn();
    expect(worker.ended).toBe(0);
    worker.say({ type: "disposed" });
    await disposed;
    expect([worker.ended, vi.getTimerCount()]).toEqual([1, 0]);
    await chat.dispose();
    expect([worker.ended, worker.heard()]).toEqual([1, []]);
    await expect(chat.logits([1])).rejects.toMatchObject({ code: "disposed" });
  });

  it("is ended after a second where its worker does not listen", async () => {
    const chat = await open();
    const disposed = chat.dispose();
    await vi.advanceTimersByTimeAsync(999);
    expect(worker.ended).toBe(0);
    await vi.advanceTimersByTimeAsync(1);
    await disposed;
    expect(worker.ended).toBe(1);
  });
});
