/** The built library in headless Chromium: WebGPU on its software adapter, WASM with and without threads, storage, faults. */

import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { newContext, useBrowser } from "../../shell/testing/browser.js";
import { within } from "../../shell/testing/programs.js";
import type { ChatResult } from "../src/answer.js";
import type { ChatInfo } from "../src/chat.js";
import type { LoadOptions } from "../src/connection.js";
import type { FunctionInfo } from "../src/function.js";
import type { Progress } from "../src/host.js";
import type { InterruptedLoad } from "../src/marker.js";
import { expected, expectedLogits, exportedWith, fakeBundle, fixture, promptIds, type FakeBundle } from "./fake-bundle.js";
import { fakeFunction } from "./fake-function.js";
import { Site } from "./site.js";

interface Failed {
  error?: { code: string; message: string; name: string };
}

interface PageApi {
  events: Record<string, string>[];
  progress: Progress[];
  interrupted: InterruptedLoad[];
  load(bundle: string, options: LoadOptions): Promise<ChatInfo & Failed>;
  ids(prompt: number[], options: object, trouble?: object): Promise<{ ids: number[] } & Failed>;
  text(messages: object[], options: object): Promise<{ text: string; result: ChatResult }>;
  logits(ids: number[]): Promise<number[]>;
  loadFunction(bundle: string, options: LoadOptions): Promise<FunctionInfo & Failed>;
  run(x?: number[], n?: number[], outputs?: string[]): Promise<Record<string, number[]> & Failed>;
  dispose(): Promise<void>;
  damage(model: string, shard: string, keep?: number): Promise<void>;
  stored(): Promise<string[]>;
}

declare const window: { t: PageApi & { chat: { info: ChatInfo } }; ready: boolean };

const site = new Site();
let context: BrowserContext;
let page: Page;
const complaints: string[] = [];

useBrowser();
beforeAll(() => site.start());
afterAll(() => site.stop());

beforeEach(async () => {
  site.bundles.clear();
  site.bundles.set("model", fakeBundle());
  site.fault = () => undefined;
  site.hold = () => undefined;
  site.asked.length = 0;
  context = await newContext();
});

/** localhost is isolated and secure, 127.0.0.1 is secure only, phone.test is neither. */
async function visit(host: "localhost" | "127.0.0.1" | "phone.test" = "localhost"): Promise<void> {
  page = await context.newPage();
  complaints.length = 0;
  page.on("console", (message) => {
    if (/content security policy|refused to/i.test(message.text())) complaints.push(message.text());
  });
  await page.goto(`http://${host}:${site.port}/`);
  await page.waitForFunction(() => window.ready);
}

/** What the page answers at last: the browser itself sets no limit. */
const ANSWER_MS = 40_000;
/** A bundle with other kernels for WebGPU. */
function withKernels(change: (code: string) => string): FakeBundle {
  const bundle = fakeBundle();
  const code = change(new TextDecoder().decode(bundle.files.get("kernels/webgpu.wgsl")));
  return exportedWith(bundle, "kernels/webgpu.wgsl", new TextEncoder().encode(code));
}

const load = (options: LoadOptions = {}, bundle = "model"): Promise<ChatInfo & Failed> =>
  within(
    ANSWER_MS,
    `load(${JSON.stringify([bundle, options])})`,
    page.evaluate(([path, o]) => window.t.load(path, o), [`/${bundle}`, options] as const),
  );
const ids = (prompt: number[], options: object = {}, trouble: object = {}): ReturnType<PageApi["ids"]> =>
  within(
    ANSWER_MS,
    `the tokens of ${JSON.stringify([prompt, options, trouble])}`,
    page.evaluate(([p, o, x]) => window.t.ids(p, o, x), [prompt, options, trouble] as const),
  );
const info = (): Promise<ChatInfo> => page.evaluate(() => window.t.chat.info);
const events = (): Promise<Record<string, string>[]> => page.evaluate(() => window.t.events);

const PROMPT = [256, 259, 104, 105, 257, 260];

