import { afterEach, describe, expect, it, vi } from "vitest";
import type { ChatResult } from "../src/answer.js";
import { TinywebError } from "../src/errors.js";
import { CONTEXT, EOS, expected, expectedLogits, promptIds, VOCAB } from "./fake-bundle.js";
import { alive, spawnNodeThread } from "./node-thread.js";
import { collect, openFake, type Opened } from "./open.js";

const opened: Opened[] = [];
async function open(backend: "wasm" | "wasm-single"): Promise<Opened> {
  const one = await openFake({ options: { backend } });
  opened.push(one);
  return one;
}
afterEach(() => {
  opened.splice(0).forEach(({ host }) => host.dispose());
  vi.restoreAllMocks();
});

/** A module whose function `f` is `unreachable`. */
const TRAP = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 5, 1, 3, 0, 0, 11);
const PROMPT = [256, 259, 104, 105, 257, 260];
const user = (content: string): { role: string; content: string } => ({ role: "user", content });
const assistant = (content: string): { role: string; content: string } => ({ role: "assistant", content });

describe.each(["wasm-single", "wasm"] as const)("chat on %s", (backend) => {
  it("uses the backend that was asked for", async () => {
    const { session } = await open(backend);
    expect(session.info).toMatchObject({
      backend,
      adapter: backend === "wasm" ? "3 CPU threads" : "1 CPU thread",
      memoryBytes: 4 * 65536,
      kernelsPerToken: 4,
      context: CONTEXT,
      model: "fake",
      modelBytes: 1305,
    });
  });

  it("says token by token what the model says", async () => {
    const { session } = await open(backend);
    for (const length of [1, 2, 7, 8, 9, 25]) {
      const prompt = Array.from({ length }, (_, i) => (i * 29 + length) % 256);
      expect(await collect(session.generateIds(prompt, { maxTokens: 12 }))).toEqual(expected(prompt, 12));
    }
  });

  it("gives the logits of the last position", async () => {
    const { session } = await open(backend);
    for (const length of [1, 8, 11]) {
      const ids = Array.from({ length }, (_, i) => (i * 53) % 256);
      expect(await session.logits(ids)).toEqual(expectedLogits(ids));
    }
  });
});

