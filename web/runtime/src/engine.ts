/** What the chat asks of a backend. WebGPU and WASM mirror each other behind it. */

export type Backend = "webgpu" | "wasm" | "wasm-single";

export interface Engine {
  readonly backend: Backend;
  /** Name of the GPU, or the number of threads, for people. */
  readonly adapter: string;
  /** Bytes this engine holds on the device or in WASM memory. */
  readonly memoryBytes: number;
  /** Kernels run for one decoded token, sampling included. */
  readonly kernelsPerToken: number;
  /** Steps worth keeping in flight: more than one where results come back with a delay. */
  readonly depth: number;
  /** Settles when every kernel is compiled; weights may be written before. */
  readonly compiled: Promise<void>;

  /** Copies bytes into a buffer, ordered after all work queued so far. `offset` is a multiple of 4. */
  write(buffer: number, offset: number, bytes: Uint8Array<ArrayBuffer>): void;
  /** Waits until written bytes have left staging memory. */
  flush(): Promise<void>;
  /** Sets a variable for the entry points that are run from now on. */
  setVariable(slot: number, value: number): void;
  /** Queues one entry point. */
  run(entry: string): void;
  /** Queues entry points in one submission, then reads the 4 bytes at `index` of an i32 buffer. */
  step(entries: readonly string[], buffer: number, index: number): Promise<number>;
  /** Reads the first `count` floats of an f32 buffer. */
  readFloats(buffer: number, count: number): Promise<Float32Array>;
  /** Lets events (a cancellation) in; bounds the work queued ahead to about one submission. */
  turn(): Promise<void>;
  /** Loses the device on purpose, to test recovery; false where there is none to lose. */
  loseDevice(): boolean;
  dispose(): void;
}

/** Called when the engine's device went away by itself; the engine is unusable from then on. */
export type LostListener = (reason: string) => void;
