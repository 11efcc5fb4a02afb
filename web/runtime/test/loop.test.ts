import { describe, expect, it } from "vitest";
import type { Engine, Slice } from "../src/engine.js";
import { chooseBlock, depthFor, draft, Loop } from "../src/loop.js";
import { parseManifest } from "../src/manifest.js";
import type { Settings } from "../src/chat.js";
import { best, CONTEXT, EOS, expected, fakeBundle, VOCAB } from "./fake-bundle.js";

const manifest = parseManifest(fakeBundle().manifest);

/** Computes what the fake model does, when the queue comes to it: `stepMs` after the step before it, and is read `lagMs` later. */
class FakeEngine implements Engine {
  readonly backend = "webgpu";
  readonly adapter = "fake";
  readonly memoryBytes = 0;
  readonly compiled = Promise.resolve();
  readonly entries: string[] = [];
  readonly ids = new Int32Array(CONTEXT + 8);
  private readonly said = new Int32Array(4);
  private readonly variables = [0, 1];
  private best = 0;
  private free = 0;
  flying = 0;
  mostFlying = 0;

  constructor(
    readonly depth: number,
    private readonly stepMs = 0,
    private readonly lagMs = 0,
  ) {}

  kernels(): number {
    return 1;
  }
  write(buffer: number, offset: number, bytes: Uint8Array<ArrayBuffer>): void {
    if (buffer === 2) new Uint8Array(this.ids.buffer).set(bytes, offset);
  }
  writeFrame(): void {}
  async flush(): Promise<void> {}
  setVariable(slot: number, value: number): void {
    this.variables[slot] = value;
  }
  async run(entries: readonly string[]): Promise<void> {
    const [start, count] = this.variables as [number, number];
    for (const entry of entries) {
      this.entries.push(entry);
      const upTo = (end: number): number => best([...this.ids.subarray(0, end)]);
      if (entry.startsWith("prefill")) this.best = upTo(start + count);
      else if (entry === "decode") this.best = upTo(start + 1);
      else if (entry === "verify") this.said.forEach((_, i) => (this.said[i] = upTo(start + i + 1)));
      else this.ids[start + 1] = this.best;
    }
  }
  async step(entries: readonly string[], slices: readonly Slice[]): Promise<Uint8Array<ArrayBuffer>[]> {
    void this.run(entries);
    const values = slices.map(
      ({ buffer, offset, bytes }) => new Uint8Array((buffer === 2 ? this.ids : this.said).buffer.slice(offset, offset + bytes)),
    );
    this.mostFlying = Math.max(this.mostFlying, ++this.flying);
    const now = performance.now();
    this.free = Math.max(now, this.free) + this.stepMs;
    const delay = this.free + this.lagMs - now;
    await new Promise<void>((resolve) => (delay > 0 ? setTimeout(resolve, delay) : setImmediate(resolve)));
    this.flying -= 1;
    return values;
  }
  loseDevice(): boolean {
    return false;
  }
  dispose(): void {}
}

const SETTINGS: Settings = {
  temperature: 0,
  topP: 1,
  topK: 0,
  repetitionPenalty: 1,
  maxTokens: 20,
  seed: 0,
  speculate: 0,
  hiddenTokensPerSecond: Infinity,
  signal: undefined,
};

/** Runs the loop as the session does. */
async function run(loop: Loop, prompt: number[], tokens: number, settings: Partial<Settings> = {}, stopAt = EOS): Promise<number[]> {
  const known = [...prompt];
  for await (const token of loop.stretch(known, prompt.length + tokens, { ...SETTINGS, ...settings })) {
    known.push(token);
    if (token === stopAt || known.length === prompt.length + tokens) break;
  }
  return known.slice(prompt.length);
}

const PROMPT = [256, 259, 104, 105, 257, 260];

