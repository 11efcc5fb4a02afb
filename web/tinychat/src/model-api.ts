/**
 * What the page relies on from the generated loader (`model/model.js`) and the runtime behind it.
 * The loader is imported at run time and is not part of the page's own build, so its shape is written down here.
 */

export const BACKENDS = ["auto", "webgpu", "wasm", "wasm-single"] as const;
export type BackendChoice = (typeof BACKENDS)[number];

export type Role = "system" | "user" | "assistant";

export interface PromptMessage {
  role: Role;
  content: string;
}

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

/** Figures of the model, the backend and the last answer; renewed when an answer ends and when the backend changes. */
export interface ChatInfo {
  backend: string;
  adapter?: string | null;
  /** 0 or absent before the first answer. */
  tokensPerSecond?: number | null;
  firstTokenMs?: number | null;
  memoryBytes?: number | null;
  modelBytes?: number | null;
  kernelsPerToken?: number | null;
  start?: StartTimes | null;
  fallbacks?: readonly Fallback[];
  /** Positions the model can hold, prompt and answer together. */
  context?: number | null;
  /** How many of the oldest messages the last answer had to leave out. */
  droppedMessages?: number;
  /** Why the last answer ended: "end", "max-tokens", "context-full" or "aborted". */
  stopReason?: string | undefined;
}

export interface GenerateOptions {
  maxTokens?: number;
  temperature?: number;
  topK?: number;
  topP?: number;
  repetitionPenalty?: number;
  seed?: number;
  signal?: AbortSignal;
}

export interface AnswerPart {
  text: string;
  token: number;
}

export type ChatEvent = "backend-changed" | "device-lost";

export interface Chat {
  readonly info: ChatInfo;
  generate(messages: PromptMessage[], options?: GenerateOptions): AsyncIterable<AnswerPart>;
  on(event: ChatEvent, listener: (detail?: unknown) => void): unknown;
  dispose(): void | Promise<void>;
}

/** The generated loader. `info` states the model's own figures; all of its fields may be missing. */
export interface ModelModule {
  load(options?: LoadOptions): Promise<Chat>;
  info?: unknown;
}

export function isBackendChoice(value: unknown): value is BackendChoice {
  return typeof value === "string" && (BACKENDS as readonly string[]).includes(value);
}
