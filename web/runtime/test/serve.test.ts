/** The worker's side, with what is posted to the page in a list. */

import { afterEach, describe, expect, it, vi } from "vitest";
import { ChatSession, type ChatInfo } from "../src/chat.js";
import { FunctionSession, type RunAnswer } from "../src/function.js";
import { ModelHost } from "../src/host.js";
import type { Call, Reply, Request, WirePart } from "../src/protocol.js";
import { serve, type Open } from "../src/serve.js";
import { expected, expectedLogits, fakeBundle, promptIds, type FakeBundle } from "./fake-bundle.js";
import { fakeFunction } from "./fake-function.js";
import { BASE, FakeServer } from "./fake-server.js";
import { alive, spawnNodeThread } from "./node-thread.js";
import { NO_GPU } from "./open.js";

type Of<Type extends Reply["type"]> = Extract<Reply, { type: Type }>;

const OPEN: Record<"chat" | "function", Open> = { chat: ChatSession.open, function: FunctionSession.open };

class Page {
  readonly replies: Reply[] = [];
  readonly transferred: Transferable[][] = [];
  readonly tell: (request: Request) => void;
  private nextId = 7;

  constructor(
    bundle: FakeBundle = fakeBundle(),
    private readonly task: "chat" | "function" = "chat",
  ) {
    this.tell = serve(
      {
        postMessage: (reply, transfer = []) => {
          this.replies.push(reply);
          this.transferred.push(transfer);
        },
      },
      OPEN[task],
      {
        spawn: spawnNodeThread,
        fetch: new FakeServer(bundle.files).fetch,
        platform: NO_GPU,
        openCache: async () => undefined,
        download: { backoffMs: 1 },
      },
    );
  }

  of<Type extends Reply["type"]>(type: Type): Of<Type>[] {
    return this.replies.filter((reply): reply is Of<Type> => reply.type === type);
  }
  ask(call: Call): number {
    this.tell({ type: "call", id: this.nextId, call });
    return this.nextId++;
  }
  async end(id: number): Promise<Of<"end">> {
    await expect.poll(() => this.of("end").some((end) => end.id === id), { timeout: 10_000 }).toBe(true);
    return this.of("end").find((end) => end.id === id) as Of<"end">;
  }
  async answer(call: Call): Promise<unknown> {
    const { value, error } = await this.end(this.ask(call));
    expect(error).toBeUndefined();
    return value;
  }
  load(backend: "wasm" | "wasm-single" = "wasm-single"): number {
    return this.ask({
      method: "load",
      task: this.task,
      baseUrl: String(BASE),
      options: { backend },
      begun: performance.timeOrigin + performance.now() - 500,
    });
  }
  parts(id: number): WirePart[] {
    return this.of("part")
      .filter((part) => part.id === id)
      .map(({ part }) => part);
  }
  said(id: number): unknown[] {
    return this.parts(id)
      .map(({ part }) => part)
      .filter((part) => part !== undefined);
  }
}

const pages: Page[] = [];
async function open(bundle?: FakeBundle, task?: "chat" | "function"): Promise<Page> {
  const page = new Page(bundle, task);
  pages.push(page);
  const { error } = await page.end(page.load());
  expect(error).toBeUndefined();
  return page;
}
afterEach(() => vi.restoreAllMocks());
afterEach(() => pages.splice(0).forEach((page) => page.tell({ type: "dispose" })));

const MESSAGES = [{ role: "user", content: "hi" }];

