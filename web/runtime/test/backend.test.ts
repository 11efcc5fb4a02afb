import { describe, expect, it, vi } from "vitest";
import { candidates, nothingWorks, type BackendOptions, type Fallback, type Platform } from "../src/backend.js";
import { parseManifest } from "../src/manifest.js";
import { fakeBundle } from "./fake-bundle.js";
import { NO_GPU } from "./open.js";

const manifest = parseManifest(fakeBundle().manifest);

function gpu(adapter: { limits?: Record<string, number>; features?: string[]; info?: Partial<GPUAdapterInfo> } | null): GPU {
  const limits = { maxStorageBuffersPerShaderStage: 8, maxComputeInvocationsPerWorkgroup: 256, maxBufferSize: 1 << 28, ...adapter?.limits };
  const info = { vendor: "acme", architecture: "g1", device: "", description: "", ...adapter?.info };
  const requestAdapter = async (): Promise<unknown> => adapter && { limits, features: new Set(adapter.features), info };
  return { requestAdapter } as unknown as GPU;
}

async function choose(
  options: BackendOptions,
  platform: Partial<Platform>,
  change?: Parameters<typeof fakeBundle>[0],
): Promise<{ names: string[]; fallbacks: Fallback[]; threads: number[]; variants: string[]; modules: string[]; contexts: number[] }> {
  const fallbacks: Fallback[] = [];
  const m = change ? parseManifest(fakeBundle(change).manifest) : manifest;
  const found = await candidates(m, options, { ...NO_GPU, ...platform }, fallbacks);
  return {
    names: found.map(({ backend }) => backend),
    contexts: found.map(({ context }) => context),
    fallbacks,
    threads: found.flatMap((c) => (c.backend === "webgpu" ? [] : [c.threads])),
    variants: found.flatMap((c) => (c.backend === "webgpu" ? [c.variant.name] : [])),
    modules: found.flatMap((c) => (c.backend === "webgpu" ? [] : [c.variant.name])),
  };
}

