/** What the page and the worker say to one another. */

import type { ChatResult } from "./answer.js";
import type { BackendOptions } from "./backend.js";
import type { ChatInfo, ChatPart } from "./chat.js";
import type { WireError } from "./errors.js";
import type { FunctionInfo, Inputs, Places } from "./function.js";
import type { HostEvents, Progress } from "./host.js";
import type { GenerateOptions } from "./options.js";
import type { Message } from "./tokenizer.js";

/** Options without what cannot be sent. */
export type WireOptions = Omit<GenerateOptions, "signal">;

export type Call =
  | { method: "load"; task: "chat" | "function"; baseUrl: string; options: BackendOptions; begun: number }
  | { method: "run"; inputs: Inputs; function: string | undefined; outputs: readonly string[] | undefined }
  | { method: "generate"; messages: readonly Message[]; options: WireOptions }
  | { method: "generateIds"; ids: readonly number[]; options: WireOptions }
  | { method: "logits"; ids: readonly number[] }
  | { method: "countTokens"; messages: readonly Message[] }
  | { method: "clearCache" }
  | { method: "loseDevice" };

/** A piece of an answer, and the call's figures up to it; the last one has figures alone. */
export interface WirePart {
  part?: ChatPart | number;
  figures: ChatResult;
}

/** `id` is chosen by the page; every call ends with one "end" of the same id. */
export type Request =
  | { type: "call"; id: number; call: Call }
  | { type: "cancel"; id: number }
  | { type: "hidden"; hidden: boolean }
  | { type: "ping" }
  | { type: "dispose" };

export type Reply =
  | { type: "ready" } // before anything else
  | { type: "held"; lock: string } // the name of a Web Lock that the worker has as long as it lives
  | { type: "pong" }
  | { type: "part"; id: number; part: WirePart }
  | { type: "end"; id: number; value?: unknown; error?: WireError }
  | { type: "progress"; progress: Progress }
  | { type: "info"; info: ChatInfo | FunctionInfo; places?: Places | undefined }
  | { type: "thread"; port: MessagePort } // brings the failure of a WASM thread, while the worker waits for that thread
  | { type: "event"; name: keyof HostEvents; data: HostEvents[keyof HostEvents] }
  | { type: "disposed" };
