import { describe, expect, it } from "vitest";
import { checkFields, checkModel, checkOnly, number, readChatRequest, refuse, type ChatRequest } from "../src/openai/request.js";

const MESSAGES = [{ role: "user", content: "hi" }] as const;
const read = (change: object = {}): ReturnType<typeof readChatRequest> =>
  readChatRequest({ messages: MESSAGES, ...change } as ChatRequest, "fake");
function said(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    expect(error).toMatchObject({ code: "bad-argument" });
    return (error as Error).message;
  }
  return "";
}

describe("a request", () => {
  it("of messages alone asks for the model's own ways", () => {
    expect(read()).toStrictEqual({
      messages: [{ role: "user", content: "hi" }],
      stop: [],
      stream: false,
      includeUsage: false,
      maxTokens: undefined,
      sampling: {},
    });
  });

  it("says everything in this library's words", () => {
    const stop = ["a", "b"];
    const wish = read({
      model: "fake",
      stream: true,
      stream_options: { include_usage: true },
      max_completion_tokens: 5,
      temperature: 2,
      top_p: 1,
      top_k: 3,
      repetition_penalty: 100,
      seed: -4,
      stop,
      n: 1,
      response_format: { type: "text" },
      frequency_penalty: 0,
      presence_penalty: 0,
      logprobs: false,
      user: "me",
    });
    expect(wish).toEqual({
      messages: [{ role: "user", content: "hi" }],
      stop: ["a", "b"],
      stream: true,
      includeUsage: true,
      maxTokens: 5,
      sampling: { temperature: 2, topP: 1, topK: 3, repetitionPenalty: 100, seed: -4 },
    });
    expect(wish.stop).not.toBe(stop);
    expect(read({ max_tokens: 7, stop: "x" })).toMatchObject({ maxTokens: 7, stop: ["x"] });
    expect(read({ stream: true, stream_options: {} })).toMatchObject({ stream: true, includeUsage: false });
  });

  it("counts null as absent", () => {
    const names = [
      "model",
      "stream",
      "stream_options",
      "max_completion_tokens",
      "max_tokens",
      "temperature",
      "top_p",
      "top_k",
      "repetition_penalty",
      "seed",
      "stop",
      "n",
      "response_format",
      "frequency_penalty",
      "presence_penalty",
      "logprobs",
      "user",
      "tools",
      "unheard",
    ];
    expect(read(Object.fromEntries(names.map((name) => [name, null])))).toEqual(read());
    expect(read({ stream: true, stream_options: { include_usage: null, other: null } }).includeUsage).toBe(false);
  });

  it.each<[object, string]>([
    [{ model: "gpt" }, 'model: "gpt" is not loaded; this is "fake".'],
    [{ model: "" }, 'model: "" is not loaded; this is "fake".'],
    [{ n: 2 }, "n: only 1 is possible here, not 2."],
    [{ response_format: { type: "json" } }, 'response_format: only {"type":"text"} is possible here, not {"type":"json"}.'],
    [{ frequency_penalty: 1 }, "frequency_penalty: only 0 is possible here, not 1."],
    [{ presence_penalty: "0" }, 'presence_penalty: only 0 is possible here, not "0".'],
    [{ logprobs: true }, "logprobs: only false is possible here, not true."],
    ...[5, [""], ["a", 5], "", {}].map((stop): [object, string] => [{ stop }, "stop: must be a text or a list of texts, none empty."]),
    [{ stream: 1 }, "stream: must be true or false, not 1."],
    [{ stream_options: {} }, "stream_options: is for answers in chunks: set stream to true."],
    [{ stream: true, stream_options: 5 }, "stream_options: must be an object, not 5."],
    [{ stream: true, stream_options: { x: 1 } }, "stream_options.x: this model cannot do that; it knows include_usage."],
    [{ stream: true, stream_options: { include_usage: "yes" } }, 'stream_options.include_usage: must be true or false, not "yes".'],
    [{ max_tokens: 1, max_completion_tokens: 1 }, "max_tokens: is max_completion_tokens by another name: give one of them."],
    [{ max_tokens: 0 }, "max_tokens: must be an integer in 1 … 2147483647, not 0."],
    [{ max_completion_tokens: 2 ** 31 }, "max_completion_tokens: must be an integer in 1 … 2147483647, not 2147483648."],
    [{ max_tokens: 1.5 }, "max_tokens: must be an integer in 1 … 2147483647, not 1.5."],
    [{ temperature: 2.1 }, "temperature: must be a number in 0 … 2, not 2.1."],
    [{ temperature: "1" }, 'temperature: must be a number in 0 … 2, not "1".'],
    [{ top_p: -0.1 }, "top_p: must be a number in 0 … 1, not -0.1."],
    [{ top_k: 0.5 }, "top_k: must be an integer in 0 … 2147483647, not 0.5."],
    [{ repetition_penalty: 0 }, "repetition_penalty: must be a number in 0.01 … 100, not 0."],
    [{ seed: 1.5 }, "seed: must be an integer in -9007199254740991 … 9007199254740991, not 1.5."],
    [{ messages: [] }, "messages: must be a list of { role, content } that is not empty."],
    [{ messages: "hi" }, "messages: must be a list of { role, content } that is not empty."],
    [{ messages: [MESSAGES[0], null] }, "messages[1].role: must be system, developer, user or assistant, not undefined."],
    [{ messages: [{ role: "tool", content: "" }] }, 'messages[0].role: must be system, developer, user or assistant, not "tool".'],
    [{ messages: [{ role: "user", content: "", name: "x" }] }, "messages[0].name: this model cannot do that; it knows content, role."],
    ...[
      5,
      undefined,
      [null],
      [{ type: "image_url" }],
      [{ type: "text" }],
      [{ type: "image", text: "x" }],
      [{ type: "text", text: "a" }, 5],
    ].map((content): [object, string] => [
      { messages: [{ role: "user", content }] },
      "messages[0].content: must be a text, or a list of parts of type text: this model reads nothing else.",
    ]),
  ])("%j is refused", (change, words) => {
    expect(said(() => read(change))).toBe(words);
  });

  it("names all that it knows when it does not know a field", () => {
    expect(said(() => read({ tools: [] }))).toBe(
      "tools: this model cannot do that; it knows frequency_penalty, logprobs, max_completion_tokens, max_tokens, messages, model, n, presence_penalty, " +
        "repetition_penalty, response_format, seed, stop, stream, stream_options, temperature, top_k, top_p, user.",
    );
  });

  it("may say its texts in parts, and developer for system", () => {
    const messages = [
      {
        role: "developer",
        content: [
          { type: "text", text: "a" },
          { type: "text", text: "b" },
        ],
      },
      { role: "system", content: "c" },
      { role: "assistant", content: "" },
      { role: "user", content: [] },
    ];
    expect(read({ messages }).messages).toEqual([
      { role: "system", content: "ab" },
      { role: "system", content: "c" },
      { role: "assistant", content: "" },
      { role: "user", content: "" },
    ]);
  });
});

