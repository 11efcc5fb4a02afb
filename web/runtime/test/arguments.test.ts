/** What a caller can get wrong at the library's surface, and what each mistake says: one sentence, and never JavaScript's own words. */

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { Chat, FunctionModel, loadChat, loadFunction } from "../src/client.js";
import { TinywebError } from "../src/errors.js";
import { Detector, loadDetector } from "../src/detect/index.js";
import { Embedder } from "../src/embed/embedder.js";
import { loadEmbedder, passagesOf, splitText } from "../src/embed/index.js";
import { parseSection } from "../src/embed/section.js";
import { TextTokenizer } from "../src/embed/tokenizer.js";
import type { ImageGenerator } from "../src/image/generator.js";
import { loadImageGenerator } from "../src/image/index.js";
import { load } from "../src/load.js";
import { ChatSession, OpenAI } from "../src/openai/index.js";
import { fakeFunction } from "./fake-function.js";
import { BASE } from "./fake-server.js";
import { Pretended } from "./image-parts.js";
import { LocalWorker } from "./local-worker.js";
import { collect } from "./open.js";

/** Arguments of whatever type, as JavaScript has them. */
type Loose = any;

let chat: Chat;
let f: FunctionModel;
let generator: ImageGenerator;
let embedder: Embedder;
let detector: Detector;

beforeAll(async () => {
  chat = await Chat.open(new LocalWorker(), BASE, { backend: "wasm-single" });
  f = await FunctionModel.open(new LocalWorker(fakeFunction()), BASE, { backend: "wasm-single" });
  generator = await new Pretended().open();
  const read = (name: string): never =>
    JSON.parse(readFileSync(new URL(`../../../assets/models/tinyembed/${name}`, import.meta.url), "utf8")) as never;
  const section = parseSection({
    embed: {
      dimensions: 4,
      max_length: 8,
      normalized: true,
      lowercase: false,
      prefixes: { query: "", passage: "" },
      functions: [{ name: "f", batch: 1, length: 8 }],
    },
  });
  const vectors = { info: {}, on: f.on.bind(f), run: async () => ({ output: new Float32Array(4) }) };
  embedder = new Embedder(vectors as never, new TextTokenizer(read("tokenizer.json"), read("tokenizer_config.json"), section), section);
  const array = (name: string, shape: number[]): object => ({ name, shape });
  const inputs = [array("image", [4, 4, 4]), array("frame", [4]), array("source", [2]), array("settings", [3])];
  const outputs = [array("boxes", [1, 4]), array("scores", [1]), array("classes", [1]), array("count", [1])];
  const none = { boxes: new Float32Array(4), scores: new Float32Array(1), classes: new Int32Array(1), count: new Int32Array(1) };
  const info = {
    functions: { look: { inputs, outputs } },
    sections: { detect: { entry: "look", labels: ["cat"], defaults: { confidence: 0.5, iou: 0.5 } } },
  };
  detector = new Detector({
    info,
    on: f.on.bind(f),
    run: () => Object.assign(Promise.resolve(none), { result: Promise.resolve({ runMs: 1 }) }),
  } as never);
});
afterAll(() => Promise.all([chat.dispose(), f.dispose()]));

const PIXELS = { data: new Uint8ClampedArray(64), width: 4, height: 4 };
const MESSAGES = [{ role: "user", content: "hi" }];
const INPUTS = { x: Float32Array.of(1, 2, 3, 4), n: Int32Array.of(1) };

const LOADERS: Record<string, (...args: Loose[]) => Promise<unknown>> = {
  load,
  loadChat,
  loadFunction,
  loadDetector,
  loadEmbedder,
  loadImageGenerator,
};