describe("steps in flight", () => {
  it.each([1, 2, 3])("change nothing of what is said: %i", async (depth) => {
    const engine = new FakeEngine(depth, 1, 6);
    const loop = new Loop(manifest, () => engine);
    expect(await run(loop, PROMPT, 24)).toEqual(expected(PROMPT, 24));
    expect(engine.mostFlying).toBe(depth);
    expect(engine.flying).toBe(0);
    expect(engine.entries.filter((entry) => entry === "greedy")).toHaveLength(24); // none beyond the limit
  });

  it("run too far where an answer ends, and leave the cache as it was told", async () => {
    const engine = new FakeEngine(3, 1, 6);
    const loop = new Loop(manifest, () => engine);
    const answer = expected(PROMPT, 12);
    const stop = answer[8] as number;
    const said = await run(loop, PROMPT, 40, {}, stop);
    expect(said).toEqual(answer.slice(0, answer.indexOf(stop) + 1));
    expect(engine.entries.filter((entry) => entry === "greedy").length).toBeGreaterThan(said.length);
    expect(loop.cached).toEqual([...PROMPT, ...said].slice(0, -1));
    // the next turn goes on behind them
    const next = [...PROMPT, ...said, 7, 8];
    expect(await run(loop, next, 9)).toEqual(expected(next, 9));
    expect(loop.reused).toBe(PROMPT.length + said.length - 1);
  });

  it("end with an abort", async () => {
    const engine = new FakeEngine(3, 2, 2);
    const loop = new Loop(manifest, () => engine);
    const controller = new AbortController();
    const known = [...PROMPT];
    const go = async (): Promise<void> => {
      for await (const token of loop.stretch(known, 50, { ...SETTINGS, signal: controller.signal })) {
        known.push(token);
        if (known.length === PROMPT.length + 4) controller.abort();
      }
    };
    await expect(go()).rejects.toMatchObject({ code: "aborted" });
    expect(known.slice(PROMPT.length)).toEqual(expected(PROMPT, 4));
    expect(engine.flying).toBe(0);
  });

  it("keep a result on its way for five milliseconds, and are one at least", () => {
    for (const most of [1, 2, 3, 9]) {
      for (let ms = 0.25; ms < 200; ms *= 1.3) {
        const whole = 1 + Math.ceil(5 / ms - 0.05); // a hair above a whole number of steps is none more
        expect(depthFor(ms, most), `${ms}`).toBe(Math.min(whole, most));
      }
    }
    expect(depthFor(1000, 3)).toBe(1);
  });

  it("are as many as the way back takes", () => {
    expect([0.5, 2, 4, 5.2, 20, 90, 250].map((ms) => depthFor(ms, 3))).toEqual([3, 3, 3, 2, 2, 2, 1]);
    expect(depthFor(0.5, 1)).toBe(1);
  });
});

/** What the loop tells the engine, in order. */
class Told extends FakeEngine {
  readonly log: unknown[] = [];
  override write(buffer: number, offset: number, bytes: Uint8Array<ArrayBuffer>): void {
    const values = buffer === 5 ? [...new Float32Array(bytes.slice().buffer)] : [...new Int32Array(bytes.slice().buffer)];
    this.log.push(["write", buffer, offset, ...values]);
    super.write(buffer, offset, bytes);
  }
  override setVariable(slot: number, value: number): void {
    this.log.push(["set", slot, value]);
    super.setVariable(slot, value);
  }
  override async run(entries: readonly string[]): Promise<void> {
    this.log.push(["run", ...entries]);
    return super.run(entries);
  }
}

