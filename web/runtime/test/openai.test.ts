import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Chat } from "../src/client.js";
import { TinywebError } from "../src/errors.js";
import { OpenAI, type ChatModel, type ChatRequest, type EmbeddingModel } from "../src/openai/index.js";
import { CONTEXT, EOS, expected, promptIds } from "./fake-bundle.js";
import { BASE } from "./fake-server.js";
import { LocalWorker } from "./local-worker.js";
import { collect } from "./open.js";

let chat: Chat;
let openai: OpenAI;
beforeEach(async () => {
  chat = await Chat.open(new LocalWorker(), BASE, { backend: "wasm-single" });
  openai = new OpenAI({ chat });
});
afterEach(() => chat.dispose());

const MESSAGES = [{ role: "user", content: "hi" }] as const;
const ids = promptIds(MESSAGES);
/** A question after which the model comes to its end. */
const question = Array.from({ length: 200 }, (_, i) => String(i)).find((content) =>
  expected(promptIds([{ role: "user", content }]), 20).includes(EOS),
) as string;
const decode = (tokens: number[]): string =>
  new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(tokens.filter((id) => id < 256)));

describe("chat.completions.create", () => {
  it("answers in one piece", async () => {
    const completion = await openai.chat.completions.create({ messages: MESSAGES, model: "fake", max_tokens: 6, temperature: 0 });
    const tokens = expected(ids, 6);
    expect(completion).toEqual({
      id: expect.stringMatching(/^chatcmpl-[0-9a-f]{24}$/),
      object: "chat.completion",
      created: expect.closeTo(Date.now() / 1000, -2),
      model: "fake",
      choices: [
        { index: 0, message: { role: "assistant", content: decode(tokens), refusal: null }, logprobs: null, finish_reason: "length" },
      ],
      usage: { prompt_tokens: ids.length, completion_tokens: 6, total_tokens: ids.length + 6 },
    });
  });

  it("answers in chunks that add up to the same", async () => {
    const request: ChatRequest = { messages: MESSAGES, max_completion_tokens: 6, temperature: 0 };
    const whole = await openai.chat.completions.create({ ...request, stream: false });
    const chunks = await collect(await openai.chat.completions.create({ ...request, stream: true }));
    expect(chunks[0]?.choices[0]?.delta).toEqual({ role: "assistant", content: "" });
    expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("")).toBe(whole.choices[0].message.content);
    expect(chunks.map((chunk) => chunk.choices[0]?.finish_reason)).toEqual([...chunks.slice(1).map(() => null), "length"]);
    expect(new Set(chunks.map(({ id, object }) => `${id} ${object}`)).size).toBe(1);
    expect(chunks[0]?.object).toBe("chat.completion.chunk");
    expect(chunks.every((chunk) => !("usage" in chunk))).toBe(true);
    const counted = await collect(
      await openai.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } }),
    );
    expect(counted.at(-1)).toMatchObject({ choices: [], usage: whole.usage });
    expect(counted.slice(0, -1).every(({ usage }) => usage === null)).toBe(true);
  });

  it("tells an end from a limit, and hands on seeds and sampling", async () => {
    const choice = { temperature: 0.75, topP: 0.5, topK: 7, repetitionPenalty: 1.25, seed: 99 };
    const sampled = await openai.chat.completions.create({
      messages: MESSAGES,
      max_tokens: 9,
      temperature: 0.75,
      top_p: 0.5,
      top_k: 7,
      repetition_penalty: 1.25,
      seed: 99,
    });
    expect(sampled.choices[0].message.content).toBe(decode(expected(ids, 9, choice)));
    const messages = [{ role: "user", content: question }] as const;
    const ended = await openai.chat.completions.create({ messages, max_tokens: 20, temperature: 0 });
    expect(ended.choices[0].finish_reason).toBe("stop");
    expect(ended.usage.completion_tokens).toBe(expected(promptIds(messages), 20).length);
  });

  it("ends before a stop sequence", async () => {
    const text = decode(expected(ids, 12));
    const stop = text.slice(4, 6);
    const ended = await openai.chat.completions.create({ messages: MESSAGES, max_tokens: 12, temperature: 0, stop: ["never there", stop] });
    expect(ended.choices[0]).toMatchObject({ message: { content: text.slice(0, text.indexOf(stop)) }, finish_reason: "stop" });
    expect(ended.usage.completion_tokens).toBeLessThan(12);
    expect((await openai.chat.completions.create({ messages: MESSAGES, max_tokens: 2, temperature: 0 })).choices[0].finish_reason).toBe(
      "length",
    );
  });

  it("stops by its signal, its controller, or when the loop is left", async () => {
    const long = { messages: MESSAGES, max_tokens: 40, temperature: 0.5, top_k: 1, seed: 1, stream: true } as const;
    const stream = await openai.chat.completions.create(long);
    const broken = (async () => {
      for await (const chunk of stream) if (chunk.choices[0]?.delta.content) stream.controller.abort();
    })();
    await expect(broken).rejects.toMatchObject({ code: "aborted" });
    for await (const chunk of await openai.chat.completions.create(long)) if (chunk.choices[0]?.delta.content) break;
    const { signal } = new AbortController();
    const taken = vi.spyOn(signal, "addEventListener");
    const left = vi.spyOn(signal, "removeEventListener");
    await collect(await openai.chat.completions.create({ ...long, max_tokens: 2 }, { signal }));
    expect(left.mock.calls.map(([, listener]) => listener)).toEqual(taken.mock.calls.map(([, listener]) => listener));
    await expect(openai.chat.completions.create({ ...long, stream: false }, { signal: AbortSignal.abort() })).rejects.toMatchObject({
      code: "aborted",
    });
    const after = await openai.chat.completions.create({ messages: MESSAGES, max_tokens: 3, temperature: 0 });
    expect(after.choices[0].message.content).toBe(decode(expected(ids, 3)));
  });

  it("reads texts in parts, and takes developer for system", async () => {
    const plain = await openai.chat.completions.create({
      messages: [{ role: "system", content: "ab" }, ...MESSAGES],
      max_tokens: 4,
      temperature: 0,
    });
    const parts = [
      { type: "text", text: "a" },
      { type: "text", text: "b" },
    ] as const;
    const other = await openai.chat.completions.create({
      messages: [{ role: "developer", content: parts }, ...MESSAGES],
      max_tokens: 4,
      temperature: 0,
    });
    expect(other.choices[0].message).toEqual(plain.choices[0].message);
  });

  it("of calls at once has the usage and the reason of each", async () => {
    const asked = [1, 4, 9, 2].map((length, i) => ({
      messages: [{ role: "user", content: "x".repeat(length) }] as const,
      max_tokens: 3 + i,
      temperature: 0.5,
      top_k: 1,
      seed: 1,
    }));
    const ending = { messages: [{ role: "user", content: question }] as const, max_tokens: 20, temperature: 0 };
    const [streamed, whole, last, ...raw] = await Promise.all([
      Promise.all(
        asked.map(async (request) =>
          collect(await openai.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } })),
        ),
      ),
      Promise.all(asked.map((request) => openai.chat.completions.create(request))),
      openai.chat.completions.create(ending),
      ...asked.map(async ({ messages }, i) => {
        const answer = chat.generate(messages, { maxTokens: 2 + i, temperature: 0.5, topK: 1, seed: 1 });
        await collect(answer);
        return answer.result;
      }),
    ]);
    asked.forEach(({ messages, max_tokens }, i) => {
      const usage = {
        prompt_tokens: promptIds(messages as never).length,
        completion_tokens: max_tokens,
        total_tokens: promptIds(messages as never).length + max_tokens,
      };
      expect(streamed[i]?.at(-1)?.usage).toEqual(usage);
      expect(streamed[i]?.at(-2)?.choices[0]?.finish_reason).toBe("length");
      expect(whole[i]).toMatchObject({ usage, choices: [{ finish_reason: "length" }] });
      expect(raw[i]).toMatchObject({ promptTokens: usage.prompt_tokens, answerTokens: 2 + i, stopReason: "max-tokens" });
    });
    expect(last).toMatchObject({ choices: [{ finish_reason: "stop" }] });
  });

  it("never leaves out a message", async () => {
    const content = "x".repeat(CONTEXT - 12);
    const completion = await openai.chat.completions.create({
      messages: [
        { role: "user", content: "y" },
        { role: "user", content: content.slice(10) },
      ],
      temperature: 0,
    });
    expect(completion.usage.total_tokens).toBeLessThanOrEqual(CONTEXT);
    const large = [
      { role: "user", content: "the first" },
      { role: "user", content },
    ] as const;
    await expect(openai.chat.completions.create({ messages: large })).rejects.toMatchObject({
      code: "context-full",
      message: expect.stringContaining(String(CONTEXT)),
    });
  });

  it.each<[string, object, string]>([
    ["tools", { tools: [{ type: "function" }] }, "tools"],
    ["several answers", { n: 2 }, "n: only 1"],
    ["a penalty", { frequency_penalty: 0.5 }, "frequency_penalty: only 0"],
    ["JSON", { response_format: { type: "json_object" } }, "response_format"],
    ["logprobs", { logprobs: true }, "logprobs"],
    ["another model", { model: "gpt-4" }, '"gpt-4" is not loaded; this is "fake"'],
    ["a hot temperature", { temperature: 3 }, "temperature: must be a number in 0 … 2, not 3"],
    ["half a token", { max_tokens: 1.5 }, "max_tokens: must be an integer"],
    ["an empty stop", { stop: "" }, "stop"],
    ["a misspelt name", { max_token: 5 }, "max_token: this model cannot do that; it knows frequency_penalty"],
    ["no messages", { messages: [] }, "messages"],
    ["a picture", { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "" } }] }] }, "messages[0].content"],
    ["a tool's role", { messages: [{ role: "tool", content: "" }] }, "messages[0].role"],
    ["a message's name", { messages: [{ role: "user", content: "", name: "x" }] }, "messages[0].name"],
    ["null for a message", { messages: [null] }, "messages[0].role"],
    ["the answer of a tool", { messages: [{ role: "tool", content: "", tool_call_id: "1" }] }, "messages[0].role"],
    ["a number to stop at", { stop: 5 }, "stop: must be a text"],
    ["what is no number", { temperature: NaN }, "temperature: must be a number in 0 … 2, not NaN"],
    ["a word for a flag", { stream: "true" }, 'stream: must be true or false, not "true"'],
    ["options of a stream without one", { stream_options: { include_usage: true } }, "set stream to true"],
    ["options that are unknown", { stream: true, stream_options: { include_obfuscation: true } }, "stream_options.include_obfuscation"],
    ["two limits", { max_tokens: 1, max_completion_tokens: 2 }, "give one of them"],
  ])("refuses by name what it cannot do: %s", async (_what, change, said) => {
    const error: unknown = await openai.chat.completions.create({ messages: MESSAGES, ...change } as ChatRequest).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(TinywebError);
    expect(error).toMatchObject({ code: "bad-argument", message: expect.stringContaining(said) });
  });

  it("takes null, and what says what happens anyway, for absent", async () => {
    const request = { messages: MESSAGES, max_tokens: 1, temperature: 0 };
    const nothing = {
      n: 1,
      tools: null,
      response_format: { type: "text" },
      frequency_penalty: 0,
      presence_penalty: null,
      stop: null,
      user: "me",
    } as const;
    const { choices } = await openai.chat.completions.create({ ...request, ...nothing } as ChatRequest & { stream?: false });
    expect(choices).toEqual((await openai.chat.completions.create(request)).choices);
  });
});

