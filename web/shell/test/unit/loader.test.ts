/** Loading and keeping a model, with models made of promises. */

import { describe, expect, test } from "vitest";
import {
  fallbackNote,
  MemoryStore,
  ModelLoader,
  pageState,
  type BackendChoice,
  type LoadedModel,
  type LoadOptions,
  type ModelEvents,
  type ModelInfo,
} from "../../src/index"; // prettier-ignore

function failure(code: string): Error {
  return Object.assign(new Error(`failed with ${code}`), { code });
}

async function settle(): Promise<void> {
  for (let i = 0; i < 30; i++) await Promise.resolve();
  await new Promise((resolve) => setTimeout(resolve, 0));
}

const START = { manifestMs: 1, tokenizerMs: 1, weightsMs: 2, kernelsMs: 2, readyMs: 3 };
const infoOf = (backend: ModelInfo["backend"], fallbacks: ModelInfo["fallbacks"] = []): ModelInfo => ({
  model: "fake",
  backend,
  adapter: "a",
  memoryBytes: 1,
  modelBytes: 1,
  start: START,
  fallbacks,
});

class FakeModel implements LoadedModel {
  info = infoOf("webgpu");
  readonly listeners = new Map<string, (detail?: unknown) => void>();
  disposed = false;

  on(event: keyof ModelEvents, listener: (detail?: unknown) => void): void {
    this.listeners.set(event, listener);
  }

  async dispose(): Promise<void> {
    this.disposed = true;
  }
}

function bench(options: { storage?: MemoryStore; address?: BackendChoice; interrupted?: boolean; smaller?: () => object } = {}) {
  const loads: LoadOptions[] = [];
  const models: FakeModel[] = [];
  const outcomes: (Error | "wait" | FakeModel)[] = [];
  const imports: number[] = [];
  const importErrors: Error[] = [];
  let forgotten = 0;
  let release = (): void => undefined;
  const loader = new ModelLoader<FakeModel>(
    {
      storage: options.storage ?? new MemoryStore(),
      importModel: async (attempt) => {
        imports.push(attempt);
        const error = importErrors.shift();
        if (error !== undefined) throw error;
        return {
          info: { name: "fake" },
          async load(given = {}) {
            loads.push(given);
            if (options.interrupted === true)
              await given.onInterrupted?.({ time: 0, phase: "weights", loadedBytes: 1, totalBytes: 4, times: 1, recommended: {} });
            const outcome = outcomes.shift() ?? new FakeModel();
            given.onProgress?.({ phase: "weights", loadedBytes: 1, totalBytes: 4, fromCache: false });
            if (outcome === "wait") await new Promise<void>((resolve) => (release = resolve));
            if (outcome instanceof Error) throw outcome;
            if (given.signal?.aborted === true) throw failure("aborted");
            const model = outcome === "wait" ? new FakeModel() : outcome;
            models.push(model);
            return model;
          },
        };
      },
      addressBackend: options.address ?? null,
      forgetAddressBackend: () => forgotten++,
      online: () => true,
      nextFrame: (callback) => queueMicrotask(callback),
      ...(options.smaller === undefined ? {} : { smaller: options.smaller }),
    },
    { kept: "your pictures are kept", next: "the next picture" },
    "auto",
  );
  return {
    loader,
    loads,
    models,
    outcomes,
    imports,
    importErrors,
    release: () => release(),
    forgotten: () => forgotten,
    phase: () => loader.state.engine.phase,
  }; // prettier-ignore
}

describe("loading", () => {
  test("tells the progress, then the figures", async () => {
    const { loader, outcomes, release, loads } = bench();
    outcomes.push("wait");
    const loaded = loader.load();
    await settle();
    expect(loader.state).toMatchObject({ engine: { phase: "loading", progress: { loadedBytes: 1 } }, facts: { name: "fake" } });
    release();
    await loaded;
    expect(loader.state.engine).toEqual({ phase: "ready", info: infoOf("webgpu") });
    expect(loads[0]?.backend).toBe("auto");
  });

  test("an import that fails is tried under another address", async () => {
    const { loader, importErrors, imports, phase } = bench();
    importErrors.push(failure("download-failed"));
    await loader.load();
    expect(loader.state.engine).toMatchObject({ phase: "failed", failure: { code: "download-failed" } });
    await loader.load();
    expect(imports).toEqual([0, 1]);
    expect(phase()).toBe("ready");
  });

  test("goes on by itself when the network is back, but only then", async () => {
    const { loader, outcomes, loads } = bench();
    outcomes.push(failure("out-of-memory"));
    await loader.load();
    loader.cameOnline();
    await settle();
    expect(loads).toHaveLength(1);
    outcomes.push(failure("download-failed"));
    await loader.load();
    loader.cameOnline();
    await settle();
    expect(loader.state.engine.phase).toBe("ready");
  });

  test("the page's words are in what is told", async () => {
    const { loader, outcomes } = bench();
    outcomes.push(failure("gpu-error"));
    await loader.load();
    expect(loader.state.engine).toMatchObject({ failure: { text: expect.stringMatching(/^Your pictures are kept\. Try again/u) } });
  });
});