describe("the choice of a backend", () => {
  it("goes from WebGPU over threads to one thread", async () => {
    const { names, fallbacks, threads } = await choose({}, { gpu: gpu({}) });
    expect(names).toEqual(["webgpu", "wasm", "wasm-single"]);
    expect(threads).toEqual([3, 1]);
    expect(fallbacks).toEqual([]);
  });

  it("puts a GPU that computes on the CPU last, unless it is wanted", async () => {
    for (const info of [{ isFallbackAdapter: true }, { description: "SwiftShader Device (Subzero)" }, { device: "llvmpipe" }]) {
      const software = { gpu: gpu({ info }) };
      const { names, fallbacks } = await choose({}, software);
      expect(names).toEqual(["wasm", "wasm-single", "webgpu"]);
      expect(fallbacks).toEqual([{ backend: "webgpu", reason: expect.stringContaining("computes on the CPU") }]);
      expect((await choose({ allowSoftwareGpu: true }, software)).names[0]).toBe("webgpu");
      expect((await choose({ backend: "webgpu" }, software)).names).toEqual(["webgpu"]);
      expect((await choose({}, software, (m) => delete m.targets.wasm)).names).toEqual(["webgpu"]);
    }
  });

  it("waits longer for a GPU that is slow to answer where there is nothing else to take", async () => {
    vi.useFakeTimers();
    try {
      const slow = gpu({});
      const { requestAdapter } = slow;
      const late = {
        requestAdapter: () => new Promise((resolve) => setTimeout(() => resolve(requestAdapter()), 60_000)),
      } as unknown as GPU;
      const [patient, other] = [choose({ backend: "webgpu" }, { gpu: late }), choose({}, { gpu: late })];
      await vi.advanceTimersByTimeAsync(60_000);
      expect((await patient).names).toEqual(["webgpu"]);
      expect(await other).toMatchObject({
        names: ["wasm", "wasm-single"],
        fallbacks: [{ reason: expect.stringContaining("did not answer") }],
      });
      const never = choose({ backend: "webgpu" }, { gpu: { requestAdapter: () => new Promise(() => undefined) } as unknown as GPU });
      await vi.advanceTimersByTimeAsync(180_000);
      expect((await never).fallbacks).toMatchObject([{ reason: expect.stringContaining("did not answer") }]);
    } finally {
      vi.useRealTimers();
    }
  });

  it.each<[string, Partial<Platform>, string]>([
    ["no WebGPU", { gpu: undefined }, "no WebGPU"],
    ["plain http", { gpu: undefined, isSecureContext: false }, "https"],
    ["no adapter", { gpu: gpu(null) }, "no suitable GPU"],
    ["a small limit", { gpu: gpu({ limits: { maxBufferSize: 4095 } }) }, "maxBufferSize 4095, the model needs 4096"],
    ["an adapter that throws", { gpu: { requestAdapter: () => Promise.reject(new Error("blocked")) } as unknown as GPU }, "blocked"],
  ])("names why not WebGPU: %s", async (_name, platform, reason) => {
    const { names, fallbacks } = await choose({}, platform);
    expect(names).toEqual(["wasm", "wasm-single"]);
    expect(fallbacks).toEqual([{ backend: "webgpu", reason: expect.stringContaining(reason) }]);
  });

  it("does not wait for ever for an adapter", async () => {
    vi.useFakeTimers();
    try {
      const asking = choose({}, { gpu: { requestAdapter: () => new Promise(() => undefined) } as unknown as GPU });
      await vi.advanceTimersByTimeAsync(20_000);
      expect((await asking).fallbacks[0]?.reason).toContain("did not answer");
    } finally {
      vi.useRealTimers();
    }
  });

  it("takes the variant with most of the features there are", async () => {
    const variants = (m: any): void => {
      const { base } = m.targets.webgpu.variants;
      m.targets.webgpu.variants = {
        base,
        f16: { ...base, features: ["shader-f16"] },
        subgroups: { ...base, features: ["subgroups"] },
        "subgroups-f16": { ...base, features: ["shader-f16", "subgroups"] },
      };
    };
    expect((await choose({}, { gpu: gpu({}) }, variants)).variants).toEqual(["base"]);
    expect((await choose({}, { gpu: gpu({ features: ["shader-f16"] }) }, variants)).variants).toEqual(["f16"]);
    expect((await choose({}, { gpu: gpu({ features: ["subgroups"] }) }, variants)).variants).toEqual(["subgroups"]);
    const all = { features: ["subgroups", "shader-f16", "timestamp-query"] };
    expect((await choose({}, { gpu: gpu(all) }, variants)).variants).toEqual(["subgroups-f16"]);
    const two = (m: any): void => {
      const { base } = m.targets.webgpu.variants;
      m.targets.webgpu.variants = { base, sub: { ...base, features: ["subgroups"] } };
    };
    const software = { isFallbackAdapter: true } as Partial<GPUAdapterInfo>;
    const played = { gpu: gpu({ features: ["subgroups"], info: software }) };
    expect((await choose({ allowSoftwareGpu: true }, played, two)).variants).toEqual(["base"]);
    expect((await choose({}, { gpu: gpu({}) }, two)).variants).toEqual(["base"]);
    expect((await choose({}, { gpu: gpu({ features: ["subgroups"] }) }, two)).variants).toEqual(["sub"]);
    const only = (m: any): void => void (m.targets.webgpu.variants.base.features = ["subgroups"]);
    expect((await choose({ allowSoftwareGpu: true }, played, only)).variants).toEqual(["base"]);
    expect((await choose({}, { gpu: gpu({}) }, only)).fallbacks[0]?.reason).toContain("subgroups");
  });

  it("uses threads only in an isolated page with several cores", async () => {
    for (const platform of [{ crossOriginIsolated: false }, { sharedMemory: false }, { hardwareConcurrency: 1 }]) {
      const { names, fallbacks } = await choose({ backend: "wasm" }, platform);
      expect(names).toEqual(["wasm-single"]);
      expect(fallbacks.map(({ backend }) => backend)).toEqual(["wasm"]);
    }
    expect((await choose({ backend: "wasm" }, { hardwareConcurrency: 64 })).threads).toEqual([4, 1]); // the manifest's most
    expect((await choose({ backend: "wasm", threads: 2 }, {})).threads).toEqual([2, 1]);
    expect((await choose({ backend: "wasm-single" }, {})).names).toEqual(["wasm-single"]);
  });

  it("knows what fits before anything is downloaded", async () => {
    const { names, fallbacks } = await choose({ memoryBudgetBytes: 1000 }, { gpu: gpu({}) });
    expect(names).toEqual([]);
    expect(nothingWorks(fallbacks)).toMatchObject({ code: "out-of-memory", message: expect.stringContaining("MB") });
    expect((await choose({ memoryBudgetBytes: 5000 }, { gpu: gpu({}) })).names).toEqual(["webgpu"]);
    // Weights, state and temporaries, and two shards on their way.
    expect((await choose({ backend: "webgpu", memoryBudgetBytes: 3012 + 2 * 600 }, { gpu: gpu({}) })).names).toEqual(["webgpu"]);
    expect((await choose({ backend: "webgpu", memoryBudgetBytes: 3012 + 2 * 600 - 1 }, { gpu: gpu({}) })).names).toEqual([]);
  });

  it("shrinks the context before it gives up, where that takes less memory", async () => {
    // 1 MB of keys and values for each of 1024 positions.
    const large = (m: any): void => {
      m.model.context = 1000;
      Object.assign(m.variables[0], { max: 999 });
      Object.assign(m.buffers[2], { shape: [1024], bytes: 4096 });
      Object.assign(m.buffers[3], { shape: [2, 1024, 2 ** 17], bytes: 2 ** 30 });
      m.targets.wasm.memory.pages = 2 ** 15;
      m.targets.wasm.memory.buffers["3"] = 2 ** 20;
      m.targets.webgpu.bytes.state = 2 ** 30;
    };
    const gib = 2 ** 30;
    const { contexts } = await choose({ backend: "wasm-single", memoryBudgetBytes: 2.1 * gib }, {}, large);
    expect(contexts).toEqual([1000]);
    expect((await choose({ backend: "wasm-single", memoryBudgetBytes: 1.5 * gib }, {}, large)).contexts).toEqual([448]);
    expect((await choose({ backend: "wasm-single", memoryBudgetBytes: 1.2 * gib, context: 100 }, {}, large)).contexts).toEqual([100]);
    const tight = await choose({ memoryBudgetBytes: 1.2 * gib }, { gpu: gpu({}) }, large);
    expect(tight.names).toEqual(["webgpu"]);
    const { names, fallbacks } = await choose({ memoryBudgetBytes: 0.7 * gib }, { gpu: gpu({}) }, large);
    expect(names).toEqual([]);
    expect(fallbacks[0]?.reason).toMatch(/exported with --context 640 it would fit/);
    expect(fallbacks[1]?.reason).not.toMatch(/--context/);
    expect((await choose({ context: 9999 }, {})).contexts[0]).toBe(64);
  });
});