describe("embeddings.create", () => {
  const embed: EmbeddingModel = {
    info: { model: "e" },
    embed: async (texts) => texts.map((text) => Float32Array.of(text.length, 0.5)),
    countTokens: (text) => text.length + 2,
  };

  it("gives numbers or their bytes", async () => {
    const client = new OpenAI({ embed });
    expect(await client.embeddings.create({ input: ["a", "bcd"], model: "e" })).toEqual({
      object: "list",
      model: "e",
      data: [
        { object: "embedding", index: 0, embedding: [1, 0.5] },
        { object: "embedding", index: 1, embedding: [3, 0.5] },
      ],
      usage: { prompt_tokens: 8, total_tokens: 8 },
    });
    const { data } = await client.embeddings.create({ input: "ab", encoding_format: "base64" });
    expect(new Float32Array(new Uint8Array(Buffer.from(data[0]?.embedding as string, "base64")).buffer)).toEqual(Float32Array.of(2, 0.5));
    await expect(client.embeddings.create({ input: [] })).rejects.toMatchObject({ code: "bad-argument" });
    await expect(client.embeddings.create({ input: "a", dimensions: 3 } as never)).rejects.toMatchObject({
      message: expect.stringContaining("dimensions"),
    });
    await expect(client.embeddings.create(undefined as never)).rejects.toMatchObject({
      message: "the request: must be an object, not undefined.",
    });
    expect(() => client.chat).toThrow(/No chat model/);
    expect(() => new OpenAI(undefined as never)).toThrow(/takes loaded models/);
    expect(() => new OpenAI({ chat: {} as ChatModel }).embeddings).toThrow(/No embed model/);
  });
});