describe("the engine", () => {
  it("is told what is new of a prompt, block by block", async () => {
    const engine = new Told(1);
    const loop = new Loop(manifest, () => engine);
    const ids = Array.from({ length: 14 }, (_, i) => i + 20);
    await loop.prefill(ids, undefined);
    expect(engine.log).toEqual([
      ["write", 2, 0, ...ids],
      ["set", 0, 0],
      ["set", 1, 8],
      ["run", "prefill_8"],
      ["set", 0, 8],
      ["set", 1, 6],
      ["run", "prefill_8"],
    ]);
    expect([loop.cached, loop.reused]).toEqual([ids, 0]);
    engine.log.length = 0;
    const next = [...ids.slice(0, 12), 1, 2];
    await loop.prefill(next, undefined);
    expect(engine.log).toEqual([
      ["write", 2, 48, 1, 2],
      ["set", 0, 12],
      ["set", 1, 2],
      ["run", "prefill_2"],
    ]);
    expect([loop.cached, loop.reused]).toEqual([next, 12]);
    engine.log.length = 0;
    await loop.prefill(next, undefined); // the last is read again, for its logits
    expect(engine.log).toEqual([
      ["write", 2, 52, 2],
      ["set", 0, 13],
      ["set", 1, 1],
      ["run", "decode"],
    ]);
    expect(loop.reused).toBe(13);
    await loop.prefill(next.slice(0, 4), undefined);
    expect([loop.cached, loop.reused]).toEqual([next.slice(0, 4), 3]);
    loop.forget();
    await loop.prefill(next, undefined);
    expect([loop.cached, loop.reused]).toEqual([next, 0]);
  });

  it("hears nothing of a prompt that was stopped, and knows how far one came", async () => {
    const engine = new Told(1);
    const loop = new Loop(manifest, () => engine);
    await expect(loop.prefill([1, 2], AbortSignal.abort())).rejects.toMatchObject({ code: "aborted" });
    expect(engine.log).toEqual([]);
    const controller = new AbortController();
    engine.run = async () => controller.abort();
    const ids = Array.from({ length: 20 }, (_, i) => i);
    await expect(loop.prefill(ids, controller.signal)).rejects.toMatchObject({ code: "aborted" });
    expect(loop.cached).toEqual(ids.slice(0, 8));
  });

  it.each<[Partial<Settings>, string]>([
    [{ temperature: 0, repetitionPenalty: 1 }, "greedy"],
    [{ temperature: 0, repetitionPenalty: 1.5 }, "sample"],
    [{ temperature: 0.5, repetitionPenalty: 1 }, "sample"],
    [{ temperature: 0.5, topP: 0.25, repetitionPenalty: 1.5, topK: 7, seed: -9 }, "sample"],
  ])("chooses by %j", async (settings, entry) => {
    const engine = new Told(1);
    await run(new Loop(manifest, () => engine), [1, 2], 2, settings, -1);
    const all = { ...SETTINGS, ...settings };
    expect(engine.log).toContainEqual(["write", 5, 0, all.temperature, all.topP, all.repetitionPenalty, 0]);
    expect(engine.log).toContainEqual(["write", 6, 0, all.topK, all.seed]);
    const steps = engine.log.filter((said) => (said as string[])[0] === "run").slice(1);
    expect(steps).toEqual([
      ["run", entry],
      ["run", "decode", entry],
    ]);
    expect(engine.log.slice(-3)).toEqual([
      ["set", 0, 2],
      ["set", 1, 1],
      ["run", "decode", entry],
    ]);
  });

  it.each([-1, VOCAB, NaN])("that chooses token %d is at fault", async (token) => {
    const engine = new FakeEngine(1);
    engine.step = async () => [new Uint8Array(Number.isNaN(token) ? new Int32Array([2 ** 31 - 1]).buffer : Int32Array.of(token).buffer)];
    await expect(run(new Loop(manifest, () => engine), [1, 2], 2)).rejects.toMatchObject({
      code: "internal",
      message: `The webgpu backend chose token ${Number.isNaN(token) ? 2 ** 31 - 1 : token}, which does not exist.`,
    });
  });

  it("may choose the first and the last token there is", async () => {
    for (const token of [0, VOCAB - 1]) {
      const engine = new FakeEngine(1);
      engine.step = async () => [new Uint8Array(Int32Array.of(token).buffer)];
      expect(await run(new Loop(manifest, () => engine), [1, 2], 1)).toEqual([token]);
    }
  });
});

