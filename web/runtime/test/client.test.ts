import { afterEach, describe, expect, it, vi } from "vitest";
import { Chat, debug } from "../src/client.js";
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
    const info = structuredClone(chat.info);
    const answer = chat.generate(MESSAGES, { maxTokens: 6 });
    expect((await collect(answer)).map(({ token }) => token)).toEqual(expected(ids, 6));
    expect(await answer.result).toEqual({
      promptTokens: ids.length,
      reusedTokens: ids.length - 1,
      droppedMessages: 0,
      answerTokens: 6,
      stopReason: "max-tokens",
      firstTokenMs: expect.any(Number),
      tokensPerSecond: expect.any(Number),
    });
    expect((await answer.result).firstTokenMs).toBeGreaterThan(0);
    expect(chat.info).toEqual(info); // nothing of a call is kept there
    for (const reused of [ids.length - 1, 0]) {
      const again = chat.generateIds(ids, { maxTokens: 4 });
      expect(await collect(again)).toEqual(expected(ids, 4));
      expect((await again.result).reusedTokens).toBe(reused);
      await debug.clearCache(chat);
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
    const left = chat.generateIds([4], { maxTokens: 50 });
    for await (const token of left) if (token >= 0) break;
    expect(await left.result).toMatchObject({ promptTokens: 1, answerTokens: 1, stopReason: "aborted" });
    const next = chat.generateIds([4], { maxTokens: 3 });
    await collect(next);
    expect((await next.result).stopReason).toBe("max-tokens");
  });

  it("has figures of each call, however calls are interleaved", async () => {
    const chat = await open();
    const talks = ["a", "bcd", "efghij"].map((content) => [{ role: "user", content }]);
    const answers = talks.map((messages, i) => chat.generate(messages, { maxTokens: 3 + i, temperature: 0.5, topK: 1, seed: 1 }));
    const ids = chat.generateIds([1, 2], { maxTokens: 2, temperature: 0.5, topK: 1, seed: 1 });
    const figures = [];
    // turn by turn
    for (let open = [...answers, ids]; open.length > 0; ) {
      for (const answer of [...open]) {
        const { done } = await answer.next();
        figures.push(answer.progress.answerTokens);
        if (done) open = open.filter((other) => other !== answer);
      }
    }
    const results = await Promise.all([...answers, ids].map(({ result }) => result));
    expect(results.map(({ promptTokens }) => promptTokens)).toEqual([...talks.map((messages) => promptIds(messages).length), 2]);
    expect(results.map(({ answerTokens }) => answerTokens)).toEqual([3, 4, 5, 2]);
    expect(results.map(({ stopReason }) => stopReason)).toEqual(Array(4).fill("max-tokens"));
    expect(figures.slice(0, 8)).toEqual([1, 1, 1, 1, 2, 2, 2, 2]); // up to the part that was taken
  });

  it("has figures of a call that failed, was stopped or was never sent, and no rejection nobody hears of", async () => {
    const chat = await open();
    const none = { promptTokens: 0, answerTokens: 0 };
    const ends = async (answer: ReturnType<Chat["generateIds"]>): Promise<unknown> => {
      await expect(collect(answer)).rejects.toThrow();
      return answer.result;
    };
    expect(await ends(chat.generateIds([-1]))).toMatchObject({ ...none, stopReason: "failed" });
    expect(await ends(chat.generateIds([4], { topP: 5 }))).toMatchObject({ ...none, stopReason: "failed" });
    expect(await ends(chat.generateIds([4], { signal: AbortSignal.abort() }))).toMatchObject({ ...none, stopReason: "aborted" });
    const controller = new AbortController();
    const stopped = chat.generateIds([4], { maxTokens: 50, temperature: 1, topK: 1, signal: controller.signal });
    await stopped.next();
    await stopped.next();
    controller.abort();
    expect(await ends(stopped)).toMatchObject({ promptTokens: 1, answerTokens: 2, stopReason: "aborted" });
    worker.silent = true;
    const lost = chat.generateIds([4]);
    const failed = ends(lost);
    setImmediate(() => worker.onerror?.({ message: "gone" }));
    expect(await failed).toMatchObject({ ...none, stopReason: "failed" });
  });

  it("stops loading by its signal", async () => {
    const controller = new AbortController();
    const loading = open({ signal: controller.signal, onProgress: () => controller.abort() });
    await expect(loading).rejects.toMatchObject({ code: "aborted" });
    expect(worker.terminated).toBe(true);
    await expect(open({ signal: AbortSignal.abort() })).rejects.toMatchObject({ code: "aborted" });
  });

  it("hands on why loading failed, and ends the worker", async () => {
    const loading = open(
      {},
      ({ server }) => (server.fault = ({ path }) => (path.includes("001") ? new Response("", { status: 403 }) : undefined)),
    );
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
    expect(await debug.loseDevice(chat)).toBe(false);
  });
});