/** Every call that takes options, with everything else right. */
const CALLS: Record<string, (options: Loose) => Promise<unknown>> = {
  ...Object.fromEntries(Object.entries(LOADERS).map(([name, call]) => [name, (options: Loose) => call("./nothing-here/", options)])),
  "chat.generate": (options) => collect(chat.generate(MESSAGES, options)),
  "chat.generateIds": (options) => collect(chat.generateIds([4], options)),
  "f.run": (options) => f.run(INPUTS, options),
  "session.send": (options) => collect(new ChatSession(chat, { maxTokens: 2 }).send("hi", options)),
  "new ChatSession": async (options) => new ChatSession(chat, options),
  "completions.create": (options) => new OpenAI({ chat }).chat.completions.create({ messages: MESSAGES as never, max_tokens: 2 }, options),
  "embeddings.create": (options) => new OpenAI({ embed: embedder }).embeddings.create({ input: "a" }, options),
  "detector.detect": (options) => detector.detect(PIXELS, options),
  "embedder.embed": (options) => embedder.embed(["a"], options),
  "embedder.split": async (options) => embedder.split("a b c", options),
  splitText: async (options) => splitText("a b c", options),
  passagesOf: async (options) => [...passagesOf("a b c", options)],
  "generator.generateRgba": (options) => generator.generateRgba("a", options),
};
/** What a message calls those that do not have the name of their method. */
const TOLD_AS: Record<string, string> = {
  "new ChatSession": "a session",
  passagesOf: "splitText()",
  "generator.generateRgba": "textToImage()",
};
const WITHOUT_SIGNAL = ["new ChatSession", "embedder.split", "splitText", "passagesOf"];

