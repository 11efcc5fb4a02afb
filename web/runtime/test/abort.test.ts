/** A signal: before a call, while a model loads, while it computes (also where its worker does not listen), and after the end. */

import { getEventListeners } from "node:events";
import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { Chat, FunctionModel } from "../src/client.js";
import type { LoadOptions } from "../src/connection.js";
import { Detector } from "../src/detect/index.js";
import { Embedder } from "../src/embed/embedder.js";
import { parseSection } from "../src/embed/section.js";
import { TextTokenizer } from "../src/embed/tokenizer.js";
import { loadChat, loadFunction } from "../src/index.js";
import { loadDetector } from "../src/detect/index.js";
import { loadEmbedder } from "../src/embed/index.js";
import { loadImageGenerator } from "../src/image/index.js";
import { load } from "../src/load.js";
import { Lock } from "../src/lock.js";
import { ChatSession, OpenAI } from "../src/openai/index.js";
import { fakeFunction } from "./fake-function.js";
import { BASE } from "./fake-server.js";
import { Pretended } from "./image-parts.js";
import { LocalWorker } from "./local-worker.js";
import { collect } from "./open.js";

const STOPPED = { code: "aborted", name: "AbortError" };
const PIXELS = { data: new Uint8ClampedArray(64), width: 4, height: 4 };
const MESSAGES = [{ role: "user", content: "hi" }];

/** A function model whose worker answers when it is told to, and counts what it was asked. */
class Slow extends LocalWorker {
  runs = 0;
  private kept: (() => void)[] = [];
  held = false;

  constructor() {
    super(fakeFunction());
  }

  override postMessage(message: unknown): void {
    if ((message as { call?: { method: string } }).call?.method === "run") this.runs += 1;
    if (this.held) this.kept.push(() => super.postMessage(message));
    else super.postMessage(message);
  }

  /** Listens no longer, as a worker that computes; then again. */
  hold(held: boolean): void {
    this.held = held;
    if (!held) for (const message of this.kept.splice(0)) message();
  }
}

const open: (Chat | FunctionModel)[] = [];
afterEach(() => Promise.all(open.splice(0).map((model) => model.dispose())));

async function slow(): Promise<{ worker: Slow; model: FunctionModel }> {
  const worker = new Slow();
  const model = await FunctionModel.open(worker, BASE, { backend: "wasm-single" });
  open.push(model);
  return { worker, model };
}

/** The function of the hand-made bundle in the place of a network: the arrays are not those of a detector, the calls are. */
function through(model: FunctionModel, info: object, outputs: object): FunctionModel {
  const inputs = { x: Float32Array.of(1, 2, 3, 4), n: Int32Array.of(1) };
  const run = (_: unknown, { signal }: { signal?: AbortSignal }): Promise<object> => {
    const called = model.run(inputs, { signal: signal as AbortSignal });
    return Object.assign(
      called.then(() => outputs),
      { result: called.result },
    );
  };
  return { info, run, on: model.on.bind(model), dispose: model.dispose.bind(model) } as never;
}

function detectorOf(model: FunctionModel): Detector {
  const array = (name: string, shape: number[]): object => ({ name, shape });
  const look = {
    inputs: [array("image", [4, 4, 4]), array("frame", [4]), array("source", [2]), array("settings", [3])],
    outputs: [array("boxes", [1, 4]), array("scores", [1]), array("classes", [1]), array("count", [1])],
  };
  const info = { functions: { look }, sections: { detect: { entry: "look", labels: ["cat"], defaults: { confidence: 0.5, iou: 0.5 } } } };
  return new Detector(
    through(model, info, { boxes: new Float32Array(4), scores: new Float32Array(1), classes: new Int32Array(1), count: new Int32Array(1) }),
  );
}