describe.each([
  ["webgpu", "localhost", "webgpu"],
  ["wasm", "localhost", "wasm"],
  ["wasm", "127.0.0.1", "wasm-single"],
  ["wasm-single", "localhost", "wasm-single"],
  ["auto", "phone.test", "wasm-single"],
] as const)("%s on %s", (backend, host, chosen) => {
  it("says what the model says", async () => {
    await visit(host);
    const opened = await load({ backend });
    expect(opened).toMatchObject({ backend: chosen, model: "fake", modelBytes: 1305, kernelsPerToken: 4 });
    for (const prompt of [[7], PROMPT, Array.from({ length: 25 }, (_, i) => (i * 29) % 256)]) {
      expect((await ids(prompt, { maxTokens: 20 })).ids).toEqual(expected(prompt, 20));
      expect(await page.evaluate((p) => window.t.logits(p), prompt)).toEqual([...expectedLogits(prompt)].map((x) => expect.closeTo(x, 6)));
    }
    const choice = { temperature: 0.75, topP: 0.5, topK: 7, repetitionPenalty: 1.25, seed: 99 };
    expect((await ids(PROMPT, { ...choice, maxTokens: 9 })).ids).toEqual(expected(PROMPT, 9, choice));
    const messages = [{ role: "user", content: "hé" }];
    const answer = expected(promptIds(messages), 8).filter((id) => id < 256);
    const { text, result } = await page.evaluate((m) => window.t.text(m, { maxTokens: 8 }), messages);
    expect(text).toBe(new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(answer)));
    expect(result.answerTokens).toBe(expected(promptIds(messages), 8).length);
    expect(result.tokensPerSecond).toBeGreaterThan(0);
    const stopped = await ids([9], { maxTokens: 50, temperature: 1, topK: 1, seed: 1 }, { abortAt: 3 });
    expect(stopped).toMatchObject({ ids: { length: 3 }, error: { code: "aborted", name: "AbortError" } });
    expect((await ids([9], { maxTokens: 5 })).ids).toEqual(expected([9], 5));
    await page.evaluate(() => window.t.dispose());
    await expect.poll(() => page.workers().length).toBe(0);
    expect(complaints).toEqual([]);
  });
});

describe("auto", () => {
  it("prefers WASM to a GPU that computes on the CPU, and says so", async () => {
    await visit();
    const opened = await load();
    expect(opened.backend).toBe("wasm");
    expect(opened.fallbacks).toEqual([{ backend: "webgpu", reason: expect.stringContaining("computes on the CPU") }]);
    expect((await load({ allowSoftwareGpu: true })).backend).toBe("webgpu");
  });

  it("takes WASM when a kernel does not compile, and names the kernel", async () => {
    site.bundles.set(
      "wrong",
      withKernels((code) => code.replace("var sum = 0.0;", "var sum = nothing;")),
    );
    await visit();
    const opened = await load({ allowSoftwareGpu: true }, "wrong");
    expect(opened.backend).toBe("wasm");
    expect(opened.fallbacks).toEqual([{ backend: "webgpu", reason: expect.stringMatching(/best_of_block.*nothing/s) }]);
    expect((await load({ backend: "webgpu" }, "wrong")).error).toMatchObject({
      code: "compile-failed",
      message: expect.stringContaining("best_of_block"),
    });
  });

  it("takes WASM when the GPU reports an error while running", async () => {
    // A kernel that declares more of its buffer than there is: an error that shows at its first dispatch.
    site.bundles.set(
      "wrong",
      withKernels((code) => code.replaceAll("kv: array<f32>;", "kv: array<f32, 999>;")),
    );
    await visit();
    expect((await load({ allowSoftwareGpu: true }, "wrong")).backend).toBe("webgpu");
    expect((await ids(PROMPT, { maxTokens: 9 })).ids).toEqual(expected(PROMPT, 9));
    expect(await info()).toMatchObject({ backend: "wasm", fallbacks: [{ backend: "webgpu", reason: expect.stringContaining("keys") }] });
  });

  it("respects limits it cannot have", async () => {
    site.bundles.set(
      "big",
      fakeBundle((m) => (m.targets.webgpu.limits.maxBufferSize = 2 ** 40)),
    );
    await visit();
    expect((await load({ allowSoftwareGpu: true }, "big")).fallbacks[0]?.reason).toContain("maxBufferSize");
    expect((await load({ backend: "webgpu" }, "big")).error).toMatchObject({
      code: "no-backend",
      message: expect.stringContaining("maxBufferSize"),
    });
    expect((await load({ memoryBudgetBytes: 10 })).error?.code).toBe("out-of-memory");
  });
});

