/** What every page relies on from its generated loader (`model/model.js`), which it imports at run time: the library's types. */

import type { BackendChoice, LoadOptions, ModelEvents, ModelInfo } from "tinyweb";

export type { BackendChoice, LoadOptions, ModelEvents, ModelInfo, Progress as LoadProgress, StartTimes } from "tinyweb";

export const BACKENDS = ["auto", "webgpu", "wasm", "wasm-single"] as const satisfies readonly BackendChoice[];

/** A model that is loaded: a chat, a function, or what a page's own loader makes of several of them. */
export interface LoadedModel {
  readonly info: ModelInfo;
  on(event: keyof ModelEvents, listener: () => void): unknown;
  dispose(): Promise<void>;
}

/** The generated loader. `info` states the model's own figures; a page checks what it takes of them. */
export interface ModelModule<Model extends LoadedModel> {
  load(options?: LoadOptions): Promise<Model>;
  info?: unknown;
}

export function isBackendChoice(value: unknown): value is BackendChoice {
  return typeof value === "string" && (BACKENDS as readonly string[]).includes(value);
}
