// @ts-check
/**
 * What the pretended models of the pages' tests share: loading with all that can go wrong. Served beside them as
 * model/pretend.js. `?mock=` in the page's address names what happens, several joined by commas:
 *
 *   slow            the download stands at 3.1 of 7.8 MB until `mock.continue()` is called
 *   cached          the weights come from storage, at once
 *   no-webgpu       "auto" ends on WASM with the reason
 *   one-thread      "auto" ends on WASM with one thread
 *   download, hash, memory, no-backend, compile   the first load fails with that error, later ones succeed
 *   memory-gpu      WebGPU has not enough memory, WASM has
 *   interrupted     the page was ended in the middle the last time
 *   fast            no pauses
 */

/**
 * @typedef {import("../src/model-api").LoadOptions} LoadOptions
 * @typedef {import("../src/model-api").ModelInfo} ModelInfo
 * @typedef {import("tinyweb").Fallback} Fallback
 */

export const MODEL_BYTES = 7_803_456;
export const asked = new Set((new URLSearchParams(location.search).get("mock") ?? "").split(","));

/** What tests look at and do, as `window.mock`; pages' own models add to it. */
export const mock = {
  // A page that loads the module once more after a failure must not forget how often that was.
  loads: Number(sessionStorage.getItem("mock-loads") ?? 0),
  /** @type {LoadOptions[]} */
  loadOptions: [],
  /** Of each run: what was given. @type {any[]} */
  asked: [],
  disposed: 0,
  continue: () => {},
};
Object.assign(window, { mock });

/** @param {string} code @param {string} message */
export function fail(code, message) {
  return Object.assign(new Error(message), { code });
}

/** @param {number} ms @param {AbortSignal} [signal] */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(fail("aborted", "Stopped."));
    if (signal?.aborted) return stop();
    signal?.addEventListener("abort", stop, { once: true });
    setTimeout(resolve, asked.has("fast") ? 0 : ms);
  });
}

const FIRST_LOAD_ERRORS = {
  download: fail("download-failed", "model/weights/000.bin: the connection broke after 3.1 of 7.8 MB."),
  hash: fail("hash-mismatch", "model/weights/000.bin: SHA-256 is 9f2c…, the manifest promises 41d8…."),
  memory: fail("out-of-memory", "The model needs 96 MB; 64 MB could be had."),
  "no-backend": fail("no-backend", "webgpu: this browser has no WebGPU; wasm-single: this browser has no WebAssembly."),
  compile: fail("compile-failed", "Kernel matmul_256_688: workgroup size too large."),
};

/** @param {string} chosen @returns {Pick<ModelInfo, "backend" | "adapter" | "fallbacks">} */
function chooseBackend(chosen) {
  if (chosen === "wasm") return { backend: "wasm", adapter: "4 CPU threads", fallbacks: [] };
  if (chosen === "wasm-single") return { backend: "wasm-single", adapter: "1 CPU thread", fallbacks: [] };
  /** @type {Fallback} */
  const noGpu = { backend: "webgpu", reason: "this browser has no WebGPU" };
  if (asked.has("no-webgpu")) return { backend: "wasm", adapter: "4 CPU threads", fallbacks: [noGpu] };
  if (asked.has("one-thread")) {
    /** @type {Fallback} */
    const noThreads = {
      backend: "wasm",
      reason: "threads need a cross-origin isolated page (COOP and COEP headers over https or localhost)",
    };
    return { backend: "wasm-single", adapter: "1 CPU thread", fallbacks: [noGpu, noThreads] };
  }
  return { backend: "webgpu", adapter: "Apple M2", fallbacks: [] };
}

/** Goes through a load; the figures that every model has, or the failure that was asked for. @param {LoadOptions} options @returns {Promise<ModelInfo>} */
export async function pretendLoading(options) {
  const { backend = "auto", onProgress = () => {}, signal } = options;
  mock.loads++;
  sessionStorage.setItem("mock-loads", String(mock.loads));
  mock.loadOptions.push(options);
  if (asked.has("interrupted"))
    await options.onInterrupted?.({ time: 0, phase: "weights", loadedBytes: 0, totalBytes: MODEL_BYTES, times: 1, recommended: {} });
  const fromCache = asked.has("cached");
  onProgress({ phase: "manifest", loadedBytes: 0, totalBytes: 0, fromCache: true });
  await pause(60, signal);
  for (let step = 1; step <= 10; step++) {
    const loadedBytes = Math.round((MODEL_BYTES * step) / 10);
    onProgress({ phase: "weights", loadedBytes, totalBytes: MODEL_BYTES, fromCache, secondsLeft: (10 - step) * 3 });
    await pause(fromCache ? 5 : 50, signal);
    if (step === 4) {
      for (const [name, error] of Object.entries(FIRST_LOAD_ERRORS)) if (asked.has(name) && mock.loads === 1) throw error;
      if (asked.has("memory-gpu") && backend !== "wasm") throw FIRST_LOAD_ERRORS.memory;
      if (asked.has("slow")) {
        await new Promise((resolve, reject) => {
          mock.continue = () => resolve(undefined);
          signal?.addEventListener("abort", () => reject(fail("aborted", "Stopped.")), { once: true });
        });
      }
    }
  }
  onProgress({ phase: "compile", loadedBytes: MODEL_BYTES, totalBytes: MODEL_BYTES, fromCache });
  await pause(60, signal);
  onProgress({ phase: "ready", loadedBytes: MODEL_BYTES, totalBytes: MODEL_BYTES, fromCache });
  return {
    model: "pretended",
    ...chooseBackend(backend),
    memoryBytes: 34_120_000,
    modelBytes: MODEL_BYTES,
    start: { manifestMs: 8, tokenizerMs: 30, weightsMs: 90, kernelsMs: 120, readyMs: 150 },
  };
}

/** The events of a pretended model: `on` for the page, `emit` for the model. */
export function pretendEvents() {
  /** @type {Map<string, Set<(data: any) => void>>} */
  const listeners = new Map();
  /** @type {import("tinyweb").Chat["on"]} */
  const on = (event, listener) => {
    const set = listeners.get(event) ?? new Set();
    listeners.set(event, set.add(listener));
    return () => set.delete(listener);
  };
  /** @template {keyof import("tinyweb").ModelEvents} Name @param {Name} event @param {import("tinyweb").ModelEvents[Name]} data */
  const emit = (event, data) => listeners.get(event)?.forEach((listener) => listener(data));
  return { on, emit };
}
