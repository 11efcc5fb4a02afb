/**
 * One side of a measurement: `side.open`, `side.time`, `side.result` and `side.notes`, called by the driver
 * (benchmarks/browser/chromium.py). Modules in sides/ do the work: in a worker, as a page would, unless they start one
 * of their own.
 */

const OWN_WORKER = new Set(["wllama.js", "tinyweb-chat.js", "tinyweb-function.js", "first-token.js"]);

let call;

/** @param module a file in sides/ */
async function open(module, options) {
  if (OWN_WORKER.has(module)) {
    const side = await (await import(`./sides/${module}`)).open(options);
    const { serve } = await import("./serve.js");
    call = serve(side);
    return;
  }
  const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  const waiting = [];
  const settle = (error, value) => {
    const { resolve, reject } = waiting.shift() ?? {};
    if (error) reject?.(new Error(error));
    else resolve?.(value);
  };
  worker.addEventListener("message", ({ data }) => settle(data.error, data.value));
  worker.addEventListener("error", (event) => settle(event.message || "the worker's script could not be loaded"));
  call = (name, argument) =>
    new Promise((resolve, reject) => {
      waiting.push({ resolve, reject });
      worker.postMessage({ name, argument });
    });
  await call("open", { module, options });
}

/** Bytes as base64, for the way to Python. */
function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}

const TYPES = new Map([
  [Float32Array, "float32"],
  [Uint16Array, "float16"],
  [Int32Array, "int32"],
  [Int8Array, "int8"],
  [Uint8Array, "uint8"],
  [BigInt64Array, "int64"],
  [globalThis.Float16Array, "float16"],
]);

window.side = {
  open,
  /**
   * Seconds of `repeat` runs, each asked for by a message of its own, as those of a library with its own worker are: a loop that never
   * waits would lose its core to others in the midst of what is timed.
   */
  async time(repeat) {
    let seconds = 0;
    for (let i = 0; i < repeat; i++) seconds += await call("time", 1);
    return seconds;
  },
  notes: () => call("notes"),
  /** What a run computes: flat arrays by name. */
  async result() {
    const arrays = Object.entries(await call("result"));
    return arrays.map(([name, array]) => ({
      name,
      dtype: TYPES.get(array.constructor),
      data: base64(new Uint8Array(array.buffer, array.byteOffset, array.byteLength)),
    }));
  },
};
