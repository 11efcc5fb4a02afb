/**
 * What every page relies on from its generated loader (`model/model.js`) and the runtime behind it. The loader is imported
 * at run time and is not part of the page's own build, so its shape is written down here.
 */

export const BACKENDS = ["auto", "webgpu", "wasm", "wasm-single"] as const;
export type BackendChoice = (typeof BACKENDS)[number];

export interface LoadProgress {
  phase: "manifest" | "weights" | "compile" | "ready";
  loadedBytes: number;
  totalBytes: number;
  /** True while the weights come out of this browser's storage. */
  fromCache: boolean;
  /** Estimate; absent or null until there is one. */
  secondsLeft?: number | null;
}

export interface LoadOptions {
  backend?: BackendChoice;
  onProgress?: (progress: LoadProgress) => void;
  signal?: AbortSignal;
  /** Called before anything is downloaded if the page was ended while it used this model the last time; what it throws ends the load. */
  onInterrupted?: () => void;
}

/** A backend that was tried or considered before the one in use, and why it is not used. */
export interface Fallback {
  backend: string;
  reason: string;
}

/** When the parts of loading were done, in milliseconds after the page asked for it; they run side by side. */
export interface StartTimes {
  manifestMs: number;
  tokenizerMs: number;
  weightsMs: number;
  kernelsMs: number;
  readyMs: number;
}

/** Figures of the model and the backend that every kind of model has. */
export interface ModelInfo {
  backend: string;
  /** The GPU's name, or the number of CPU threads. */
  adapter?: string | null;
  /** Bytes held on the device or in WASM memory. */
  memoryBytes?: number | null;
  /** Bytes of the weights. */
  modelBytes?: number | null;
  start?: StartTimes | null;
  fallbacks?: readonly Fallback[];
}

export type ModelEvent = "backend-changed" | "device-lost";

/** A model that is loaded: a chat, a function, or what a page's own loader makes of several of them. */
export interface LoadedModel {
  readonly info: ModelInfo;
  on(event: ModelEvent, listener: (detail?: unknown) => void): unknown;
  dispose(): void | Promise<void>;
}

/** The generated loader. `info` states the model's own figures; all of its fields may be missing. */
export interface ModelModule<Model extends LoadedModel> {
  load(options?: LoadOptions): Promise<Model>;
  info?: unknown;
}

export function isBackendChoice(value: unknown): value is BackendChoice {
  return typeof value === "string" && (BACKENDS as readonly string[]).includes(value);
}