describe("a worker", () => {
  it("says that it is there, tells of the load, and what it loaded before it says so", async () => {
    const page = await open();
    expect(page.replies[0]).toEqual({ type: "ready" });
    expect(page.of("progress").at(-1)?.progress).toMatchObject({ phase: "ready", loadedBytes: 1305 });
    expect(page.replies.slice(-2).map(({ type }) => type)).toEqual(["info", "end"]);
    const { info } = page.of("info")[0] as { info: ChatInfo };
    expect(info).toMatchObject({ model: "fake", backend: "wasm-single" });
    expect(info.start.readyMs).toBeGreaterThan(500); // counted from the page's call
  });

  it("answers each call by its id, and calls at once", async () => {
    const page = await open();
    const ids = promptIds(MESSAGES);
    const asked = page.ask({ method: "generateIds", ids, options: { maxTokens: 5 } });
    const counted = page.ask({ method: "countTokens", messages: MESSAGES });
    expect((await page.end(counted)).value).toBe(ids.length);
    await page.end(asked);
    expect(page.said(asked)).toEqual(expected(ids, 5));
    expect(page.parts(counted)).toEqual([]);
    // each part has the figures up to it, and the last one has them alone
    expect(page.parts(asked).map(({ figures }) => figures.answerTokens)).toEqual([1, 2, 3, 4, 5, 5]);
    expect(page.parts(asked).map(({ figures }) => figures.promptTokens)).toEqual(Array(6).fill(ids.length));
    expect(page.parts(asked).map(({ figures }) => figures.stopReason)).toEqual([...Array(5).fill("aborted"), "max-tokens"]);
    expect(page.parts(asked).at(-1)).not.toHaveProperty("part");
    const said = page.ask({ method: "generate", messages: MESSAGES, options: { maxTokens: 3 } });
    await page.end(said);
    expect(page.said(said)).toMatchObject(expected(ids, 3).map((token) => ({ token })));
  });

  it("gives away the memory of arrays it answers with, and nothing else", async () => {
    const page = await open();
    const logits = (await page.answer({ method: "logits", ids: [1, 2] })) as Float32Array;
    expect(logits).toEqual(expectedLogits([1, 2]));
    expect(page.transferred.at(-1)).toEqual([logits.buffer]);
    await page.answer({ method: "countTokens", messages: MESSAGES });
    expect(page.transferred.at(-1)).toEqual([]);
    const f = await open(fakeFunction(), "function");
    const call: Call = {
      method: "run",
      inputs: { x: Float32Array.of(1, -2, 3, 4), n: Int32Array.of(10) },
      function: undefined,
      outputs: undefined,
    };
    const { outputs, runMs } = (await f.answer(call)) as RunAnswer;
    expect(outputs).toEqual({ y: Float32Array.of(11, 6, 19, 26), positive: Uint8Array.of(1, 0, 1) });
    expect(f.transferred.at(-1)).toEqual(Object.values(outputs).map(({ buffer }) => buffer));
    expect(runMs).toBeGreaterThan(0);
  });

  it("does what tests ask of it", async () => {
    const page = await open();
    const ids = promptIds(MESSAGES);
    for (const [method, reused] of [
      ["countTokens", ids.length - 1],
      ["clearCache", 0],
    ] as const) {
      await page.end(page.ask({ method: "generateIds", ids, options: { maxTokens: 1 } }));
      await page.answer({ method, messages: MESSAGES });
      const again = page.ask({ method: "generateIds", ids, options: { maxTokens: 1 } });
      await page.end(again);
      expect(page.parts(again).at(-1)?.figures.reusedTokens).toBe(reused);
    }
    expect(await page.answer({ method: "loseDevice" })).toBe(false);
    const none = new Page();
    expect(await none.answer({ method: "loseDevice" })).toBe(false); // before anything is loaded
  });

  it("hands on what goes wrong, with its code", async () => {
    const page = await open();
    const { error, value } = await page.end(page.ask({ method: "logits", ids: [] }));
    expect([error, value]).toEqual([
      expect.objectContaining({ code: "bad-argument", message: "token ids must be a non-empty list." }),
      undefined,
    ]);
    const failed = page.ask({ method: "generateIds", ids: [-1], options: {} });
    expect((await page.end(failed)).error).toMatchObject({ code: "bad-argument" });
    expect(page.parts(failed)).toEqual([{ figures: expect.objectContaining({ answerTokens: 0, stopReason: "failed" }) }]); // also of what failed
    expect(page.of("info")).toHaveLength(1); // nothing of a call is in there
  });

  it("stops the one call that is cancelled, and hears of one that has ended", async () => {
    const page = await open();
    page.tell({ type: "hidden", hidden: true }); // so that it lasts
    const [running, waiting, next] = [60, 60, 4].map((maxTokens) =>
      page.ask({ method: "generateIds", ids: [4], options: { maxTokens, hiddenTokensPerSecond: maxTokens > 4 ? 0.001 : Infinity } }),
    ) as [number, number, number];
    page.tell({ type: "cancel", id: waiting });
    expect((await page.end(waiting)).error).toMatchObject({ code: "aborted" });
    page.tell({ type: "cancel", id: running });
    expect((await page.end(running)).error).toMatchObject({ code: "aborted" });
    expect((await page.end(next)).error).toBeUndefined();
    expect(page.said(next)).toEqual(expected([4], 4));
    expect(page.parts(running).at(-1)?.figures).toMatchObject({ answerTokens: 1, stopReason: "aborted" });
    expect(page.parts(waiting).at(-1)?.figures).toMatchObject({ promptTokens: 0, stopReason: "aborted" });
    page.tell({ type: "cancel", id: next });
    page.tell({ type: "cancel", id: 999 });
    expect(page.of("end").filter(({ id }) => id === next)).toHaveLength(1);
  });

  it("goes slowly where nobody watches, until somebody does", async () => {
    const page = await open();
    page.tell({ type: "hidden", hidden: true });
    const call: Call = { method: "generateIds", ids: [4], options: { maxTokens: 9, hiddenTokensPerSecond: 0.001 } };
    const id = page.ask(call);
    await expect.poll(() => page.parts(id).length).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(page.parts(id)).toHaveLength(1);
    page.tell({ type: "hidden", hidden: false });
    await page.end(id);
    expect(page.said(id)).toEqual(expected([4], 9));
  });

  it("says goodbye a moment after its threads, and nothing of its figures from then on", async () => {
    const page = new Page();
    await page.end(page.load("wasm"));
    expect(alive.size).toBe(2);
    page.tell({ type: "hidden", hidden: true });
    const running = page.ask({ method: "generateIds", ids: [4], options: { maxTokens: 60, hiddenTokensPerSecond: 0.001 } });
    await expect.poll(() => page.parts(running).length).toBeGreaterThan(0);
    const told = page.of("info").length;
    page.tell({ type: "dispose" });
    expect(page.of("disposed")).toEqual([]);
    await expect.poll(() => page.of("disposed").length).toBe(1);
    expect((await page.end(running)).error).toMatchObject({ code: expect.stringMatching(/aborted|disposed/) });
    expect(page.of("info")).toHaveLength(told);
    await expect.poll(() => alive.size).toBe(0);
  });

  it("frees what it was loading when it is told to end", async () => {
    const page = new Page();
    const loading = page.load("wasm");
    page.tell({ type: "dispose" });
    await page.end(loading);
    await expect.poll(() => alive.size).toBe(0);
    expect(page.of("info")).toEqual([]);
  });

  it("frees what it has loaded when it was told to end a moment before", async () => {
    const page = new Page();
    const { open: real } = ModelHost;
    vi.spyOn(ModelHost, "open").mockImplementationOnce(async (...args) => {
      const host = await real.apply(ModelHost, args);
      page.tell({ type: "dispose" });
      return host;
    });
    await page.end(page.load("wasm"));
    await expect.poll(() => alive.size).toBe(0);
    expect(page.of("info")).toEqual([]);
  });

  it("tells of events, and of another backend's figures before that event", async () => {
    const opened = vi.spyOn(ModelHost, "open");
    const page = await open();
    const { onEvent } = (opened.mock.calls[0] as Parameters<typeof ModelHost.open>)[1];
    const at = page.replies.length;
    onEvent("device-lost", { reason: "test" });
    onEvent("backend-changed", { from: "webgpu", to: "wasm-single", reason: "test" });
    expect(page.replies.slice(at)).toEqual([
      { type: "event", name: "device-lost", data: { reason: "test" } },
      { type: "info", info: expect.objectContaining({ backend: "wasm-single" }) },
      { type: "event", name: "backend-changed", data: { from: "webgpu", to: "wasm-single", reason: "test" } },
    ]);
  });
});
