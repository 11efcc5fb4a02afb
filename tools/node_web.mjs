/**
 * The parts of a browser that the runtime library uses, for Node: workers, fetch of files, navigator.gpu. Imported by the main
 * thread for `install`; a worker starts with this very file, prepares its globals and imports the script it was made for.
 *
 * WebGPU comes from the npm package "webgpu" (Dawn), an optional peer: `npm install webgpu` where the program is run.
 */

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { fileURLToPath, pathToFileURL } from "node:url";
import { isMainThread, parentPort, Worker as Thread, workerData } from "node:worker_threads";

let settings = {};
const webFetch = globalThis.fetch;

/** Node's thread as a web worker: a module script, messages as events. */
class WebWorker {
  onmessage = null;
  onerror = null;
  #thread;

  constructor(url) {
    this.#thread = new Thread(new URL(import.meta.url), { workerData: { script: String(url), settings } });
    this.#thread.on("message", (data) => this.onmessage?.({ data }));
    this.#thread.on("error", (error) => this.onerror?.({ message: error.message }));
  }

  addEventListener(type, listener) {
    if (type === "message") this.#thread.on("message", (data) => listener({ data }));
    else this.#thread.on("error", (error) => listener({ message: error.message }));
  }

  postMessage(message, transfer) {
    this.#thread.postMessage(message, transfer);
  }

  terminate() {
    void this.#thread.terminate();
  }
}

/** Files by their file: URLs, everything else as usual. */
async function fetchFile(url, init) {
  if (!String(url).startsWith("file:")) return webFetch(url, init);
  try {
    return new Response(await readFile(fileURLToPath(String(url))));
  } catch (error) {
    return new Response(null, { status: 404, statusText: error.code ?? error.message });
  }
}

function define(values) {
  for (const [name, value] of Object.entries(values)) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }
}

/** Dawn's navigator.gpu; undefined where the package is not installed. @param flags Dawn's options, such as "backend=vulkan" */
async function openGpu({ webgpu, flags = [] }) {
  let entry;
  try {
    entry = createRequire(pathToFileURL(webgpu ? `${webgpu}/` : `${process.cwd()}/`)).resolve("webgpu");
  } catch {
    return undefined;
  }
  const { create, globals } = await import(pathToFileURL(entry).href);
  Object.assign(globalThis, globals);
  return create(flags);
}

/** @param options webgpu: a folder from which the npm package is found, flags: Dawn's, gpu: whether to look for it at all */
export function install(options) {
  settings = options;
  define({ Worker: WebWorker });
}

if (!isMainThread && workerData?.script) {
  settings = workerData.settings;
  const gpu = settings.gpu ? await openGpu(settings) : undefined;
  settings = { ...settings, gpu: false }; // what this worker starts are threads, which compute only
  define({
    self: globalThis,
    location: { href: workerData.script },
    postMessage: (message, transfer) => parentPort.postMessage(message, transfer),
    Worker: WebWorker,
    navigator: { gpu, hardwareConcurrency: availableParallelism() },
    isSecureContext: true,
    crossOriginIsolated: true,
    fetch: fetchFile,
  });
  await import(workerData.script);
  parentPort.on("message", (data) => globalThis.onmessage({ data }));
}
