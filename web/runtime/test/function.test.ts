import { afterEach, describe, expect, it } from "vitest";
import { FunctionSession, type Arrays } from "../src/function.js";
import type { ModelHost } from "../src/host.js";
import { parseManifest } from "../src/manifest.js";
import { fakeBundle } from "./fake-bundle.js";
import { fakeFunction } from "./fake-function.js";
import { openFake } from "./open.js";

const hosts: ModelHost[] = [];
afterEach(() => hosts.splice(0).forEach((host) => host.dispose()));

/** A session whose `run` gives the outputs alone. */
class Session extends FunctionSession {
  readonly figures: number[] = [];
  readonly outputs = async (...given: Parameters<FunctionSession["run"]>): Promise<Arrays> => {
    const { outputs, runMs } = await this.run(...given);
    this.figures.push(runMs);
    return outputs;
  };
}

async function open(change?: Parameters<typeof fakeFunction>[0]): Promise<Session> {
  const { host } = await openFake({ task: "function", options: { backend: "wasm-single" } }, fakeFunction(change));
  hosts.push(host);
  return new Session(host);
}

const x = Float32Array.of(1, -2, 3, 4);
const n = Int32Array.of(10);

describe("a function", () => {
  it("takes arrays and gives arrays", async () => {
    const session = await open();
    expect(await session.outputs({ x, n })).toEqual({ y: Float32Array.of(11, 6, 19, 26), positive: Uint8Array.of(1, 0, 1) });
    expect(session.info).toMatchObject({
      model: "affine",
      backend: "wasm-single",
      functions: { run: { kernels: 2, inputs: [{ name: "x", dtype: "f32", shape: [2, 2] }, { name: "n" }] } },
    });
  });

  it("takes strings for text, of which any other is one", async () => {
    const texts = ["a", "b", ""];
    const session = await open((m) => (m.functions.run.inputs[1].texts = texts));
    expect(session.info.functions["run"]?.inputs[1]).toEqual({ name: "n", dtype: "i32", shape: [], texts });
    expect((await session.outputs({ x, n: ["b"] }, "run", ["y"]))["y"]).toEqual(Float32Array.of(2, -3, 10, 17));
    expect((await session.outputs({ n: { data: ["c"], shape: [] } }, "run", ["y"]))["y"]).toEqual(Float32Array.of(4, -1, 12, 19));
    for (const wrong of [Int32Array.of(1), ["a", "b"], "b", [["b"]], [1]] as never[]) {
      const message = expect.stringContaining('"n" must be a list of strings');
      await expect(session.outputs({ n: wrong })).rejects.toMatchObject({ code: "bad-argument", message });
    }
  });

  it("keeps an input that is not given again, and gives only the outputs that are wanted", async () => {
    const session = await open();
    await expect(session.outputs({ x })).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining('"n" is missing'),
    });
    await session.outputs({ x, n });
    expect(await session.outputs({ n: Int32Array.of(0) }, "run", ["y"])).toEqual({ y: Float32Array.of(1, -4, 9, 16) });
    expect(await session.outputs({}, "run", [])).toEqual({});
  });

  it("reads views of larger arrays, and hands out memory of its own", async () => {
    const session = await open();
    const { y } = await session.outputs({ x: Float32Array.of(0, ...x).subarray(1), n });
    expect(y).toEqual(Float32Array.of(11, 6, 19, 26));
    await session.outputs({ n: Int32Array.of(1) });
    expect(y?.[0]).toBe(11);
    expect(y?.byteLength).toBe(y?.buffer.byteLength);
  });

  it("answers calls one after another", async () => {
    const session = await open();
    const results = await Promise.all([1, 2, 3].map((k) => session.outputs({ x, n: Int32Array.of(k) }, undefined, ["y"])));
    expect(results.map(({ y }) => y?.[0])).toEqual([2, 3, 4]);
  });

  it("is one of several, which share buffers only where they say so", async () => {
    const session = await open((m) => {
      m.functions.again = { inputs: m.functions.run.inputs, outputs: m.functions.run.outputs.slice(0, 1) };
      for (const points of [m.targets.wasm.entry_points, m.targets.webgpu.variants.base.entry_points]) points.again = points.run;
      m.detect = { labels: ["cat"] };
    });
    expect(await session.outputs({ x, n }, "again")).toEqual({ y: Float32Array.of(11, 6, 19, 26) });
    expect(await session.outputs({}, "run", ["positive"])).toEqual({ positive: Uint8Array.of(1, 0, 1) });
    expect(session.info).toMatchObject({ functions: { again: { outputs: [{ name: "y" }] } }, sections: { detect: { labels: ["cat"] } } });
    await expect(session.outputs({ x, n })).rejects.toMatchObject({
      code: "bad-argument",
      message: "Say which function to run: this bundle has run, again.",
    });
    await expect(session.outputs({ x, n }, "go")).rejects.toMatchObject({
      message: 'There is no function "go": this bundle has run, again.',
    });
  });

  it("cannot be of a task that has none", () => {
    const { manifest } = fakeFunction((m) => {
      m.task = "image";
      delete m.functions;
    });
    expect(() => parseManifest(manifest)).toThrow(/"image" has no functions: load it with tinyweb\/load/);
  });

  it.each([
    [
      "another type",
      { x: Float64Array.of(1, 2, 3, 4), n },
      /"x" must be a Float32Array of shape \(2, 2\), 4 elements, not Float64Array with 4/,
    ],
    ["too few elements", { x: x.subarray(1), n }, /not Float32Array with 3/],
    ["a list", { x: [1, 2, 3, 4], n }, /not object/],
    ["an unknown name", { z: x }, /no input "z"; it has x, n/],
  ])("refuses %s", async (_name, inputs, message) => {
    const session = await open();
    await expect(session.outputs(inputs as never)).rejects.toMatchObject({ code: "bad-argument", message: expect.stringMatching(message) });
    await expect(session.outputs({ x, n }, "run", ["q"])).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining('no output "q"'),
    });
  });

  it("says in words what it needs", async () => {
    const session = await open();
    await expect(session.outputs({ n })).rejects.toThrow('The input "x" is missing: Float32Array of shape (2, 2) is needed.');
    await expect(session.outputs({ x, n: Int32Array.of() })).rejects.toThrow(
      'The input "n" must be a Int32Array of shape (), 1 elements, not Int32Array with 0.',
    );
    await expect(session.outputs({ x: 5 as never, n })).rejects.toThrow(
      'The input "x" must be a Float32Array of shape (2, 2), 4 elements, not number.',
    );
    await expect(session.outputs({ x, n, z: x })).rejects.toThrow('This function has no input "z"; it has x, n.');
    await expect(session.outputs({ x, n }, "run", ["q"])).rejects.toThrow('This function has no output "q"; it has y, positive.');
    await expect(session.outputs({ x, n }, undefined, undefined, AbortSignal.abort())).rejects.toMatchObject({ code: "aborted" });
    expect(await session.outputs({ x, n }, undefined, ["positive"])).toEqual({ positive: Uint8Array.of(1, 0, 1) });
    const bare = await open((m) => (m.functions.run.inputs = []));
    await expect(bare.run({ x })).rejects.toThrow('This function has no input "x"; it has none.');
  });

  it("tells all of its arrays, and the time of each call alone", async () => {
    const session = await open();
    expect(session.info.functions).toEqual({
      run: {
        inputs: [
          { name: "x", dtype: "f32", shape: [2, 2] },
          { name: "n", dtype: "i32", shape: [] },
        ],
        outputs: [
          { name: "y", dtype: "f32", shape: [2, 2] },
          { name: "positive", dtype: "bool", shape: [3] },
        ],
        kernels: 2,
      },
    });
    const begun = performance.now();
    await Promise.all([1, 2].map((k) => session.outputs({ x, n: Int32Array.of(k) })));
    const [first, second] = session.figures as [number, number];
    expect(first).toBeGreaterThan(0);
    expect(second).toBeGreaterThan(0);
    expect(first + second).toBeLessThanOrEqual(performance.now() - begun); // none has the other's
  });

  it("is not loaded as a chat, nor a chat as a function", async () => {
    await expect(openFake({ options: {} }, fakeFunction())).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining("tinyweb/load"),
    });
    await expect(openFake({ task: "function" }, fakeBundle())).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining("tinyweb/load"),
    });
  });

  type Change = NonNullable<Parameters<typeof fakeFunction>[0]>;
  it.each<[string, Change, string]>([
    ["an entry point that is not there", (m) => (m.functions.go = m.functions.run), '"go" is missing'],
    ["a weight as an input", (m) => (m.functions.run.inputs[0].buffer = 0), "must be f32 state"],
    ["an array larger than its buffer", (m) => (m.functions.run.inputs[0].shape = [2, 3]), "at least 24 bytes"],
    ["a type it cannot pass", (m) => (m.functions.run.inputs[0].dtype = "f64"), "dtype"],
    ["another type than the buffer's", (m) => (m.functions.run.inputs[0].dtype = "i32"), "must be i32 state"],
    ["a name twice", (m) => (m.functions.run.inputs[1].name = "x"), "appears twice"],
    ["a buffer twice", (m) => (m.functions.run.outputs[1] = { ...m.functions.run.outputs[0], name: "z" }), "appears twice"],
    ["an output without address", (m) => delete m.targets.wasm.memory.buffers["3"], "buffer 3 is missing"],
  ])("refuses a manifest with %s", (_name, change, message) => {
    expect(() => parseManifest(fakeFunction(change).manifest)).toThrow(
      expect.objectContaining({ code: "bad-manifest", message: expect.stringContaining(message) }),
    );
  });
});

