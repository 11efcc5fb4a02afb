/**
 * The WASM engine: one memory of fixed size that holds everything, one instance here as thread 0, and for the threaded
 * variant one more instance per worker. A step is one call to every thread, and blocks this one until all are done; work
 * that takes less than waking a thread is done here alone.
 */

import type { Backend, Engine, Slice } from "./engine.js";
import { describe, TinywebError } from "./errors.js";
import { CONTROL_BYTES, type Manifest, type WasmTarget } from "./manifest.js";
import { nextTask } from "./next-task.js";
import {
  CALL,
  COUNT,
  DONE,
  FUNCTIONS,
  instantiateThread,
  QUIT,
  waitWhile,
  type EntryFunction,
  type ThreadReply,
  type ThreadStart,
} from "./wasm-thread.js";

/** The part of a Worker that is needed here. */
export interface ThreadWorker {
  postMessage(message: unknown): void;
  terminate(): void;
  addEventListener(type: "message", listener: (event: { data: unknown }) => void): void;
  addEventListener(type: "error", listener: (event: { message?: string }) => void): void;
}

const PAGE = 65536;
const READY_S = 20;
/** Calls that take longer with all threads are worth it, whatever waking them takes, and what else the machine does. */
const SHORT_MS = 1;
/** The other way is tried again when calls have taken so many times as long since. */
const TRIED = 100;

export class WasmEngine implements Engine {
  readonly depth = 1;
  readonly adapter: string;
  readonly backend: Backend;
  readonly memoryBytes: number;
  readonly compiled: Promise<void>;

  private readonly variables: Int32Array;
  private readonly control: Int32Array;
  private readonly indices: Map<string, number>;
  private functions: EntryFunction[] = [];
  private workers: ThreadWorker[] = [];
  /** How long calls of the same entries take, in milliseconds: with all threads, with this one, and all since the other way was tried. */
  private readonly times = new Map<string, [all: number, alone: number, since: number]>();
  private failure: TinywebError | undefined;

  private constructor(
    private readonly target: WasmTarget,
    manifest: Manifest,
    private readonly memory: WebAssembly.Memory,
    private readonly threads: number,
    module: Promise<WebAssembly.Module>,
    spawn: () => ThreadWorker,
  ) {
    this.backend = threads > 1 ? "wasm" : "wasm-single";
    this.adapter = threads > 1 ? `${threads} CPU threads` : "1 CPU thread";
    this.memoryBytes = target.pages * PAGE;
    this.variables = new Int32Array(memory.buffer, target.variables, manifest.variables.length);
    this.control = new Int32Array(memory.buffer, target.control, CONTROL_BYTES / 4);
    this.indices = new Map([...target.entryPoints.keys()].map((name, index) => [name, index]));
    this.variables.set(manifest.variables.map(({ min }) => min));
    this.compiled = this.start(module, spawn);
    this.compiled.catch(() => undefined); // awaited later, together with the weights
  }

  /**
   * Allocates the memory and starts the threads.
   * @param threads 1 for the single-threaded variant
   * @param module the compiled module, perhaps still on its way
   * @throws TinywebError "out-of-memory"
   */
  static create(
    manifest: Manifest,
    target: WasmTarget,
    threads: number,
    module: Promise<WebAssembly.Module>,
    spawn: () => ThreadWorker,
  ): WasmEngine {
    module.catch(() => undefined);
    let memory: WebAssembly.Memory;
    try {
      memory = new WebAssembly.Memory({ initial: target.pages, maximum: target.pages, shared: threads > 1 });
    } catch (error) {
      const size = Math.ceil(target.pages / 16); // of 64 KB
      throw new TinywebError("out-of-memory", `The browser could not allocate the ${size} MB this model needs.`, error);
    }
    return new WasmEngine(target, manifest, memory, threads, module, spawn);
  }

  private async start(pending: Promise<WebAssembly.Module>, spawn: () => ThreadWorker): Promise<void> {
    const { stacks } = this.target;
    const names = [...this.target.entryPoints.values()].map((entry) => entry.function);
    const module = await pending;
    this.check();
    const stackTop = (thread: number): number => stacks.base + (thread + 1) * stacks.bytes;
    try {
      this.functions = await instantiateThread(module, this.memory, stackTop(0), names);
    } catch (error) {
      throw new TinywebError("compile-failed", `The WASM module does not fit its manifest: ${describe(error)}`, error);
    }
    const starting = Array.from({ length: this.threads - 1 }, (_, i) => {
      const message: ThreadStart = {
        type: "wasm-thread",
        module,
        memory: this.memory,
        control: this.target.control,
        thread: i + 1,
        threads: this.threads,
        stackTop: stackTop(i + 1),
        functions: names,
      };
      return this.startThread(spawn, message);
    });
    await Promise.all(starting);
    this.check();
  }