describe("a lost GPU device", () => {
  it("is replaced in the middle of an answer", async () => {
    await visit();
    await load({ backend: "webgpu" });
    site.asked.length = 0;
    expect((await ids(PROMPT, { maxTokens: 30 }, { loseAt: [5] })).ids).toEqual(expected(PROMPT, 30));
    expect(await events()).toEqual([{ name: "device-lost", reason: expect.stringContaining("lost") }]);
    expect((await info()).backend).toBe("webgpu");
    expect(site.weights()).toBe(0);
  });

  it("is replaced between two answers", async () => {
    await visit();
    await load({ backend: "webgpu" });
    const { ids: first } = await ids(PROMPT, { maxTokens: 6 }, { loseAt: [6] });
    const second = [...PROMPT, ...first, 5];
    expect((await ids(second, { maxTokens: 6 })).ids).toEqual(expected(second, 6));
  });

  it("makes way for WASM when it is lost again", async () => {
    await visit();
    await load({ allowSoftwareGpu: true });
    for (const loseAt of [[3], [5]]) expect((await ids(PROMPT, { maxTokens: 30 }, { loseAt })).ids).toEqual(expected(PROMPT, 30));
    expect(await info()).toMatchObject({ backend: "wasm", fallbacks: [{ backend: "webgpu", reason: expect.stringContaining("lost") }] });
    expect(await events()).toEqual([
      { name: "device-lost", reason: expect.any(String) },
      { name: "device-lost", reason: expect.any(String) },
      { name: "backend-changed", from: "webgpu", to: "wasm", reason: expect.stringContaining("lost") },
    ]);
  });

  it("is an error when WebGPU was asked for by name and is lost again", async () => {
    await visit();
    await load({ backend: "webgpu" });
    await ids(PROMPT, { maxTokens: 30 }, { loseAt: [3] });
    const result = await ids(PROMPT, { maxTokens: 30 }, { loseAt: [5] });
    expect(result.ids).toEqual(expected(PROMPT, result.ids.length));
    expect(result.error?.code).toBe("device-lost");
  });
});

describe("storage", () => {
  const { weights } = fakeBundle().manifest;

  it("makes a second visit download no weights", async () => {
    await visit();
    await load({ backend: "wasm-single" });
    expect(site.weights()).toBe(3);
    expect(await page.evaluate(() => window.t.stored())).toEqual([weights.sha256]);
    await page.close();
    site.asked.length = 0;
    await visit();
    await load({ backend: "webgpu" });
    expect(site.weights()).toBe(0);
    expect(await page.evaluate(() => window.t.progress.at(-1))).toMatchObject({ phase: "ready", fromCache: true, loadedBytes: 1305 });
    expect((await ids(PROMPT, { maxTokens: 6 })).ids).toEqual(expected(PROMPT, 6));
  });

  it("replaces what was damaged, and completes what was cut", async () => {
    await visit();
    await load({ backend: "wasm-single" });
    await page.evaluate(([model, a, b]) => window.t.damage(model, a).then(() => window.t.damage(model, b, 100)), [
      weights.sha256,
      weights.shards[0].sha256,
      weights.shards[1].sha256,
    ] as const);
    site.asked.length = 0;
    await load({ backend: "wasm-single" });
    expect(site.asked.filter(({ path }) => path.includes("weights")).sort((a, b) => (a.path < b.path ? -1 : 1))).toEqual([
      { path: "/model/weights/000.bin", range: undefined },
      { path: "/model/weights/001.bin", range: "bytes=100-" },
    ]);
    expect((await ids(PROMPT, { maxTokens: 6 })).ids).toEqual(expected(PROMPT, 6));
    site.asked.length = 0;
    await load({ backend: "wasm-single" });
    expect(site.weights()).toBe(0);
  });

  it("does without storage where there is none", async () => {
    await visit();
    for (const _visit of [1, 2]) {
      site.asked.length = 0;
      await load({ backend: "wasm-single", workerUrl: "/assets/tinyweb-chat-worker.js?without=opfs" });
      expect(site.weights()).toBe(3);
    }
    expect(await page.evaluate(() => window.t.stored())).toEqual([]);
    expect((await ids(PROMPT, { maxTokens: 6 })).ids).toEqual(expected(PROMPT, 6));
  });

  it("does without storage that is refused", async () => {
    await visit();
    const refused = { backend: "wasm-single", workerUrl: "/assets/tinyweb-chat-worker.js?without=leave" } as const;
    for (const _visit of [1, 2]) {
      site.asked.length = 0;
      expect((await load(refused)).error).toBeUndefined();
      expect(site.weights()).toBe(3);
    }
    expect((await ids(PROMPT, { maxTokens: 6 })).ids).toEqual(expected(PROMPT, 6));
  });

  it("does with the storage there is", async () => {
    site.bundles.set("older", fakeBundle(undefined, "older"));
    await visit();
    await load({ backend: "wasm-single" }, "older");
    const session = await context.newCDPSession(page);
    const origin = `http://localhost:${site.port}`;
    const quota = (quotaSize?: number): Promise<unknown> =>
      session.send("Storage.overrideQuotaForOrigin", { origin, ...(quotaSize === undefined ? {} : { quotaSize }) });
    await quota(1);
    for (const _visit of [1, 2]) {
      site.asked.length = 0;
      expect((await load({ backend: "wasm-single" })).error).toBeUndefined();
      expect(site.weights()).toBe(3); // nothing could be kept
    }
    expect((await ids(PROMPT, { maxTokens: 6 })).ids).toEqual(expected(PROMPT, 6));
    await quota();
    site.asked.length = 0;
    expect((await load({ backend: "wasm-single" })).error).toBeUndefined();
    expect((await ids(PROMPT, { maxTokens: 6 })).ids).toEqual(expected(PROMPT, 6));
    expect(await page.evaluate(() => window.t.stored())).toContain(weights.sha256);
    site.asked.length = 0;
    await load({ backend: "wasm-single" });
    expect(site.weights()).toBe(0);
  });

  it("lets two tabs load at the same time", async () => {
    await visit();
    const first = page;
    await visit();
    const second = page;
    const open = (p: Page): Promise<ChatInfo & Failed> => p.evaluate(() => window.t.load("/model/", { backend: "wasm-single" }));
    const both = await Promise.all([open(first), open(second)]);
    expect(both.map(({ backend }) => backend)).toEqual(["wasm-single", "wasm-single"]);
    for (const tab of [first, second]) expect(await tab.evaluate(() => window.t.interrupted)).toEqual([]);
  });

  it("keeps nothing of a shard that is wrong", async () => {
    site.fault = (path, bytes) => (path.endsWith("001.bin") ? bytes.map((byte) => byte ^ 1) : undefined);
    await visit();
    expect((await load()).error).toMatchObject({ code: "hash-mismatch", message: expect.stringContaining("001.bin") });
    expect(site.asked.filter(({ path }) => path.endsWith("001.bin"))).toHaveLength(2);
    site.fault = () => undefined;
    expect((await load()).error).toBeUndefined();
    expect((await ids(PROMPT, { maxTokens: 6 })).ids).toEqual(expected(PROMPT, 6));
  });

  it("verifies without crypto.subtle, too", async () => {
    site.fault = (path, bytes) => (path.endsWith("002.bin") ? bytes.map((byte) => byte ^ 1) : undefined);
    await visit("phone.test");
    expect((await load()).error?.code).toBe("hash-mismatch");
  });
});

