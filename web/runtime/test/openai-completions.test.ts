import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ChatCompletions, randomId, type ChatCompletionChunk } from "../src/openai/completions.js";
import type { ChatRequest } from "../src/openai/request.js";
import { FakeChat } from "./fake-chat.js";
import { collect } from "./open.js";

const MESSAGES = [{ role: "user", content: "hi" }] as const;
const NOW = Date.UTC(2031, 0, 2, 3, 4, 5, 678);
let chat: FakeChat;
let completions: ChatCompletions;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"], now: NOW });
  chat = new FakeChat();
  completions = new ChatCompletions(chat);
});
afterEach(() => vi.useRealTimers());

const whole = (change: object = {}): ReturnType<typeof completions.create> =>
  completions.create({ messages: MESSAGES, ...change } as ChatRequest);
const stream = async (change: object = {}): Promise<ChatCompletionChunk[]> =>
  collect(await completions.create({ messages: MESSAGES, stream: true, ...change } as ChatRequest & { stream: true }));
const usage = (answer: number): object => ({ prompt_tokens: 2, completion_tokens: answer, total_tokens: 2 + answer });

describe("an answer in one piece", () => {
  it("is a completion", async () => {
    expect(await whole()).toEqual({
      id: expect.stringMatching(/^chatcmpl-[0-9a-f]{24}$/),
      object: "chat.completion",
      created: Math.floor(NOW / 1000),
      model: "fake",
      choices: [{ index: 0, message: { role: "assistant", content: "Hello", refusal: null }, logprobs: null, finish_reason: "stop" }],
      usage: usage(9), // as the model counts them
    });
  });

  it.each([
    ["end", "stop"],
    ["max-tokens", "length"],
    ["context-full", "length"],
  ] as const)("that ended by %s ends by %s", async (stopReason, finish_reason) => {
    chat.ended.stopReason = stopReason;
    expect(await whole()).toMatchObject({ choices: [{ finish_reason }] });
  });

  it("ends before a stop sequence, with the tokens that were made until then", async () => {
    chat.pieces = ["a", "bE", "ND", "c"];
    expect(await whole({ stop: "END" })).toMatchObject({
      choices: [{ message: { content: "ab" }, finish_reason: "stop" }],
      usage: usage(3),
    });
    expect(chat.left).toBe(1);
    chat.pieces = ["a", "E"];
    chat.ended.stopReason = "max-tokens";
    expect(await whole({ stop: "END" })).toMatchObject({
      choices: [{ message: { content: "aE" }, finish_reason: "length" }],
      usage: usage(9),
    });
  });

  it("asks the model with the request's settings, and no more than the context leaves", async () => {
    await whole();
    await whole({ temperature: 0.5, top_p: 0.25, top_k: 3, repetition_penalty: 1.5, seed: 4, max_tokens: 7 });
    await whole({ max_tokens: 1000 });
    expect(chat.asked.map(({ options }) => options)).toEqual([
      { maxTokens: 40 },
      { temperature: 0.5, topP: 0.25, topK: 3, repetitionPenalty: 1.5, seed: 4, maxTokens: 7 },
      { maxTokens: 98 },
    ]);
    expect(chat.asked[0]?.messages).toEqual(MESSAGES);
    const { signal } = new AbortController();
    await completions.create({ messages: MESSAGES }, { signal });
    expect(chat.asked.at(-1)?.options.signal).toBe(signal);
    expect(chat.asked[0]?.options).not.toHaveProperty("signal");
  });

  it("is refused where the messages take all of the context", async () => {
    const of = (length: number): Promise<unknown> => completions.create({ messages: [{ role: "user", content: "x".repeat(length) }] });
    await of(99);
    expect(chat.asked.at(-1)?.options.maxTokens).toBe(1);
    await expect(of(100)).rejects.toMatchObject({
      code: "context-full",
      message: "messages: they take 100 tokens, and this model reads at most 100 with its answer. Leave out the oldest.",
    });
    await expect(completions.create({ messages: MESSAGES }, 5 as never)).rejects.toThrow(
      "The options of create() must be an object, such as { signal }, not 5.",
    );
    await expect(completions.create({ messages: MESSAGES }, { signal: 5 as never })).rejects.toThrow(/^signal must be/);
  });

  it("fails as the model does", async () => {
    chat.failure = new Error("broken");
    await expect(whole()).rejects.toThrow("broken");
  });
});

describe("an answer in chunks", () => {
  const head = {
    id: expect.stringMatching(/^chatcmpl-[0-9a-f]{24}$/),
    object: "chat.completion.chunk",
    created: Math.floor(NOW / 1000),
    model: "fake",
  };
  const chunk = (delta: object, finish_reason: string | null = null): object => ({
    ...head,
    choices: [{ index: 0, delta, logprobs: null, finish_reason }],
  });

  it("begins with the role, ends with the reason, and has one id", async () => {
    chat.pieces = ["Hel", "", "lo"];
    const chunks = await stream();
    expect(chunks).toEqual([
      chunk({ role: "assistant", content: "" }),
      chunk({ content: "Hel" }),
      chunk({ content: "lo" }),
      chunk({}, "stop"),
    ]);
    expect(new Set(chunks.map(({ id }) => id)).size).toBe(1);
  });

  it("tells its usage where that is asked for", async () => {
    const chunks = await stream({ stream_options: { include_usage: true } });
    expect(chunks.map((c) => c.usage)).toEqual([null, null, null, null, usage(9)]);
    expect(chunks.at(-1)).toEqual({ ...head, choices: [], usage: usage(9) });
  });

  it("gives out at its end what could have begun a stop sequence", async () => {
    chat.pieces = ["a", "E", "N"];
    chat.ended.stopReason = "max-tokens";
    expect((await stream({ stop: ["END"] })).map((c) => c.choices[0]?.delta.content)).toEqual(["", "a", "EN", undefined]);
  });

  it("stops the model where the loop is left, the controller or the signal says so", async () => {
    for await (const { choices } of await completions.create({ messages: MESSAGES, stream: true })) if (choices[0]?.delta.content) break;
    expect(chat.left).toBe(1);
    const own = await completions.create({ messages: MESSAGES, stream: true });
    own.controller.abort();
    await expect(collect(own)).rejects.toMatchObject({ code: "aborted" });
    const outer = new AbortController();
    const removed = vi.spyOn(outer.signal, "removeEventListener");
    const linked = await completions.create({ messages: MESSAGES, stream: true }, { signal: outer.signal });
    expect(linked.controller.signal.aborted).toBe(false);
    outer.abort();
    expect(linked.controller.signal.aborted).toBe(true);
    await expect(collect(linked)).rejects.toMatchObject({ code: "aborted" });
    expect(removed).toHaveBeenCalledOnce();
  });
});

it("ids are hexadecimal, and differ", () => {
  vi.spyOn(crypto, "getRandomValues").mockImplementationOnce((bytes) => ((bytes as Uint8Array).set([0, 1, 15, 16, 255]), bytes));
  expect(randomId()).toBe("00010f10ff00000000000000");
  expect(randomId()).not.toBe(randomId());
});