  private startThread(spawn: () => ThreadWorker, message: ThreadStart): Promise<void> {
    return new Promise((resolve, reject) => {
      const fail = (why: string): void => {
        clearTimeout(timer);
        this.failure ??= new TinywebError("worker-failed", `A WASM thread failed: ${why}`);
        reject(this.failure);
      };
      const timer = setTimeout(() => fail(`it did not start within ${READY_S} s`), READY_S * 1000);
      let worker: ThreadWorker;
      try {
        worker = spawn();
      } catch (error) {
        return fail(describe(error));
      }
      this.workers.push(worker);
      worker.addEventListener("message", ({ data }) => {
        const reply = data as ThreadReply;
        if (reply.type === "failed") return fail(reply.message);
        clearTimeout(timer);
        resolve();
      });
      worker.addEventListener("error", (event) => fail(event.message ?? "its script could not be loaded"));
      worker.postMessage(message);
    });
  }

  write(buffer: number, offset: number, bytes: Uint8Array<ArrayBuffer>): void {
    this.check();
    this.place({ buffer, offset, bytes: bytes.length }).set(bytes);
  }

  place({ buffer, offset, bytes }: Slice): Uint8Array {
    const address = this.target.addresses.get(buffer) as number; // the manifest's check has found one for every buffer we touch
    return new Uint8Array(this.memory.buffer, address + offset, bytes);
  }

  async flush(): Promise<void> {}

  setVariable(slot: number, value: number): void {
    this.variables[slot] = value;
  }

  kernels(entry: string): number {
    return this.target.entryPoints.get(entry)?.kernels ?? 0;
  }

  async run(entries: readonly string[]): Promise<void> {
    this.call(entries);
    await nextTask();
    this.check();
  }

  private wake(count: number): void {
    Atomics.store(this.control, COUNT, count);
    Atomics.add(this.control, CALL, 1);
    Atomics.notify(this.control, CALL);
  }

  private call(entries: readonly string[]): void {
    this.check();
    const { control } = this;
    const indices = entries.map((entry) => this.indices.get(entry) as number);
    const key = entries.join();
    const times = this.times.get(key) ?? [0, 0, 0]; // each way is tried once, longer calls with all threads only
    const [all, alone, since] = times;
    const again = since > (all + alone) * TRIED;
    const way = (alone || all < SHORT_MS) && alone < all !== again ? 1 : 0;
    const others = way ? 0 : this.threads - 1;
    const begun = performance.now();
    if (others) {
      control.set(indices, FUNCTIONS);
      Atomics.store(control, DONE, 0);
      this.wake(indices.length);
    }
    try {
      for (const index of indices) (this.functions[index] as EntryFunction)(0, others + 1);
    } catch (error) {
      this.failure = new TinywebError("wasm-trap", `The WASM module stopped in ${key}: ${describe(error)}`, error);
      throw this.failure;
    }
    // A thread that is still leaving would miss the next call.
    for (let done = 0; done < others; done = Atomics.load(control, DONE)) waitWhile(control, DONE, done);
    const took = performance.now() - begun;
    const mean = again ? 0 : times[way];
    times[way] = (mean * 7 + Math.min(took, mean * 2)) / 8 || took; // a call that was held up counts little
    times[2] = mean && since + mean;
    this.times.set(key, times);
  }

  async step(entries: readonly string[], slices: readonly Slice[]): Promise<Uint8Array<ArrayBuffer>[]> {
    if (entries.length > 0) this.call(entries);
    return slices.map((slice) => new Uint8Array(this.place(slice))); // a copy, never shared memory
  }

  dispose(): void {
    this.failure ??= new TinywebError("disposed", "This model was disposed.");
    this.wake(QUIT);
    for (const worker of this.workers.splice(0)) worker.terminate();
  }

  private check(): void {
    if (this.failure) throw this.failure;
  }
}