describe.each(["webgpu", "wasm-single"] as const)("a function on %s", (backend) => {
  it("runs, keeps inputs, and refuses what does not fit", async () => {
    site.bundles.set("function", fakeFunction());
    await visit();
    expect(await page.evaluate((b) => window.t.loadFunction("/function", { backend: b }), backend)).toMatchObject({
      backend,
      model: "affine",
      functions: {
        run: {
          kernels: 2,
          outputs: [
            { name: "y", dtype: "f32", shape: [2, 2] },
            { name: "positive", dtype: "bool", shape: [3] },
          ],
        },
      },
    });
    const run = (x: number[] | undefined, n: number[] | undefined, outputs?: string[]): Promise<Record<string, number[]> & Failed> =>
      page.evaluate(([a, b, o]) => window.t.run(a, b, o), [x, n, outputs] as const);
    expect(await run([1, -2, 3, 4], [10])).toEqual({ y: [11, 6, 19, 26], positive: [1, 0, 1] });
    expect(await run(undefined, [0], ["y"])).toEqual({ y: [1, -4, 9, 16] });
    expect(await run(undefined, undefined, [])).toEqual({});
    expect((await run([1], [0])).error).toMatchObject({ code: "bad-argument", message: expect.stringContaining("4 elements") });
    await page.evaluate(() => window.t.dispose());
    expect((await run([1, 2, 3, 4], [0])).error?.code).toBe("disposed");
    await expect.poll(() => page.workers().length).toBe(0);
  });
});

