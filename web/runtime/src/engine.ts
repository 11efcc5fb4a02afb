/** What the chat asks of a backend. WebGPU and WASM mirror each other behind it. */

export type Backend = "webgpu" | "wasm" | "wasm-single";

/** @internal Bytes of a buffer; `offset` and the buffer's start are multiples of 4. */
export interface Slice {
  buffer: number;
  offset: number;
  bytes: number;
}

/** Pixels that are not a typed array. */
export type Frame = ImageBitmap | VideoFrame | OffscreenCanvas;

/** @internal */
export interface Engine {
  readonly backend: Backend;
  /** Name of the GPU, or the number of threads, for people. */
  readonly adapter: string;
  /** Bytes this engine holds on the device or in WASM memory. */
  readonly memoryBytes: number;
  /** Most steps that can be in flight: more than one where results come back with a delay. */
  readonly depth: number;
  /** Settles when every kernel that was asked for first is compiled; weights may be written before. */
  readonly compiled: Promise<void>;

  /** Kernels of an entry point. */
  kernels(entry: string): number;
  /** Copies bytes into a buffer, ordered after all work queued so far. `offset` is a multiple of 4. */
  write(buffer: number, offset: number, bytes: Uint8Array<ArrayBuffer>): void;
  /** Memory that is written to and read between steps; of the backend "wasm" pages share it. */
  place?(slice: Slice): Uint8Array;
  /** Copies a frame of this size into a buffer as bytes RGBA, row by row; ordered as `write`. Where it is absent, bytes are written. */
  writeFrame?(buffer: number, frame: Frame, width: number, height: number): void;
  /** Waits until written bytes have left staging memory. */
  flush(): Promise<void>;
  /** Sets a variable for the entry points that are run from now on. */
  setVariable(slot: number, value: number): void;
  /** Queues entry points, in one submission; settles when about one submission is queued ahead, and events (a cancellation) got in. */
  run(entries: readonly string[]): Promise<void>;
  /**
   * Queues entry points in one submission, then copies what they left in buffers; each slice comes in memory of its own. Where `depth`
   * is 1 no event gets in meanwhile.
   */
  step(entries: readonly string[], slices: readonly Slice[]): Promise<Uint8Array<ArrayBuffer>[]>;
  /** Loses the device on purpose, to test recovery; absent where there is none to lose. */
  loseDevice?(): boolean;
  dispose(): void;
}

/** @internal Called when the engine's device went away by itself; the engine is unusable from then on. */
export type LostListener = (reason: string) => void;
