/** What this page relies on from the generated loader, beyond what all pages do. */

import type { LoadedModel, ModelInfo } from "tinyweb-shell";

export type Role = "system" | "user" | "assistant";

export interface PromptMessage {
  role: Role;
  content: string;
}

/** Figures of the model, the backend and the last answer; renewed when an answer ends and when the backend changes. */
export interface ChatInfo extends ModelInfo {
  /** 0 or absent before the first answer. */
  tokensPerSecond?: number | null;
  firstTokenMs?: number | null;
  kernelsPerToken?: number | null;
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
  /** Most tokens per second while the page is hidden. */
  hiddenTokensPerSecond?: number;
  signal?: AbortSignal;
}

export interface AnswerPart {
  text: string;
  token: number;
}

export interface Chat extends LoadedModel {
  readonly info: ChatInfo;
  generate(messages: PromptMessage[], options?: GenerateOptions): AsyncIterable<AnswerPart>;
}