describe("generating", () => {
  it("hands the sampling settings and the seed to the device", async () => {
    const { session } = await open("wasm-single");
    const choice = { temperature: 0.75, topP: 0.5, topK: 7, repetitionPenalty: 1.25, seed: -12345 };
    expect(await collect(session.generateIds(PROMPT, { ...choice, maxTokens: 9 }))).toEqual(expected(PROMPT, 9, choice));
    // A repetition penalty alone is a reason to sample.
    const penal = { temperature: 0, topP: 1, topK: 1, repetitionPenalty: 1.5, seed: 3 };
    expect(await collect(session.generateIds(PROMPT, { ...penal, maxTokens: 9 }))).toEqual(expected(PROMPT, 9, penal));
  });

  it("takes another seed each time when none is given", async () => {
    const { session } = await open("wasm-single");
    const run = (): Promise<number[]> => collect(session.generateIds(PROMPT, { temperature: 1, maxTokens: 12 }));
    expect(await run()).not.toEqual(await run());
  });

  it("streams text and ends before the end token", async () => {
    const { session } = await open("wasm-single");
    // A prompt whose answer ends by itself.
    const text = Array.from({ length: 200 }, (_, i) => `p${i}`).find((t) => {
      const ids = expected(promptIds([user(t)]), 20);
      return ids.at(-1) === EOS && ids.length > 2;
    }) as string;
    const prompt = promptIds([user(text)]);
    const answer = expected(prompt, 20);
    const streamed = session.generate([user(text)], { maxTokens: 20 });
    const parts = await collect(streamed);
    const said = parts.map(({ token }) => token);
    expect(said.slice(0, answer.length - 1)).toEqual(answer.slice(0, -1));
    expect(said).not.toContain(EOS);
    const bytes = Uint8Array.from(answer.filter((id) => id < 256));
    expect(parts.map((part) => part.text).join("")).toBe(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
    expect(await streamed.result).toMatchObject({ promptTokens: prompt.length, answerTokens: answer.length, stopReason: "end" });
    expect(await collect(session.generateIds(prompt, { maxTokens: 20 }))).toEqual(answer);
  });

  it("starts behind what the cache still holds", async () => {
    const { session } = await open("wasm-single");
    const run = async (ids: number[], maxTokens: number): Promise<[number[], ChatResult]> => {
      const answer = session.generateIds(ids, { maxTokens });
      return [await collect(answer), await answer.result];
    };
    const [answer, figures] = await run(PROMPT, 6);
    expect(figures).toMatchObject({ promptTokens: 6, reusedTokens: 0, stopReason: "max-tokens" });
    const second = [...PROMPT, ...answer, 1, 2, 3];
    // the last token of the answer was chosen, but never read
    expect(await run(second, 6)).toEqual([expected(second, 6), expect.objectContaining({ reusedTokens: 11 })]);
    const other = [...PROMPT.slice(0, 3), 99, 98];
    expect(await run(other, 6)).toEqual([expected(other, 6), expect.objectContaining({ reusedTokens: 3 })]);
    expect(await session.logits(other)).toEqual(expectedLogits(other));
    // the last one is always read again, for its logits
    expect(await run(other, 1)).toEqual([expected(other, 1), expect.objectContaining({ reusedTokens: 4 })]);
    session.clearCache();
    expect(await run(other, 3)).toEqual([expected(other, 3), expect.objectContaining({ reusedTokens: 0 })]);
    expect(figures).toMatchObject({ promptTokens: 6, answerTokens: 6, reusedTokens: 0 }); // later calls leave it alone
  });

  it("measures what its caller could measure, but for the caller's own time", async () => {
    const { session } = await open("wasm-single");
    const begun = performance.now();
    const seen: number[] = [];
    const answer = session.generateIds(PROMPT, { maxTokens: 10 });
    for await (const token of answer) {
      expect(answer.progress.answerTokens).toBe(seen.length + 1);
      expect(token).toBeGreaterThanOrEqual(0);
      seen.push(performance.now());
      await new Promise((resolve) => setTimeout(resolve, 3)); // so that the bounds lie close together
    }
    const { tokensPerSecond, firstTokenMs, answerTokens } = await answer.result;
    const [first, last, before] = [seen[0], seen.at(-1), seen.at(-2)] as [number, number, number];
    expect(answerTokens).toBe(10);
    expect(firstTokenMs).toBeGreaterThan(0);
    expect(firstTokenMs).toBeLessThanOrEqual(first - begun);
    expect(tokensPerSecond).toBeGreaterThanOrEqual(9000 / (last - begun));
    expect(tokensPerSecond).toBeLessThanOrEqual(9000 / (before - first));
  });

  it.each([
    ["steps", (token: number) => token],
    ["logits", undefined],
  ])("goes on with another engine where the device is lost: %s", async (_, takes) => {
    const { session, host } = await open("wasm-single");
    await collect(session.generateIds(PROMPT, { maxTokens: 4 }));
    const { engine } = host;
    vi.spyOn(engine, "step").mockRejectedValueOnce(new TinywebError("device-lost", "Gone."));
    const again = session.generateIds(PROMPT, { maxTokens: 9 });
    if (takes) expect((await collect(again)).map(takes)).toEqual(expected(PROMPT, 9));
    else expect(await session.logits(PROMPT)).toEqual(expectedLogits(PROMPT));
    expect(host.engine).not.toBe(engine);
    if (takes) expect(await again.result).toMatchObject({ reusedTokens: 0, answerTokens: 9 }); // its cache went with the device
  });

  /** From now on the module stops at its calls of these numbers, as kernels do that divide by zero or leave their memory. */
  function trapAt(...numbers: number[]): void {
    const trap = new WebAssembly.Instance(new WebAssembly.Module(TRAP)).exports["f"] as () => void;
    const { instantiate } = WebAssembly;
    let calls = 0;
    vi.spyOn(WebAssembly, "instantiate").mockImplementation((async (module: WebAssembly.Module, imports: WebAssembly.Imports) => {
      const { exports } = await instantiate(module, imports);
      const traps =
        (entry: (...given: number[]) => void) =>
        (...given: number[]): void => {
          if (numbers.includes(calls++)) trap();
          entry(...given);
        };
      return {
        exports: Object.fromEntries(Object.entries(exports).map(([name, e]) => [name, typeof e === "function" ? traps(e as never) : e])),
      };
    }) as never);
  }

  it("goes on with an engine made anew where the module stops", async () => {
    trapAt(8);
    const { session, host } = await open("wasm-single");
    const { engine } = host;
    expect(await collect(session.generateIds(PROMPT, { maxTokens: 9 }))).toEqual(expected(PROMPT, 9));
    expect(host.engine).not.toBe(engine);
    expect(await collect(session.generateIds(PROMPT, { maxTokens: 9 }))).toEqual(expected(PROMPT, 9));
  });

  it.each([
    ["wasm-single", "wasm-trap", /^The WASM module stopped in .*unreachable/],
    ["auto", "no-backend", /one thread.*The WASM module stopped|WASM.*stopped/s],
  ] as const)("tries no backend for ever that stops each time: %s", async (backend, code, message) => {
    trapAt(...Array.from({ length: 100 }, (_, i) => i));
    const one = await openFake({ options: { backend }, spawn: spawnNodeThread });
    opened.push(one);
    await expect(collect(one.session.generateIds(PROMPT, { maxTokens: 9 }))).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message),
    });
  });

  it("hands on what another engine would not mend", async () => {
    const { session, host } = await open("wasm-single");
    vi.spyOn(host.engine, "step").mockRejectedValueOnce(new TinywebError("internal", "Odd."));
    const broken = session.generateIds(PROMPT, { maxTokens: 9 });
    await expect(collect(broken)).rejects.toMatchObject({ code: "internal", message: "Odd." });
    expect(await broken.result).toMatchObject({ promptTokens: PROMPT.length, answerTokens: 0, stopReason: "failed" });
    const next = session.generateIds(PROMPT, { maxTokens: 9 });
    expect(await collect(next)).toEqual(expected(PROMPT, 9));
    expect((await next.result).reusedTokens).toBe(0); // what a failed step left in the cache is not trusted
  });

  it("stops within a token, and stays usable", async () => {
    const { session } = await open("wasm-single");
    const controller = new AbortController();
    const seen: number[] = [];
    const answer = session.generateIds(PROMPT, { maxTokens: 40, signal: controller.signal });
    const run = async (): Promise<void> => {
      for await (const token of answer) {
        seen.push(token);
        if (seen.length === 3) controller.abort();
      }
    };
    await expect(run()).rejects.toMatchObject({ code: "aborted" });
    expect(seen).toEqual(expected(PROMPT, 3));
    expect(await answer.result).toMatchObject({ answerTokens: 3, stopReason: "aborted" });
    const next = session.generateIds(PROMPT, { maxTokens: 9 });
    expect(await collect(next)).toEqual(expected(PROMPT, 9));
    expect((await next.result).reusedTokens).toBe(PROMPT.length - 1); // being stopped harms no cache
  });

  it("lets an event that arrives meanwhile stop it", async () => {
    const { session } = await open("wasm-single");
    const controller = new AbortController();
    setImmediate(() => controller.abort()); // a timer may come after the last of 60 fast tokens
    const prompt = [1];
    await expect(
      collect(session.generateIds(prompt, { maxTokens: 60, temperature: 1, topK: 1, signal: controller.signal })),
    ).rejects.toMatchObject({ code: "aborted" });
  });

  it("may be left in the middle", async () => {
    const { session } = await open("wasm");
    const left = session.generateIds(PROMPT, { maxTokens: 40 });
    for await (const token of left) if (token >= 0) break;
    expect(await left.result).toMatchObject({ answerTokens: 1, stopReason: "aborted" });
    expect(await collect(session.generateIds(PROMPT, { maxTokens: 9 }))).toEqual(expected(PROMPT, 9));
  });

  it("answers concurrent calls one after another", async () => {
    const { session } = await open("wasm");
    const prompts = [[1, 2, 3], [1, 2, 4], [9]];
    const answers = prompts.map((prompt, i) => session.generateIds(prompt, { maxTokens: 8 - i }));
    expect(await Promise.all(answers.map(collect))).toEqual(prompts.map((prompt, i) => expected(prompt, 8 - i)));
    const results = await Promise.all(answers.map(({ result }) => result));
    expect(results.map(({ promptTokens, reusedTokens, answerTokens }) => [promptTokens, reusedTokens, answerTokens])).toEqual([
      [3, 0, 8],
      [3, 2, 7],
      [1, 0, 6],
    ]);
  });

  it("lets a waiting call be cancelled without the running one", async () => {
    const { session } = await open("wasm-single");
    const controller = new AbortController();
    const first = collect(session.generateIds(PROMPT, { maxTokens: 20 }));
    const second = collect(session.generateIds(PROMPT, { maxTokens: 20, signal: controller.signal }));
    const third = collect(session.generateIds([5], { maxTokens: 4 }));
    controller.abort();
    await expect(second).rejects.toMatchObject({ code: "aborted" });
    expect(await first).toEqual(expected(PROMPT, 20));
    expect(await third).toEqual(expected([5], 4));
  });

  it("refuses what are no ids", async () => {
    const { session } = await open("wasm-single");
    const refused = { code: "bad-argument", message: "token ids must be a non-empty list." };
    for (const ids of [[], 5, "1"]) await expect(session.logits(ids as never)).rejects.toMatchObject(refused);
    for (const id of [VOCAB, -1, 0.5]) {
      const message = `${id} is not a token id of this model (0 … ${VOCAB - 1}).`;
      await expect(session.logits([1, id])).rejects.toMatchObject({ code: "bad-argument", message });
    }
  });
});

