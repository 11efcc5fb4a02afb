/** A worker that ends, and one that stops answering: the page learns of both. */

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Chat } from "../src/client.js";
import type { WorkerLike } from "../src/connection.js";
import { holdLock } from "../src/life.js";
import type { Reply, Request } from "../src/protocol.js";
import { collect } from "./open.js";

class Scripted implements WorkerLike {
  onmessage: WorkerLike["onmessage"] = null;
  onerror: WorkerLike["onerror"] = null;
  pings = 0;
  answers = true;
  ended = false;
  postMessage(message: unknown): void {
    if ((message as Request).type !== "ping") return;
    this.pings += 1;
    if (this.answers) this.say({ type: "pong" });
  }
  terminate(): void {
    this.ended = true;
  }
  say(reply: object): void {
    this.onmessage?.({ data: reply as Reply });
  }
}

/** Locks of a browser, as far as they are asked for here. */
class Locks {
  private readonly queues = new Map<string, (() => Promise<unknown>)[]>();

  request(name: string, given: LockOptions | (() => unknown), then?: () => unknown): Promise<unknown> {
    const { signal } = typeof given === "function" ? ({} as LockOptions) : given;
    const callback = (then ?? given) as () => unknown;
    const queue = this.queues.get(name) ?? [];
    this.queues.set(name, queue);
    return new Promise((resolve, reject) => {
      const hold = async (): Promise<unknown> => resolve(await callback());
      queue.push(hold);
      signal?.addEventListener("abort", () => {
        queue.splice(queue.indexOf(hold), 1);
        reject(new DOMException("stopped", "AbortError"));
      });
      if (queue.length === 1) void Promise.resolve().then(hold);
    });
  }

  /** What happens to the lock of a worker that has ended. */
  async release(name: string): Promise<void> {
    const queue = this.queues.get(name) ?? [];
    queue.shift();
    await queue[0]?.();
  }

  waiting(name: string): number {
    return (this.queues.get(name) ?? []).length;
  }
}

let worker: Scripted;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] });
  vi.stubGlobal("document", { hidden: false, addEventListener: () => undefined, removeEventListener: () => undefined });
  worker = new Scripted();
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const MINUTES = 60_000;

async function open(): Promise<Chat> {
  const loading = Chat.open(worker, "http://site.test/model/", {});
  await vi.advanceTimersByTimeAsync(0);
  worker.say({ type: "ready" });
  worker.say({ type: "end", id: 0 });
  return loading;
}

const ask = (chat: Chat): Promise<unknown> => collect(chat.generate([{ role: "user", content: "Hi" }]));

describe("a worker with a lock", () => {
  it("holds it as long as it lives, under a name of its own", async () => {
    const locks = new Locks();
    vi.stubGlobal("navigator", { locks });
    const names: string[] = [];
    holdLock((name) => names.push(name));
    holdLock((name) => names.push(name));
    await vi.advanceTimersByTimeAsync(0);
    expect(new Set(names).size).toBe(2);
    expect(names.map((name) => locks.waiting(name))).toEqual([1, 1]);
  });

  it("says nothing of one that it does not get", async () => {
    const told = vi.fn();
    vi.stubGlobal("navigator", { locks: { request: () => Promise.reject(new DOMException("no", "SecurityError")) } });
    holdLock(told);
    vi.stubGlobal("navigator", {});
    holdLock(told);
    await vi.advanceTimersByTimeAsync(0);
    expect(told).not.toHaveBeenCalled();
  });

  it("ends what waits for it when it ends", async () => {
    const locks = new Locks();
    vi.stubGlobal("navigator", { locks });
    holdLock((lock) => worker.say({ type: "held", lock }));
    const chat = await open();
    const [name] = [...(locks as unknown as { queues: Map<string, unknown> }).queues.keys()] as [string];
    await vi.advanceTimersByTimeAsync(60 * MINUTES);
    expect(worker.pings).toBe(0); // there is nothing to ask
    const failed = expect(ask(chat)).rejects.toMatchObject({
      code: "worker-failed",
      message: expect.stringContaining("the browser has ended it"),
    });
    await vi.advanceTimersByTimeAsync(0);
    await locks.release(name);
    await failed;
    await expect(ask(chat)).rejects.toMatchObject({ code: "worker-failed" });
    expect(worker.ended).toBe(true);
  });

  it("is not waited for after the model was disposed", async () => {
    const locks = new Locks();
    vi.stubGlobal("navigator", { locks });
    holdLock((lock) => worker.say({ type: "held", lock }));
    const chat = await open();
    const [name] = [...(locks as unknown as { queues: Map<string, unknown> }).queues.keys()] as [string];
    expect(locks.waiting(name)).toBe(2);
    const done = chat.dispose();
    await vi.advanceTimersByTimeAsync(2000);
    await done;
    expect(locks.waiting(name)).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("a worker without a lock", () => {
  beforeEach(() => vi.stubGlobal("navigator", {}));

  it("is asked while it has something to do, and left alone otherwise", async () => {
    const chat = await open();
    await vi.advanceTimersByTimeAsync(60 * MINUTES);
    expect(worker.pings).toBe(0);
    const asked = ask(chat);
    await vi.advanceTimersByTimeAsync(60 * MINUTES);
    expect(worker.pings).toBe(120);
    worker.say({ type: "end", id: 1 });
    await asked;
  });

  it("is given up when it does not answer for five minutes", async () => {
    const chat = await open();
    worker.answers = false;
    const failed = expect(ask(chat)).rejects.toMatchObject({
      code: "worker-failed",
      message: expect.stringContaining("has not answered for 5 minutes"),
    });
    await vi.advanceTimersByTimeAsync(5 * MINUTES);
    expect(worker.ended).toBe(false);
    await vi.advanceTimersByTimeAsync(MINUTES);
    await failed;
    expect(worker.ended).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("may compute for a while", async () => {
    const chat = await open();
    worker.answers = false;
    const asked = ask(chat);
    for (let i = 0; i < 5; i++) {
      await vi.advanceTimersByTimeAsync(4 * MINUTES);
      worker.say({ type: "part", id: 1, part: { figures: {} } });
    }
    worker.say({ type: "end", id: 1 });
    await asked;
    expect(worker.ended).toBe(false);
  });
});