function embedderOf(model: FunctionModel): Embedder {
  const read = (name: string): never =>
    JSON.parse(readFileSync(new URL(`../../../assets/models/tinyembed/${name}`, import.meta.url), "utf8")) as never;
  const functions = [{ name: "f", batch: 1, length: 8 }];
  const section = parseSection({
    embed: { dimensions: 4, max_length: 8, normalized: true, lowercase: false, prefixes: { query: "", passage: "" }, functions },
  });
  return new Embedder(
    through(model, {}, { output: new Float32Array(4) }),
    new TextTokenizer(read("tokenizer.json"), read("tokenizer_config.json"), section),
    section,
  );
}

/** The same four moments for whatever runs functions in a worker. */
const CALLS: Record<string, (model: FunctionModel) => (signal?: AbortSignal) => Promise<unknown>> = {
  "run()": (model) => (signal) => model.run({ x: Float32Array.of(1, 2, 3, 4), n: Int32Array.of(1) }, { signal: signal as AbortSignal }),
  "detect()": (model) => {
    const detector = detectorOf(model);
    return (signal) => detector.detect(PIXELS, { signal: signal as AbortSignal });
  },
  "embed()": (model) => {
    const embedder = embedderOf(model);
    return (signal) => embedder.embed(["a", "b", "c"], { signal: signal as AbortSignal });
  },
};

describe.each(Object.entries(CALLS))("%s", (_, of) => {
  it("asks nothing of the worker where it is stopped before", async () => {
    const { worker, model } = await slow();
    await expect(of(model)(AbortSignal.abort())).rejects.toMatchObject(STOPPED);
    expect(worker.runs).toBe(0);
  });

  it("ends though the worker computes and does not listen; the next call is answered", async () => {
    const { worker, model } = await slow();
    const call = of(model);
    const stop = new AbortController();
    worker.hold(true);
    const running = call(stop.signal);
    await expect.poll(() => worker.runs).toBe(1);
    stop.abort();
    await expect(running).rejects.toMatchObject(STOPPED);
    const asked = worker.runs;
    const next = call();
    worker.hold(false);
    await next;
    expect(asked).toBe(1); // nothing went on after the stop
  });

  it("does not give a result that came after the stop", async () => {
    const { model } = await slow();
    const stop = new AbortController();
    const running = of(model)(stop.signal);
    setImmediate(() => stop.abort()); // the worker has it by now, and answers before it hears of the stop
    await expect(running).rejects.toMatchObject(STOPPED);
  });

  it("is left alone by a stop after its end, and leaves nothing at the signal", async () => {
    const { model } = await slow();
    const call = of(model);
    const stop = new AbortController();
    for (let i = 0; i < 3; i++) await call(stop.signal);
    expect(getEventListeners(stop.signal, "abort")).toEqual([]);
    stop.abort();
    await call();
  });
});

describe("textToImage()", () => {
  it("before: no part is asked", async () => {
    const model = new Pretended();
    const generator = await model.open();
    await expect(generator.generateRgba("a", { signal: AbortSignal.abort() })).rejects.toMatchObject(STOPPED);
    expect(model.calls).toEqual([]);
  });

  it("while parts load: what was loaded is freed", async () => {
    const model = new Pretended();
    const stop = new AbortController();
    model.loading = (part) => part === "unet" && stop.abort();
    await expect(model.open({ signal: stop.signal })).rejects.toMatchObject(STOPPED);
    expect(model.loaded.size).toBe(0);
  });

  it.each(["text_encoder", "unet", "vae_decoder"])(
    "while %s computes: nothing more is asked, and the next picture is whole",
    async (part) => {
      const model = new Pretended();
      const generator = await model.open();
      const stop = new AbortController();
      model.before = (call) => call.part === part && stop.abort();
      await expect(generator.generateRgba("a", { seed: 1, signal: stop.signal })).rejects.toMatchObject(STOPPED);
      const asked = model.calls.filter((call) => call.part === part).length;
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(model.calls.filter((call) => call.part === part)).toHaveLength(asked);
      expect(asked).toBe(1);
      model.before = () => undefined;
      const again = await generator.generateRgba("a", { seed: 1 });
      expect(again.data).toEqual((await (await new Pretended().open()).generateRgba("a", { seed: 1 })).data);
    },
  );

  it("after the end: nothing, and nothing is left at the signal", async () => {
    const generator = await new Pretended().open();
    const stop = new AbortController();
    await generator.generateRgba("a", { signal: stop.signal });
    expect(getEventListeners(stop.signal, "abort")).toEqual([]);
    stop.abort();
    await generator.generateRgba("a");
  });
});