describe("a GPU that there is not", () => {
  test("is no end where it was asked for by name: the CPU is offered", async () => {
    const { loader, outcomes } = bench({ address: "webgpu" });
    outcomes.push(failure("no-backend"));
    await loader.load();
    expect(loader.state.engine).toMatchObject({ failure: { title: "The GPU cannot be used", remedies: ["use-wasm", "retry"] } });
    outcomes.push(failure("no-backend"));
    loader.chooseBackend("auto");
    await settle();
    expect(loader.state.engine).toMatchObject({ failure: { title: "This browser cannot run the model", remedies: ["retry"] } });
  });
});

describe("a load that ended the page", () => {
  test("is not repeated unasked, and can be made smaller, also next time", async () => {
    const storage = new MemoryStore();
    const smaller = (): object => ({ context: 64 });
    const { loader, loads, phase } = bench({ storage, interrupted: true, smaller });
    await loader.load();
    expect(loader.state.engine).toMatchObject({ failure: { code: "interrupted", remedies: ["smaller", "use-wasm-single", "retry"] } });
    expect(loads).toHaveLength(1);
    loader.chooseSmaller(true);
    await settle();
    expect(phase()).toBe("ready");
    expect(loads[1]).toMatchObject({ context: 64 });
    expect(loads[1]).not.toHaveProperty("onInterrupted");
    expect(loader.state.notes).toMatchObject([{ id: "smaller" }]);
    const again = bench({ storage, smaller });
    await again.loader.load();
    expect(again.loads).toMatchObject([{ context: 64, backend: "auto" }]);
    again.loader.chooseSmaller(false);
    await settle();
    expect(again.loads[1]).not.toHaveProperty("context");
    expect(again.loader.state.notes).toEqual([]);
  });
});

describe("another backend", () => {
  test("goes before the one in the address, stops runs and frees the model", async () => {
    const { loader, loads, models, forgotten } = bench({ address: "wasm-single" });
    await loader.load();
    const run = loader.run(
      (_, signal) => new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(failure("aborted")))),
    );
    await settle();
    expect(loader.busy).toBe(true);
    loader.chooseBackend("webgpu");
    await expect(run).rejects.toMatchObject({ code: "aborted" });
    await settle();
    expect(loads.map(({ backend }) => backend)).toEqual(["wasm-single", "webgpu"]);
    expect(models[0]?.disposed).toBe(true);
    expect(forgotten()).toBe(1);
  });

  test("the same one is loaded anew only after a failure", async () => {
    const { loader, loads, outcomes } = bench();
    await loader.load();
    loader.chooseBackend("auto");
    await settle();
    expect(loads).toHaveLength(1);
    outcomes.push(failure("no-backend"));
    await loader.load();
    loader.chooseBackend("auto");
    await settle();
    expect(loads).toHaveLength(3);
  });
});

