/**
 * The library in Node (20.16 and later): worker threads stand in for a page's workers, files for a site, Dawn (the package
 * `webgpu`, where it is installed) for the browser's WebGPU. tinyweb.js imports this file where there are no workers; it is also
 * what every worker thread runs first. Node's modules are not imported by name: bundlers for pages read this file, too.
 */

import type { WorkerLike } from "./connection.js";
import { describe } from "./errors.js";

interface Port {
  on(event: "message" | "error" | "exit", listener: (value: never) => void): void;
  postMessage(message: unknown, transfer?: readonly unknown[]): void;
}

interface Thread extends Port {
  terminate(): Promise<number>;
}

interface Modules {
  "node:worker_threads": { Worker: new (file: URL, options: object) => Thread; parentPort: Port | null; workerData: unknown };
  "node:fs": { openAsBlob(file: URL): Promise<Blob> };
  "node:os": { availableParallelism(): number };
  "node:url": { pathToFileURL(path: string, options?: { windows: boolean }): URL };
}

declare const process: { getBuiltinModule<Name extends keyof Modules>(name: Name): Modules[Name] };

/** What a thread is told when it starts. */
interface Start {
  /** The script to run, as a worker of a page would. */
  script: string;
  gpu: boolean;
}

const isStart = (data: unknown): data is { tinyweb: Start } => typeof data === "object" && data !== null && "tinyweb" in data;

/** A drive's letter is no scheme. */
const SCHEME = /^[a-z][a-z\d+.-]+:/i;

/** An address as it is; what is none is a path, from the current folder. @param options whose paths: this system's by default */
export function addressOf(text: string, options?: { windows: boolean }): URL {
  return SCHEME.test(text) ? new URL(text) : process.getBuiltinModule("node:url").pathToFileURL(text, options);
}

/** A worker thread that looks like a page's worker. */
export class NodeWorker implements WorkerLike {
  onmessage: WorkerLike["onmessage"] = null;
  onerror: WorkerLike["onerror"] = null;
  private readonly thread: Thread;
  private ended = false;

  /** @param gpu whether the thread may need WebGPU */
  constructor(script: string | URL, { gpu = false }: { gpu?: boolean } = {}) {
    const { Worker: Thread } = process.getBuiltinModule("node:worker_threads");
    const tinyweb: Start = { script: String(script), gpu };
    this.thread = new Thread(new URL(import.meta.url), { workerData: { tinyweb } });
    this.addEventListener("message", (event) => this.onmessage?.(event as never));
    this.addEventListener("error", (event) => this.onerror?.(event));
    this.thread.on("exit", (code: number) => {
      if (!this.ended) this.onerror?.({ message: `it ended with code ${code}` });
    });
  }

  addEventListener(type: "message" | "error", listener: (event: { data?: unknown; message?: string }) => void): void {
    if (type === "message") this.thread.on("message", (data: unknown) => listener({ data }));
    else this.thread.on("error", (error: unknown) => listener({ message: describe(error) }));
  }

  postMessage(message: unknown, transfer?: readonly unknown[]): void {
    this.thread.postMessage(message, transfer);
  }

  terminate(): void {
    this.ended = true;
    void this.thread.terminate();
  }
}

/** A worker of the library, `file` beside this one, or the script at `workerUrl`, in a thread. */
export function startThread(workerUrl: string | URL | undefined, file: string, gpu: boolean): WorkerLike {
  return new NodeWorker(workerUrl ? addressOf(String(workerUrl)) : new URL(file, import.meta.url), { gpu });
}

/** `fetch`, which in Node knows no files. */
export async function fetchHere(url: string | URL, init?: RequestInit): Promise<Response> {
  if (!String(url).startsWith("file:")) return fetch(url, init);
  try {
    return new Response(await process.getBuiltinModule("node:fs").openAsBlob(new URL(url)));
  } catch {
    return new Response(null, { status: 404, statusText: "there is no such file" });
  }
}

/** Gives this thread what a page's worker has, and runs the script. */
async function boot({ script, gpu }: Start, port: Port): Promise<void> {
  const os = process.getBuiltinModule("node:os");
  const self = globalThis as unknown as { onmessage?: (event: { data: unknown }) => void };
  const network = globalThis.fetch;
  const globals = {
    self,
    Worker: NodeWorker,
    location: new URL(script),
    isSecureContext: true,
    crossOriginIsolated: true, // memory may be shared between threads
    postMessage: (message: unknown, transfer?: readonly unknown[]) => port.postMessage(message, transfer),
    fetch: (url: string, init?: RequestInit) => (url.startsWith("file:") ? fetchHere(url, init) : network(url, init)),
    navigator: {
      gpu: gpu ? await openGpu() : undefined,
      hardwareConcurrency: os.availableParallelism(),
    },
  };
  for (const [name, value] of Object.entries(globals)) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }
  await import(/* @vite-ignore */ script);
  port.on("message", (data: unknown) => self.onmessage?.({ data }));
}

async function openGpu(): Promise<GPU | undefined> {
  const name = "webgpu"; // not a dependency: where it is missing WebAssembly computes
  try {
    const dawn = (await import(/* @vite-ignore */ name)) as { create(flags: string[]): GPU; globals: object };
    Object.assign(globalThis, dawn.globals);
    return dawn.create([]);
  } catch {
    return undefined;
  }
}

const { parentPort, workerData } = process.getBuiltinModule("node:worker_threads");
if (parentPort && isStart(workerData)) await boot(workerData.tinyweb, parentPort);