describe("a page that is ended while it loads", () => {
  it("notices, and takes the smaller setting", async () => {
    await visit();
    let asked = (): void => undefined;
    const reached = new Promise<void>((resolve) => (asked = resolve));
    site.hold = (path) => {
      if (!path.includes("/weights/")) return undefined;
      asked();
      return new Promise(() => undefined);
    };
    load({ allowSoftwareGpu: true }).catch(() => undefined); // the page is gone before it answers
    await reached;
    await page.waitForFunction(() => Object.values(localStorage).join().includes("weights"));
    const session = await context.newCDPSession(page);
    const crashed = new Promise((resolve) => page.once("crash", resolve));
    session.send("Page.crash").catch(() => undefined);
    await crashed;
    site.hold = () => undefined;
    await visit();
    const opened = await load({ allowSoftwareGpu: true });
    expect(opened).toMatchObject({ backend: "wasm", context: 64 });
    expect(await page.evaluate(() => window.t.interrupted)).toEqual([
      expect.objectContaining({
        phase: "weights",
        totalBytes: 1305,
        times: 1,
        recommended: { backend: "wasm", context: 1024 },
      }),
    ]);
    await load({ allowSoftwareGpu: true });
    expect(await page.evaluate(() => window.t.interrupted)).toEqual([]);
  });

  it("does not take leaving for it", async () => {
    await visit();
    let asked = (): void => undefined;
    const reached = new Promise<void>((resolve) => (asked = resolve));
    site.hold = (path) => {
      if (!path.includes("/weights/")) return undefined;
      asked();
      return new Promise(() => undefined);
    };
    load().catch(() => undefined);
    await reached;
    site.hold = () => undefined;
    await page.reload();
    await page.waitForFunction(() => window.ready);
    await load();
    expect(await page.evaluate(() => window.t.interrupted)).toEqual([]);
  });
});

it("takes the variant for relaxed SIMD, which this browser has", async () => {
  site.bundles.set(
    "relaxed",
    fakeBundle((m) => {
      const { variants } = m.targets.wasm;
      variants.relaxed = { file: "kernels/relaxed.wasm", threads: false, features: ["relaxed-simd"] };
      m.integrity["kernels/relaxed.wasm"] = { bytes: 1, sha256: "0".repeat(64) };
    }),
  );
  await visit();
  const opened = await load({ backend: "wasm-single" }, "relaxed");
  expect(opened.error).toMatchObject({ code: "download-failed", message: expect.stringContaining("relaxed.wasm") });
});

it("reads kernels that variants share from files of their own", async () => {
  const bundle = fakeBundle((m) => (m.targets.webgpu.variants.base.shared = ["kernels/shared.wgsl"]));
  const code = new TextDecoder().decode(bundle.files.get("kernels/webgpu.wgsl"));
  const second = code.indexOf("//# kernel", code.indexOf("//# kernel") + 1);
  const [own, shared] = [code.slice(0, second), code.slice(second)].map((part) => new TextEncoder().encode(part));
  const split = exportedWith(bundle, "kernels/webgpu.wgsl", own as Uint8Array);
  site.bundles.set("shared", exportedWith(split, "kernels/shared.wgsl", shared as Uint8Array));
  await visit();
  expect((await load({ backend: "webgpu" }, "shared")).backend).toBe("webgpu");
  expect((await ids(PROMPT, { maxTokens: 5 })).ids).toEqual(expected(PROMPT, 5));
});

it("guesses ahead on WebGPU without changing the answer", async () => {
  await visit();
  await load({ backend: "webgpu" });
  const answer = expected([3, 1], 12);
  const prompt = [3, 1, ...answer, 3, 1, ...answer, 3, 1];
  expect((await ids(prompt, { maxTokens: 20, speculate: 3 })).ids).toEqual(expected(prompt, 20));
});

it("reports a thread that traps while the worker waits for it, and the page can load again", async () => {
  site.bundles.set("trap", exportedWith(fakeBundle(), "kernels/simd-threads.wasm", fixture("fake-model-trap.wasm")));
  await visit();
  expect((await load({ backend: "wasm" }, "trap")).backend).toBe("wasm");
  const result = await ids(PROMPT, { maxTokens: 9 });
  expect(result).toMatchObject({
    ids: expected(PROMPT, 1),
    error: { code: "worker-failed", message: expect.stringContaining("unreachable") },
  });
  expect((await ids(PROMPT, { maxTokens: 9 })).error?.code).toBe("worker-failed");
  await expect.poll(() => page.workers().length).toBe(0);
  await load({ backend: "wasm" });
  expect((await ids(PROMPT, { maxTokens: 6 })).ids).toEqual(expected(PROMPT, 6));
});

it("reports a worker that is not there", async () => {
  await visit();
  expect((await load({ workerUrl: "/missing.js" })).error?.code).toBe("worker-failed");
});