describe("guessing ahead", () => {
  it("is by definition what followed the longest end that was there before, the last time", () => {
    let state = 3;
    const random = (below: number): number => (state = (state * 48271) % 2147483647) % below;
    for (let round = 0; round < 400; round++) {
      const ids = Array.from({ length: random(14) }, () => random(3));
      const count = 1 + random(4);
      let found: number[] = [];
      for (const n of [2, 3, 4]) {
        for (let start = 0; start + n < ids.length; start++) {
          if (ids.slice(start, start + n).join() === ids.slice(-n).join()) found = ids.slice(start + n, start + n + count);
        }
      }
      expect(draft(ids, count), ids.join()).toEqual(found);
    }
  });

  it("finds the latest place that reads alike", () => {
    expect(draft([1, 2, 3, 9, 1, 2, 4, 7, 1, 2], 3)).toEqual([4, 7, 1]);
    expect(draft([5, 1, 2, 3, 9, 8, 1, 2, 4, 5, 1, 2], 2)).toEqual([3, 9]); // three alike before two
    expect(draft([7, 7, 7], 4)).toEqual([7]);
    expect(draft([1, 2, 3], 4)).toEqual([]);
    expect(draft([1], 4)).toEqual([]);
  });

  it.each([1, 2, 3, 100])("changes nothing of what is said: %i", async (speculate) => {
    // A prompt that holds its own answer, with a change in the middle: guesses are right, then wrong.
    const answer = expected([3, 1], 12);
    const told = [3, 1, ...answer];
    for (const prompt of [
      [...told, ...told, 3, 1],
      [...told.slice(0, 8), 99, ...told.slice(8), 3, 1],
      [200, 7],
      [5, 5, 5, 5],
    ]) {
      const engine = new FakeEngine(3);
      const loop = new Loop(manifest, () => engine);
      expect(await run(loop, prompt, 20, { speculate })).toEqual(expected(prompt, 20));
      expect([...engine.ids.subarray(0, loop.cached.length)]).toEqual(loop.cached);
    }
  });

  it("reads several tokens in one step where they repeat", async () => {
    // With kv of 0 everywhere the fake model says the same for the same token: its answers run in circles.
    const engine = new FakeEngine(3);
    const loop = new Loop(manifest, () => engine);
    const circle = [10, 11, 12, 13];
    engine.run = async function (this: FakeEngine, entries: readonly string[]) {
      const next = (id: number): number => circle[(circle.indexOf(id) + 1) % 4] as number;
      const start = (this as unknown as { variables: number[] }).variables[0] as number;
      for (const entry of entries) {
        this.entries.push(entry);
        if (entry === "greedy") this.ids[start + 1] = next(this.ids[start] as number);
        if (entry === "verify")
          for (let i = 0; i < 4; i++) (this as unknown as { said: Int32Array }).said[i] = next(this.ids[start + i] as number);
      }
    }.bind(engine);
    const prompt = [...circle, ...circle];
    const said = await run(loop, prompt, 24, { speculate: 3 });
    expect(said).toEqual(Array.from({ length: 24 }, (_, i) => circle[i % 4]));
    expect(engine.entries.filter((entry) => entry === "verify")).toHaveLength(6); // four tokens each, after the first
    expect(engine.entries.filter((entry) => entry === "decode")).toHaveLength(0);
  });

  it("is left out where tokens are drawn, and at the end of the room", async () => {
    const engine = new FakeEngine(3);
    const loop = new Loop(manifest, () => engine);
    await run(loop, [5, 5, 5, 5], 6, { speculate: 3, temperature: 1 });
    expect(engine.entries).not.toContain("verify");
    const long = Array.from({ length: CONTEXT - 2 }, (_, i) => i % 3);
    expect(await run(loop, long, 3, { speculate: 3 })).toEqual(expected(long, 3));
  });
});