async function mistake(call: () => unknown): Promise<TinywebError> {
  let error: unknown;
  try {
    await call();
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(TinywebError);
  const { code, message } = error as TinywebError;
  expect(code).toBe("bad-argument");
  expect(message).not.toMatch(/Cannot |is not a function|is not iterable|undefined \(|null \(|\[object/);
  expect(message).toMatch(/[.]$/);
  return error as TinywebError;
}

describe.each(Object.entries(CALLS))("%s", (name, call) => {
  it("takes null and undefined for no options", async () => {
    const loader = name in LOADERS;
    for (const none of [null, undefined]) {
      const answer = call(none);
      if (loader)
        await expect(answer).rejects.not.toMatchObject({ code: "bad-argument" }); // there is no such folder
      else await answer;
    }
    if (!WITHOUT_SIGNAL.includes(name) && !loader) await call({ signal: null });
  });

  it.each([
    ["a number", 5],
    ["a text", "fast"],
    ["a list", []],
    ["a function", () => 1],
    ["a signal itself", new AbortController().signal],
  ])("refuses %s as options", async (_, wrong) => {
    const { message } = await mistake(() => call(wrong));
    expect(message).toMatch(/^The options of .* must be an object, such as \{ signal \}, not /);
    expect(message).toContain(`The options of ${TOLD_AS[name] ?? `${name.split(".").at(-1)}()`} must`);
  });

  it("warns of an option that it does not know, once, and says which there are", async () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    for (let i = 0; i < 2; i++) await call({ [`${name} max_tokens`]: 5 }).catch(() => undefined);
    expect(warn.mock.calls).toEqual([[expect.stringMatching(/^tinyweb: .* ignores the option ".* max_tokens"; it knows .*\w\.$/)]]);
    warn.mockRestore();
  });

  it.runIf(!WITHOUT_SIGNAL.includes(name))("refuses a signal that is none", async () => {
    for (const wrong of [new AbortController(), "stop", true, {}]) {
      expect((await mistake(() => call({ signal: wrong }))).message).toMatch(
        /^signal must be an AbortSignal, such as controller\.signal, not /,
      );
    }
  });
});

describe.each(Object.entries(LOADERS))("%s", (_, call) => {
  it.each([[undefined], [null], [""], [5], [{}], ["http://"], [Promise.resolve("./model/")]])(
    "refuses %s for an address",
    async (wrong) => {
      expect((await mistake(() => call(wrong))).message).toMatch(
        /^The model must be the address of its folder, such as "\.\/model\/", not /,
      );
    },
  );

  it.each<[string, object]>([
    ['backend must be one of auto, webgpu, wasm, wasm-single, not "cuda".', { backend: "cuda" }],
    ["backend must be one of auto, webgpu, wasm, wasm-single, not 1.", { backend: 1 }],
    ['threads must be an integer of at least 1, not "x".', { threads: "x" }],
    ["threads must be an integer of at least 1, not 0.", { threads: 0 }],
    ["threads must be an integer of at least 1, not 1.5.", { threads: 1.5 }],
    ["threads must be an integer of at least 1, not -2.", { threads: -2 }],
    ["threads must be an integer of at least 1, not NaN.", { threads: NaN }],
    ["context must be an integer of at least 16, not 3.", { context: 3 }],
    ['memoryBudgetBytes must be a number of at least 1, not "1 GB".', { memoryBudgetBytes: "1 GB" }],
    ['functions must be a list of names, not "run".', { functions: "run" }],
    ["onProgress must be a function, not true.", { onProgress: true }],
    ["onInterrupted must be a function, not Object.", { onInterrupted: {} }],
  ])("says: %s", async (message, options) => {
    expect((await mistake(() => call("./nothing-here/", options))).message).toBe(message);
  });
});

describe("what else is wrong", () => {
  it.each<[string, () => unknown]>([
    ['task must be one of chat, function, detect, image, embed, not "talk".', () => load("./x/", { task: "talk" } as Loose)],
    ['An event must be one of device-lost, backend-changed, not "lost".', () => chat.on("lost" as never, () => undefined)],
    ['An event must be one of device-lost, backend-changed, not "lost".', () => generator.on("lost" as never, () => undefined)],
    ["A listener must be a function, not undefined.", () => f.on("device-lost", undefined as never)],
    ["messages must be a non-empty list of { role, content }.", () => collect(chat.generate(undefined as never))],
    ["messages must be a non-empty list of { role, content }.", () => collect(chat.generate("hi" as never))],
    ["messages must be a non-empty list of { role, content }.", () => chat.countTokens(null as never)],
    ["messages[0] must have a role and a content, both strings.", () => collect(chat.generate([null] as never))],
    [
      "messages[0] must have a role and a content, both strings.",
      () => collect(chat.generate([{ role: "user", content: ["hi"] }] as never)),
    ],
    ["maxTokens must be an integer in 1 … 2147483647, not 0.", () => collect(chat.generate(MESSAGES, { maxTokens: 0 }))],
    ["temperature must be a number in 0 … 100, not -1.", () => collect(chat.generate(MESSAGES, { temperature: -1 }))],
    ["temperature must be a number in 0 … 100, not NaN.", () => collect(chat.generate(MESSAGES, { temperature: NaN }))],
    ["topK must be an integer in 0 … 2147483647, not 1.5.", () => collect(chat.generate(MESSAGES, { topK: 1.5 }))],
    ["topP must be a number in 0 … 1, not 1.1.", () => collect(chat.generate(MESSAGES, { topP: 1.1 }))],
    ["repetitionPenalty must be a number in 0.01 … 100, not 0.", () => collect(chat.generate(MESSAGES, { repetitionPenalty: 0 }))],
    ["seed must be an integer in -9007199254740991 … 9007199254740991, not 0.5.", () => collect(chat.generate(MESSAGES, { seed: 0.5 }))],
    [
      "hiddenTokensPerSecond must be a number of at least 0, not -1.",
      () => collect(chat.generate(MESSAGES, { hiddenTokensPerSecond: -1 })),
    ],
    ["token ids must be a non-empty list.", () => collect(chat.generateIds(undefined as never))],
    ["token ids must be a non-empty list.", () => chat.logits("4" as never)],
    ["signal must be an AbortSignal, such as controller.signal, not 3.", () => chat.logits([4], 3 as never)],
    ["The inputs of run() must be arrays by name, such as { x }, not undefined.", () => f.run(undefined as never)],
    ["The inputs of run() must be arrays by name, such as { x }, not null.", () => f.run(null as never)],
    ['The inputs of run() must be arrays by name, such as { x }, not "x".', () => f.run("x" as never)],
    ['This function has no input "z"; it has x, n.', () => f.run({ z: INPUTS.x })],
    ['The input "x" must be a Float32Array of shape (2, 2), 4 elements, not object.', () => f.run({ ...INPUTS, x: [1, 2, 3, 4] as never })],
    ['There is no function "5": this bundle has run.', () => f.run(INPUTS, { function: 5 as never })],
    ['outputs must be a list of names, such as ["y"], not "y".', () => f.run(INPUTS, { outputs: "y" as never })],
    ['This function has no output "7"; it has y, positive.', () => f.run(INPUTS, { outputs: [7] as never })],
    ["A session needs a chat model: new ChatSession(await loadChat(…)).", () => new ChatSession(undefined as never)],
    ["A session needs a chat model: new ChatSession(await loadChat(…)).", () => new ChatSession(Promise.resolve(chat) as never)],
    ["system must be a text, not 5.", () => new ChatSession(chat, { system: 5 as never })],
    ["messages[0] must have a role and a content, both strings.", () => new ChatSession(chat, { messages: [5] as never })],
    ['maxTokens must be an integer in 1 … 2147483647, not "9".', () => new ChatSession(chat, { maxTokens: "9" as never })],
    ["What is sent must be a text, not undefined.", () => new ChatSession(chat).send(undefined as never).next()],
    ["OpenAI takes loaded models: new OpenAI({ chat: await loadChat(…) }).", () => new OpenAI(undefined as never)],
    ["No chat model is there: new OpenAI({ chat: await load(…) }).", () => new OpenAI({ chat: loadChat as never }).chat],
    ["No chat model is there: new OpenAI({ chat: await load(…) }).", () => new OpenAI({ chat: Promise.resolve(chat) as never }).chat],
    ["No embed model is there: new OpenAI({ embed: await load(…) }).", () => new OpenAI({ chat }).embeddings],
    ["No image model is there: new OpenAI({ image: await load(…) }).", () => new OpenAI({ image: embedder as never }).images],
    ["the request: must be an object, not undefined.", () => new OpenAI({ chat }).chat.completions.create(undefined as never)],
    ["messages: must be a list of { role, content } that is not empty.", () => new OpenAI({ chat }).chat.completions.create({} as never)],
    [
      "n: only 1 is possible here, not 1.5.",
      () => new OpenAI({ chat }).chat.completions.create({ messages: MESSAGES as never, n: 1.5 as never }),
    ],
    ["input: must be a text or a list of texts that is not empty.", () => new OpenAI({ embed: embedder }).embeddings.create({ input: [] })],
    ['confidence must be a number in 0 … 1, not "high".', () => detector.detect(PIXELS, { confidence: "high" as never })],
    ['agnostic must be true or false, not "yes".', () => detector.detect(PIXELS, { agnostic: "yes" as never })],
    ['The texts for embed() must be an array of strings, not "text".', () => embedder.embed("text" as never)],
    ["The texts for embed() must be an array of strings, not undefined.", () => embedder.embed(undefined as never)],
    ["embed() takes an array of strings; number 1 is none.", () => embedder.embed(["a", null] as never)],
    ['kind must be one of query, passage, not "question".', () => embedder.embed(["a"], { kind: "question" as never })],
    ['kind must be one of query, passage, not "question".', () => embedder.countTokens("a", "question" as never)],
    ["onVector must be a function, not 1.", () => embedder.embed(["a"], { onVector: 1 as never })],
    ["The text must be a string, not undefined.", () => splitText(undefined as never)],
    ["The text must be a string, not 5.", () => embedder.split(5 as never)],
    ["size must be a number of at least 1, not 0.", () => splitText("a", { size: 0 })],
    ['measure must be a function, not "words".', () => splitText("a", { measure: "words" as never })],
    ["The prompt must be a text, not undefined.", () => generator.generateRgba(undefined as never)],
    ["negativePrompt must be a text, not 5.", () => generator.generateRgba("a", { negativePrompt: 5 as never })],
    ["steps must be an integer in 1 … 1000, not 0.", () => generator.generateRgba("a", { steps: 0 })],
    ["seed must be an integer in 0 … 9007199254740991, not -1.", () => generator.generateRgba("a", { seed: -1 })],
    [
      'scheduler must be one of ddim, euler, euler-ancestral, dpm++2m, lcm, not "best".',
      () => generator.generateRgba("a", { scheduler: "best" as never }),
    ],
    ["onStep must be a function, not Object.", () => generator.generateRgba("a", { onStep: {} as never })],
  ])("says: %s", async (message, call) => {
    expect((await mistake(call)).message).toBe(message);
  });

  it("is told of pictures, too", async () => {
    for (const image of [5, "cat.png", {}, []]) {
      expect((await mistake(() => generator.generateRgba("a", { image: image as never }))).message).toMatch(
        /^The picture to begin from cannot be used: /,
      );
    }
    for (const image of [undefined, null, 5, "cat.png", {}, []]) {
      expect((await mistake(() => detector.detect(image as never))).message).toMatch(/^The picture cannot be searched: /);
    }
  });

  it("is told before what a request cannot say makes the message fail", async () => {
    const request: Record<string, unknown> = { messages: MESSAGES };
    request["response_format"] = request; // no JSON
    expect((await mistake(() => new OpenAI({ chat }).chat.completions.create(request as never))).message).toMatch(/^response_format: /);
  });

  it("is told of functions and other things that cannot be sent", async () => {
    expect((await mistake(() => f.run({ ...INPUTS, x: (() => 1) as never }))).message).toMatch(
      /^The arguments cannot be sent to the worker: .*\.$/,
    );
  });
});