describe("fields", () => {
  it("belong to an object", () => {
    const known = new Set(["b", "a"]);
    for (const [value, shown] of [
      [null, "null"],
      [undefined, "undefined"],
      [[], "[]"],
      ["x", '"x"'],
      [5, "5"],
      [() => 1, "() => 1"],
    ] as const) {
      expect(said(() => checkFields(value, known))).toBe(`the request: must be an object, not ${shown}.`);
      expect(said(() => checkFields(value, known, "part"))).toBe(`part: must be an object, not ${shown}.`);
    }
    checkFields({ a: 1, c: undefined, d: null }, known);
    expect(said(() => checkFields({ c: 0 }, known))).toBe("c: this model cannot do that; it knows a, b.");
    expect(said(() => checkFields({ c: false }, known, "part"))).toBe("part.c: this model cannot do that; it knows a, b.");
  });

  it("may be numbers within bounds, which belong to them", () => {
    expect([1, 2, 1.5].map((n) => number({ n }, "n", 1, 2))).toEqual([1, 2, 1.5]);
    expect([undefined, null].map((n) => number({ n }, "n", 1, 2))).toEqual([undefined, undefined]);
    expect(number({ n: 2 }, "n", 1, 2, true)).toBe(2);
    expect(said(() => number({ n: NaN }, "n", 1, 2))).toBe("n: must be a number in 1 … 2, not NaN.");
  });

  it("that may say one thing only are compared as JSON", () => {
    checkOnly({ a: { x: [1] }, b: null }, { a: { x: [1] }, b: 5, c: 6 });
    const circle: Record<string, unknown> = {};
    circle["a"] = circle;
    expect(said(() => checkOnly(circle, { a: 1 }))).toBe("a: only 1 is possible here, not what is no JSON.");
  });

  it("name a model that is there", () => {
    for (const name of [undefined, null, "m"]) checkModel(name, "m");
    expect(said(() => refuse("x", "no."))).toBe("x: no.");
  });
});