describe("a state that cannot go back", () => {
  const source = fakeBundle().manifest as { chat: { rewinds?: boolean; verify?: unknown } };
  source.chat.rewinds = false;
  delete source.chat.verify;
  const once = parseManifest(source);

  /** Refuses to read what does not follow. */
  class StateEngine extends FakeEngine {
    stands = 0;
    readonly begun: number[] = [];
    override async run(entries: readonly string[]): Promise<void> {
      const [start, count] = (this as unknown as { variables: number[] }).variables as [number, number];
      for (const entry of entries) {
        if (entry === "greedy") continue;
        if (start !== 0 && start !== this.stands) throw new Error(`the state stands at ${this.stands}, not ${start}`);
        this.begun.push(start);
        this.stands = start + (entry === "decode" ? 1 : count);
      }
      await super.run(entries);
    }
  }

  it("goes on behind an answer, and is read anew where a text has changed", async () => {
    const engine = new StateEngine(3, 1, 2);
    const loop = new Loop(once, () => engine);
    const said = await run(loop, PROMPT, 9, { speculate: 3 });
    expect(said).toEqual(expected(PROMPT, 9));
    expect(engine.mostFlying).toBe(1);
    const next = [...PROMPT, ...said, 7, 8];
    expect(await run(loop, next, 5)).toEqual(expected(next, 5));
    expect(loop.reused).toBe(PROMPT.length + said.length - 1);
    for (const text of [next, [...next.slice(0, -1), 9], PROMPT, [...PROMPT, 1]]) {
      expect(await run(loop, text, 4)).toEqual(expected(text, 4));
      expect(loop.reused).toBe(0);
    }
  });

  it("is read anew after what failed or was ended", async () => {
    const engine = new StateEngine(3);
    const loop = new Loop(once, () => engine);
    const works = engine.run.bind(engine);
    await run(loop, PROMPT, 3);
    engine.run = async () => Promise.reject(new Error("lost"));
    const longer = [...loop.cached, 5, 6, 7];
    await expect(loop.prefill(longer, undefined)).rejects.toThrow("lost");
    engine.run = works;
    expect(await run(loop, longer, 4)).toEqual(expected(longer, 4));
    expect(loop.reused).toBe(0);
    const controller = new AbortController();
    const known = [...longer];
    const go = async (): Promise<void> => {
      for await (const token of loop.stretch(known, 40, { ...SETTINGS, signal: controller.signal })) {
        known.push(token);
        if (known.length === longer.length + 3) controller.abort();
      }
    };
    await expect(go()).rejects.toMatchObject({ code: "aborted" });
    const after = [...known, 3];
    expect(await run(loop, after, 4)).toEqual(expected(after, 4));
  });
});

describe("blocks of a prompt", () => {
  const blocks = [256, 64, 8, 1].map((block) => ({ block }));
  const cover = (tokens: number): number[] => {
    const taken: number[] = [];
    for (let left = tokens; left > 0; left -= taken.at(-1) as number) taken.push(chooseBlock(blocks, left).block);
    return taken;
  };

  it("cost little beyond the tokens", () => {
    expect(cover(1)).toEqual([1]);
    expect(cover(8)).toEqual([8]);
    expect(cover(9)).toEqual([8, 1]);
    expect(cover(64)).toEqual([64]);
    expect(cover(600)).toEqual([256, 256, 64, 8, 8, 8]);
    for (let tokens = 1; tokens < 600; tokens++) {
      const places = cover(tokens).reduce((sum, block) => sum + block, 0);
      expect(places).toBeGreaterThanOrEqual(tokens);
      expect(places).toBeLessThanOrEqual(Math.max(tokens + 5, tokens * 1.35));
    }
  });

  it("cost as little as any blocks would", () => {
    for (const sizes of [[8, 2, 1], [16, 8, 4, 1], [7, 5, 1], [20, 1], [1]]) {
      const list = sizes.map((block) => ({ block }));
      const least = [0];
      for (let n = 1; n <= 40; n++) least.push(Math.min(...sizes.map((block) => 3 + block + (least[Math.max(0, n - block)] as number))));
      for (let tokens = 1; tokens <= 40; tokens++) {
        const first = chooseBlock(list, tokens).block;
        if (tokens >= (sizes[0] as number)) expect(first).toBe(sizes[0]);
        else expect(3 + first + (least[Math.max(0, tokens - first)] as number), `${tokens} of ${sizes}`).toBe(least[tokens]);
      }
    }
  });

  it("stay inside the room of the ids", async () => {
    const engine = new FakeEngine(1);
    const starts: number[] = [];
    const set = engine.setVariable.bind(engine);
    engine.setVariable = (slot, value) => {
      if (slot === 0) starts.push(value);
      set(slot, value);
    };
    const tight = parseManifest(
      fakeBundle((m) => Object.assign(m.buffers[2], { shape: [CONTEXT + 1], bytes: 4 * (CONTEXT + 1) })).manifest,
    );
    const loop = new Loop(tight, () => engine);
    const prompt = Array.from({ length: CONTEXT }, (_, i) => (i * 7) % VOCAB);
    expect(await run(loop, prompt, 1)).toEqual(expected(prompt, 1));
    const sizes: Record<string, number> = { prefill_8: 8, prefill_2: 2, decode: 1 };
    const read = engine.entries.filter((entry) => entry in sizes);
    expect(read).toHaveLength(CONTEXT / 8);
    read.forEach((entry, i) => expect((starts[i] as number) + (sizes[entry] as number)).toBeLessThanOrEqual(CONTEXT + 1));
  });
});