describe("a full context", () => {
  it("ends an answer at the last position", async () => {
    const { session } = await open("wasm-single");
    const prompt = Array.from({ length: CONTEXT - 3 }, (_, i) => i);
    const answer = expected(prompt, 100);
    const full = session.generateIds(prompt, { maxTokens: 100 });
    expect(await collect(full)).toEqual(answer);
    if (!answer.includes(EOS)) expect(answer).toHaveLength(4);
    expect((await full.result).stopReason).toBe("context-full");
  });

  it("drops the oldest turns, and keeps the system message", async () => {
    const { session } = await open("wasm-single");
    const system = { role: "system", content: "S" };
    const messages = [system, user("first"), assistant("one"), user("second"), assistant("two two two"), user("third")];
    const kept = [system, user("second"), assistant("two two two"), user("third")];
    expect(session.countTokens(kept)).toBe(promptIds(kept).length);
    const said = session.generate(messages, { maxTokens: 24 });
    const parts = await collect(said);
    const answer = expected(promptIds(kept), 24);
    expect(parts.map(({ token }) => token)).toEqual(answer.at(-1) === EOS ? answer.slice(0, -1) : answer);
    expect(await said.result).toMatchObject({ droppedMessages: 2, promptTokens: promptIds(kept).length });
    const short = session.generate([user("a")], { maxTokens: 2 });
    await collect(short);
    expect((await short.result).droppedMessages).toBe(0);
  });

  it("says so when the last message alone is too long", async () => {
    const { session } = await open("wasm-single");
    const long = user("x".repeat(CONTEXT));
    await expect(collect(session.generate([user("a"), assistant("b"), long]))).rejects.toMatchObject({ code: "context-full" });
    const ids = Array.from({ length: CONTEXT + 1 }, () => 1);
    const message = `${CONTEXT + 1} token ids are more than the model's context of ${CONTEXT}.`;
    await expect(session.logits(ids)).rejects.toMatchObject({ code: "context-full", message });
    expect(await session.logits(ids.slice(1))).toEqual(expectedLogits(ids.slice(1)));
    expect(await session.logits([7])).toEqual(expectedLogits([7]));
  });

  it("accepts a shorter answer when nothing else is left to drop", async () => {
    const { session } = await open("wasm-single");
    const long = user("x".repeat(CONTEXT - 22)); // 26 + the template's 4 tokens, leaving less than asked for
    const answer = session.generate([user("a"), assistant("b"), long], { maxTokens: 32 });
    expect((await collect(answer)).length).toBeGreaterThan(0);
    expect((await answer.result).droppedMessages).toBe(2);
  });
});

describe("threads", () => {
  it("end with the model", async () => {
    const one = await openFake({ options: { backend: "wasm", threads: 2 } });
    expect(alive.size).toBe(1);
    expect(one.session.info.adapter).toBe("2 CPU threads");
    await collect(one.session.generateIds(PROMPT, { maxTokens: 5 }));
    one.host.dispose();
    await expect.poll(() => alive.size).toBe(0);
    await expect(one.session.logits([1])).rejects.toMatchObject({ code: "disposed" });
  });

  it("survive hundreds of calls", async () => {
    const { session } = await open("wasm");
    for (let i = 0; i < 12; i++) {
      const prompt = [i, i + 1];
      expect(await collect(session.generateIds(prompt, { maxTokens: 50 }))).toEqual(expected(prompt, 50));
    }
  });
});
