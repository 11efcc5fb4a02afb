/** Checked by the compiler, never run: the runtime is what the page takes it for. Needs the runtime's built types. */

import type { Chat as RuntimeChat, ErrorCode, LoadOptions as RuntimeOptions } from "../../runtime/dist/index";
import type { LoadOptions } from "tinyweb-shell";
import type { Chat } from "../src/model-api";

type Fits<Given extends Wanted, Wanted> = Given;

export type ChatFits = Fits<RuntimeChat, Chat>;
export type OptionsFit = Fits<LoadOptions, RuntimeOptions>;

/** Every code of the runtime with whether the page has words of its own for it when loading fails. */
export const TOLD: Record<ErrorCode, boolean> = {
  "bad-argument": false,
  "bad-manifest": true,
  "download-failed": true,
  "hash-mismatch": true,
  storage: true,
  "out-of-memory": true,
  "no-backend": true,
  "compile-failed": true,
  "gpu-error": true,
  "device-lost": true,
  "context-full": false,
  aborted: false,
  disposed: false,
  "worker-failed": true,
  internal: false,
};