describe("a run", () => {
  test("waits for the model, loading it if nobody has", async () => {
    const { loader, outcomes, release } = bench();
    outcomes.push("wait");
    const run = loader.run(async (model) => model.info.backend);
    await settle();
    expect(pageState(loader.state.engine, loader.busy)).toBe("generating");
    release();
    await expect(run).resolves.toBe("webgpu");
    expect(loader.busy).toBe(false);
  });

  test("tries a failed load once more, and fails with what that fails with", async () => {
    const { loader, outcomes } = bench();
    outcomes.push(failure("download-failed"), failure("hash-mismatch"));
    await loader.load();
    await expect(loader.run(async () => 1)).rejects.toMatchObject({ code: "hash-mismatch" });
    await expect(loader.run(async () => 1)).resolves.toBe(1);
  });

  test("is repeated once on a freshly loaded model when the device was lost", async () => {
    const { loader, models } = bench();
    await loader.load();
    let calls = 0;
    const lostTwice = loader.run(async () => {
      calls++;
      throw failure("device-lost");
    });
    await expect(lostTwice).rejects.toMatchObject({ code: "device-lost" });
    expect(calls).toBe(2);
    expect(models).toHaveLength(2);
    calls = 0;
    const lostOnce = loader.run(async () => {
      if (calls++ === 0) throw failure("device-lost");
      return "fine";
    });
    await expect(lostOnce).resolves.toBe("fine");
    expect(loader.state.notes).toMatchObject([{ id: "device", tone: "good" }]);
  });

  test("says why it waits while the model is loaded anew, and no longer when that fails", async () => {
    const { loader, outcomes, release } = bench();
    await loader.load();
    outcomes.push("wait", failure("no-backend"));
    const task = async (model: FakeModel): Promise<string> => {
      if (model.disposed || loader.state.notes.length === 0) throw failure("device-lost");
      return "fine";
    };
    const run = loader.run(task);
    await settle();
    expect(loader.state).toMatchObject({
      engine: { phase: "loading" },
      notes: [{ id: "device", tone: "busy", text: expect.stringContaining("your pictures are kept") }],
    });
    release();
    await expect(run).resolves.toBe("fine");
    loader.dismissNote("device");
    await expect(loader.run(task)).rejects.toMatchObject({ code: "device-lost" });
    expect(loader.state).toMatchObject({ engine: { phase: "failed" }, notes: [] });
  });

  test("beside another that has lost the device as well waits for the same load", async () => {
    const { loader, loads } = bench();
    await loader.load();
    let lost = 0;
    const task = async (): Promise<string> => {
      if (lost++ < 2) throw failure("device-lost");
      return "fine";
    };
    await expect(Promise.all([loader.run(task), loader.run(task)])).resolves.toEqual(["fine", "fine"]);
    expect(loads).toHaveLength(2);
    expect(loader.state.notes).toMatchObject([{ id: "device", tone: "good" }]);
  });

  test("ends at once when it is stopped while the model loads", async () => {
    const { loader, outcomes, release } = bench();
    outcomes.push("wait");
    const abort = new AbortController();
    const run = loader.run(async () => 1, abort.signal);
    await settle();
    abort.abort();
    await expect(run).rejects.toMatchObject({ code: "aborted" });
    release();
    await settle();
    expect(loader.state.engine.phase).toBe("ready");
  });

  test("other failures are the caller's, and the model stays", async () => {
    const { loader, models } = bench();
    await loader.load();
    await expect(loader.run(() => Promise.reject(failure("bad-argument")))).rejects.toMatchObject({ code: "bad-argument" });
    expect(models).toHaveLength(1);
  });
});

describe("a lost device", () => {
  test("is told when nothing runs, and again when it is back", async () => {
    const { loader, models } = bench();
    await loader.load();
    models[0]?.listeners.get("device-lost")?.();
    expect(loader.state.notes[0]?.text).toBe("The GPU was lost. The model comes back with the next picture; your pictures are kept.");
    await loader.run(async () => 1);
    expect(loader.state.notes).toMatchObject([{ id: "device", tone: "good", text: expect.stringContaining("is back") }]);
    loader.dismissNote("device");
    expect(loader.state.notes).toEqual([]);
  });

  test("of a model that was put away is nobody's business", async () => {
    const { loader, models } = bench();
    await loader.load();
    await loader.load();
    models[0]?.listeners.get("device-lost")?.();
    expect(loader.state.notes).toEqual([]);
  });
});

describe("notes on the backend", () => {
  const noGpu = { backend: "webgpu" as const, reason: "this browser has no WebGPU" };
  const noThreads = { backend: "wasm" as const, reason: "threads need a cross-origin isolated page" };

  test("say what is used and why", () => {
    expect(fallbackNote(infoOf("wasm", [noGpu]))).toMatchObject({
      title: "Using WASM instead of WebGPU",
      text: "This browser has no WebGPU.",
    });
    expect(fallbackNote(infoOf("wasm-single", [noGpu, noThreads]))).toMatchObject({
      title: "Using WASM with one thread instead of WebGPU",
      text: "This browser has no WebGPU. Threads need a cross-origin isolated page.",
    });
    expect(fallbackNote(infoOf("wasm-single", [noThreads]))?.title).toBe("Using WASM with one thread");
    expect(fallbackNote(infoOf("webgpu", [noThreads]))).toBeNull();
    expect(fallbackNote(infoOf("webgpu"))).toBeNull();
  });

  test("stay away once closed, until the reason is another", async () => {
    const storage = new MemoryStore();
    const slow = (reason: string): FakeModel =>
      Object.assign(new FakeModel(), { info: { backend: "wasm", fallbacks: [{ backend: "webgpu", reason }] } });
    const first = bench({ storage });
    first.outcomes.push(slow("a"));
    await first.loader.load();
    expect(first.loader.state.notes).toHaveLength(1);
    first.loader.dismissNote("fallback");
    expect(first.loader.state.notes).toEqual([]);
    const second = bench({ storage });
    second.outcomes.push(slow("a"), slow("b"));
    await second.loader.load();
    expect(second.loader.state.notes).toEqual([]);
    await second.loader.load();
    expect(second.loader.state.notes).toHaveLength(1);
  });
});
