/** What an answer is asked for with, checked before it is sent to the worker, which completes it with the model's defaults. */

import { badArgument, checkNumbers, optionsOf, type Range } from "./arguments.js";
import type { Message } from "./tokenizer.js";

export interface GenerateOptions {
  /** Most tokens to produce, the end token included. */
  maxTokens?: number;
  /** 0 always takes the likeliest token. */
  temperature?: number;
  /** Number of likeliest tokens to choose from; 0 for all. */
  topK?: number;
  /** Share of probability to choose from, 0 … 1. */
  topP?: number;
  /** Above 1, tokens that occurred become less likely. */
  repetitionPenalty?: number;
  /** 32-bit integer; the same seed gives the same text. Random by default. */
  seed?: number;
  /**
   * Tokens to guess ahead from what the text said before (prompt lookup), 0 by default. The answer stays the same; it comes
   * faster where it repeats the prompt. Only where the likeliest token is always taken (temperature 0, no penalty).
   */
  speculate?: number;
  /** Most tokens per second while the page is hidden, to spare the battery; 0 waits until it is seen again. Unlimited by default. */
  hiddenTokensPerSecond?: number;
  signal?: AbortSignal | undefined;
}

const NUMBERS: Record<Exclude<keyof GenerateOptions, "signal">, Range> = {
  maxTokens: [1, 2 ** 31 - 1, true],
  temperature: [0, 100],
  topK: [0, 2 ** 31 - 1, true],
  topP: [0, 1],
  repetitionPenalty: [0.01, 100],
  seed: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, true],
  speculate: [0, 1024, true],
  hiddenTokensPerSecond: [0],
};

/** @throws TinywebError "bad-argument" */
export function generateOptions(given: GenerateOptions | null | undefined, call: string): GenerateOptions {
  const options = optionsOf(given, call, [...Object.keys(NUMBERS), "signal"]);
  checkNumbers(options, NUMBERS);
  return options;
}

/** @throws TinywebError "bad-argument" */
export function checkMessages(messages: unknown): asserts messages is readonly Message[] {
  if (!Array.isArray(messages) || messages.length === 0) throw badArgument("messages must be a non-empty list of { role, content }.");
  messages.forEach((message: Partial<Message> | null, i) => {
    if (typeof message?.role !== "string" || typeof message.content !== "string") {
      throw badArgument(`messages[${i}] must have a role and a content, both strings.`);
    }
  });
}