describe("a chat", () => {
  async function chat(): Promise<{ chat: Chat; worker: LocalWorker }> {
    const worker = new LocalWorker();
    const made = await Chat.open(worker, BASE, { backend: "wasm-single" });
    open.push(made);
    return { chat: made, worker };
  }
  const KINDS: Record<string, (chat: Chat) => (signal?: AbortSignal) => Promise<unknown>> = {
    "generate()": (model) => (signal) => collect(model.generate(MESSAGES, { maxTokens: 20, signal: signal as AbortSignal })),
    "a session": (model) => (signal) => collect(new ChatSession(model, { maxTokens: 20 }).send("hi", { signal: signal as AbortSignal })),
    "completions.create()": (model) => (signal) =>
      new OpenAI({ chat: model }).chat.completions.create(
        { messages: MESSAGES as never, max_tokens: 20 },
        { signal: signal as AbortSignal },
      ),
    "completions.create() in chunks": (model) => async (signal) =>
      collect(
        await new OpenAI({ chat: model }).chat.completions.create(
          { messages: MESSAGES as never, max_tokens: 20, stream: true },
          { signal: signal as AbortSignal },
        ),
      ),
  };

  it.each(Object.entries(KINDS))("%s: before, meanwhile, with a worker that does not listen, after", async (_, of) => {
    const { chat: model, worker } = await chat();
    const call = of(model);
    await expect(call(AbortSignal.abort())).rejects.toMatchObject(STOPPED);

    const meanwhile = new AbortController();
    const receive = worker.onmessage;
    worker.onmessage = (event) => {
      if (event.data.type === "part") meanwhile.abort();
      receive?.(event);
    };
    await expect(call(meanwhile.signal)).rejects.toMatchObject(STOPPED);
    worker.onmessage = receive;

    const deaf = new AbortController();
    worker.onmessage = (event) => {
      if (event.data.type === "part") {
        worker.silent = true; // what it says is heard, it hears nothing
        deaf.abort();
      }
      receive?.(event);
    };
    await expect(call(deaf.signal)).rejects.toMatchObject(STOPPED);
    worker.onmessage = receive;
    worker.silent = false;

    const after = new AbortController();
    await call(after.signal);
    expect(getEventListeners(after.signal, "abort")).toEqual([]);
    after.abort();
    await call();
  });
});

describe("loading", () => {
  const LOADERS: Record<string, (url: string, options: LoadOptions) => Promise<unknown>> = {
    load,
    loadChat,
    loadFunction,
    loadDetector,
    loadEmbedder,
    loadImageGenerator,
  };

  it.each(Object.entries(LOADERS))("%s stops before it begins", async (_, call) => {
    await expect(call("./nothing-here/", { signal: AbortSignal.abort() })).rejects.toMatchObject(STOPPED);
  });

  it("ends the worker, also one that does not listen", async () => {
    const worker = new LocalWorker();
    worker.silent = true;
    const stop = new AbortController();
    const loading = Chat.open(worker, BASE, { signal: stop.signal });
    setTimeout(() => stop.abort(), 5);
    await expect(loading).rejects.toMatchObject(STOPPED);
    expect(worker.terminated).toBe(true);
    expect(getEventListeners(stop.signal, "abort")).toEqual([]);
  });
});

describe("calls that wait for their turn", () => {
  it("leave the queue at once, and nothing at the signal", async () => {
    const lock = new Lock();
    const first = await lock.acquire();
    const stop = new AbortController();
    const second = lock.acquire(stop.signal);
    const third = lock.acquire();
    stop.abort();
    await expect(second).rejects.toMatchObject(STOPPED);
    expect(getEventListeners(stop.signal, "abort")).toEqual([]);
    first();
    (await third)();
  });
});