describe("a frame in place of an array", () => {
  /** As a browser's: only its name and size are looked at. */
  class OffscreenCanvas {
    closed = 0;
    constructor(
      readonly width: number,
      readonly height: number,
    ) {}
    get [Symbol.toStringTag]() {
      return "OffscreenCanvas";
    }
    close() {
      this.closed++;
    }
  }
  const pixels = (m: any): void => {
    Object.assign(m.functions.run.inputs[0], { dtype: "u8", shape: [2, 2, 4] });
    Object.assign(m.buffers[1], { dtype: "u8", shape: [2, 2, 4] });
  };

  it("goes to the device as it is, and is closed", async () => {
    const { host } = await openFake({ task: "function", options: { backend: "wasm-single" } }, fakeFunction(pixels));
    hosts.push(host);
    const written: unknown[] = [];
    host.engine.writeFrame = (...given) => void written.push(given);
    const frame = new OffscreenCanvas(2, 2);
    await new FunctionSession(host).run({ x: frame as never, n });
    expect(written).toEqual([[1, frame, 2, 2]]);
    expect(frame.closed).toBe(1);
  });

  it("must have the size, and stand for bytes", async () => {
    const wrong = { code: "bad-argument", message: expect.stringContaining("not object") };
    await expect((await open(pixels)).run({ x: new OffscreenCanvas(2, 3) as never, n })).rejects.toMatchObject(wrong);
    await expect((await open()).run({ x: new OffscreenCanvas(2, 2) as never, n })).rejects.toMatchObject(wrong);
  });
});
