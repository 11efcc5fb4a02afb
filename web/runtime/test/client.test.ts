import { afterEach, describe, expect, it, vi } from "vitest";
import { Chat } from "../src/client.js";
import type { LoadOptions } from "../src/connection.js";
import { TinywebError } from "../src/errors.js";
import type { Progress } from "../src/host.js";
import { expected, expectedLogits, promptIds } from "./fake-bundle.js";
import { BASE } from "./fake-server.js";
import { LocalWorker } from "./local-worker.js";
import { collect } from "./open.js";

const chats: Chat[] = [];
let worker: LocalWorker;
async function open(options: LoadOptions = {}, change: (worker: LocalWorker) => void = () => undefined): Promise<Chat> {
  worker = new LocalWorker();
  change(worker);
  const chat = await Chat.open(worker, BASE, { backend: "wasm-single", ...options });
  chats.push(chat);
  return chat;
}
afterEach(() => Promise.all(chats.splice(0).map((chat) => chat.dispose())));

const MESSAGES = [{ role: "user", content: "hi" }];

describe("the page's side", () => {
  it("loads, generates, counts and gives logits", async () => {
    const seen: Progress[] = [];
    const chat = await open({ onProgress: (progress) => seen.push(progress) });
    expect(seen.at(-1)?.phase).toBe("ready");
    expect(chat.info).toMatchObject({ backend: "wasm-single", model: "fake" });
    const ids = promptIds(MESSAGES);
    expect(await chat.countTokens(MESSAGES)).toBe(ids.length);
    expect(await chat.logits(ids)).toEqual(expectedLogits(ids));
    const parts = await collect(chat.generate(MESSAGES, { maxTokens: 6 }));
    expect(parts.map(({ token }) => token)).toEqual(expected(ids, 6));
    expect(chat.info).toMatchObject({ promptTokens: ids.length, stopReason: "max-tokens" });
    expect(chat.info.firstTokenMs).toBeGreaterThan(0);
    for (const reused of [ids.length - 1, 0]) {
      expect(await collect(chat.generateIds(ids, { maxTokens: 4 }))).toEqual(expected(ids, 4));
      expect(chat.info.reusedTokens).toBe(reused);
      await chat.debug.clearCache();
    }
  });

  it("brings errors over with their code", async () => {
    const chat = await open();
    const error: unknown = await collect(chat.generate([], {})).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(TinywebError);
    expect(error).toMatchObject({ code: "bad-argument", name: "TinywebError" });
    await expect(chat.logits([-1])).rejects.toMatchObject({ code: "bad-argument" });
    await expect(collect(chat.generate(MESSAGES, { temperature: (() => 1) as never }))).rejects.toMatchObject({ code: "bad-argument" });
  });

  it("stops an answer by its signal, at once for the caller", async () => {
    const chat = await open();
    const controller = new AbortController();
    const seen: number[] = [];
    const run = async (): Promise<void> => {
      for await (const { token } of chat.generate(MESSAGES, { maxTokens: 40, temperature: 1, topK: 1, signal: controller.signal })) {
        seen.push(token);
        if (seen.length === 2) controller.abort();
      }
    };
    await expect(run()).rejects.toMatchObject({ code: "aborted" });
    expect(seen).toHaveLength(2);
    expect(await collect(chat.generateIds([4], { maxTokens: 5 }))).toEqual(expected([4], 5));
    await expect(collect(chat.generate(MESSAGES, { signal: AbortSignal.abort() }))).rejects.toMatchObject({ code: "aborted" });
  });

  it("stops the worker when the loop is left", async () => {
    const chat = await open();
    for await (const token of chat.generateIds([4], { maxTokens: 50 })) if (token >= 0) break;
    await collect(chat.generateIds([4], { maxTokens: 3 }));
    expect(chat.info.stopReason).toBe("max-tokens");
  });

  it("stops loading by its signal", async () => {
    const controller = new AbortController();
    const loading = open({ signal: controller.signal, onProgress: () => controller.abort() });
    await expect(loading).rejects.toMatchObject({ code: "aborted" });
    expect(worker.terminated).toBe(true);
    await expect(open({ signal: AbortSignal.abort() })).rejects.toMatchObject({ code: "aborted" });
  });

  it("hands on why loading failed, and ends the worker", async () => {
    const loading = open({}, ({ server }) => (server.fault = ({ path }) => (path.includes("001") ? new Response("", { status: 403 }) : undefined)));
    await expect(loading).rejects.toMatchObject({ code: "download-failed" });
    expect(worker.terminated).toBe(true);
  });

  it("reports a worker that cannot start", async () => {
    const loading = open({}, (w) => {
      w.silent = true;
      setImmediate(() => w.onerror?.({ message: "404" }));
    });
    await expect(loading).rejects.toMatchObject({ code: "worker-failed", message: expect.stringContaining("404") });
  });

  it("reports a worker that never says a word", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"], shouldAdvanceTime: true });
    try {
      const loading = open({}, (w) => (w.mute = w.silent = true));
      const failed = expect(loading).rejects.toMatchObject({ code: "worker-failed", message: expect.stringContaining("did not start") });
      await vi.advanceTimersByTimeAsync(61_000);
      await failed;
      expect(worker.terminated).toBe(true);
      const chat = await open(); // one that does speak is left alone
      await vi.advanceTimersByTimeAsync(61_000);
      expect(await collect(chat.generateIds([4], { maxTokens: 3 }))).toEqual(expected([4], 3));
    } finally {
      vi.useRealTimers();
    }
  });

  it("fails what is running when it is disposed, also with a worker that does not listen", async () => {
    const chat = await open();
    const running = collect(chat.generateIds([4], { maxTokens: 60, temperature: 1, topK: 1 }));
    const failed = expect(running).rejects.toMatchObject({ code: "disposed" });
    worker.silent = true;
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const disposed = chat.dispose();
      await failed; // at once
      expect(worker.terminated).toBe(false);
      await vi.advanceTimersByTimeAsync(2000);
      expect(worker.terminated).toBe(true);
      await disposed;
    } finally {
      vi.useRealTimers();
    }
    await expect(chat.logits([1])).rejects.toMatchObject({ code: "disposed" });
    await chat.dispose();
  });

  it("passes events to listeners until they leave", async () => {
    const chat = await open();
    const heard: unknown[] = [];
    const off = chat.on("device-lost", (data) => heard.push(data));
    const event = { type: "event", name: "device-lost", data: { reason: "test" } } as const;
    worker.onmessage?.({ data: event });
    off();
    worker.onmessage?.({ data: event });
    expect(heard).toEqual([{ reason: "test" }]);
    expect(await chat.debug.loseDevice()).toBe(false);
  });
});
