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

  constructor(readonly depth: number, private readonly stepMs = 0, private readonly lagMs = 0) {}

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
    const values = slices.map(({ buffer, offset, bytes }) =>
      new Uint8Array((buffer === 2 ? this.ids : this.said).buffer.slice(offset, offset + bytes)));
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
  temperature: 0, topP: 1, topK: 0, repetitionPenalty: 1, maxTokens: 20, seed: 0, speculate: 0, hiddenTokensPerSecond: Infinity, signal: undefined,
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

  it("are as many as the way back takes", () => {
    expect([0.5, 2, 4, 5.2, 20, 90, 250].map((ms) => depthFor(ms, 3))).toEqual([3, 3, 3, 2, 2, 2, 1]);
    expect(depthFor(0.5, 1)).toBe(1);
  });
});

describe("guessing ahead", () => {
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
    for (const prompt of [[...told, ...told, 3, 1], [...told.slice(0, 8), 99, ...told.slice(8), 3, 1], [200, 7], [5, 5, 5, 5]]) {
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
        if (entry === "verify") for (let i = 0; i < 4; i++) (this as unknown as { said: Int32Array }).said[i] = next(this.ids[start + i] as number);
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

  it("stay inside the room of the ids", async () => {
    const engine = new FakeEngine(1);
    const starts: number[] = [];
    const set = engine.setVariable.bind(engine);
    engine.setVariable = (slot, value) => {
      if (slot === 0) starts.push(value);
      set(slot, value);
    };
    const tight = parseManifest(fakeBundle((m) => Object.assign(m.buffers[2], { shape: [CONTEXT + 1], bytes: 4 * (CONTEXT + 1) })).manifest);
    const loop = new Loop(tight, () => engine);
    const prompt = Array.from({ length: CONTEXT }, (_, i) => (i * 7) % VOCAB);
    expect(await run(loop, prompt, 1)).toEqual(expected(prompt, 1));
    const sizes: Record<string, number> = { prefill_8: 8, prefill_2: 2, decode: 1 };
    const read = engine.entries.filter((entry) => entry in sizes);
    expect(read).toHaveLength(CONTEXT / 8);
    read.forEach((entry, i) =>
      expect((starts[i] as number) + (sizes[entry] as number)).toBeLessThanOrEqual(CONTEXT + 1));
  });
});
