/** An answer that comes piece by piece, with figures of its own: calls may be interleaved. */

import { isAbort } from "./errors.js";

/** Why an answer ended; "aborted" also where its loop was left, "failed" where it threw. */
export type StopReason = "end" | "max-tokens" | "context-full" | "aborted" | "failed";

/** Figures of one call. */
export interface ChatResult {
  /** Tokens of the prompt. */
  promptTokens: number;
  /** Tokens of the prompt that were still in the cache. */
  reusedTokens: number;
  /** How many of the oldest messages were left out, so that the rest fits the context. */
  droppedMessages: number;
  /** Tokens of the answer, the end token included. */
  answerTokens: number;
  /** From the call's turn to its first token, in milliseconds: choosing the messages and reading the prompt. */
  firstTokenMs: number;
  /** Decoding speed after the first token; 0 where there is only one. */
  tokensPerSecond: number;
  stopReason: StopReason;
}

export interface Answer<Part> extends AsyncGenerator<Part, void> {
  /** Fulfilled when the loop over the answer has ended, in whatever way; it never rejects. */
  readonly result: Promise<ChatResult>;
  /** What `result` would be if the loop was left now. */
  readonly progress: Readonly<ChatResult>;
}

/** @internal @param run gives the parts, and keeps the figures it is given up to date */
export function answerOf<Part>(run: (figures: ChatResult) => AsyncIterable<Part>): Answer<Part> {
  const progress: ChatResult = {
    promptTokens: 0,
    reusedTokens: 0,
    droppedMessages: 0,
    answerTokens: 0,
    firstTokenMs: 0,
    tokensPerSecond: 0,
    stopReason: "aborted",
  };
  let tell: (result: ChatResult) => void;
  const result = new Promise<ChatResult>((resolve) => (tell = resolve));
  async function* parts(): AsyncGenerator<Part, void> {
    try {
      yield* run(progress);
    } catch (error) {
      progress.stopReason = isAbort(error) ? "aborted" : "failed";
      throw error;
    } finally {
      tell(progress);
    }
  }
  return Object.assign(parts(), { result, progress });
}
