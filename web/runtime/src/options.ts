/** Generation options: checked, and completed with the model's defaults. */

import { TinywebError } from "./errors.js";
import type { Sampling } from "./tasks.js";
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
  signal?: AbortSignal;
}

export interface Settings extends Sampling {
  speculate: number;
  hiddenTokensPerSecond: number;
  seed: number;
  signal: AbortSignal | undefined;
}

export function completeOptions(options: GenerateOptions, defaults: Sampling): Settings {
  const known = { ...defaults, speculate: 0, hiddenTokensPerSecond: Infinity };
  const number = (name: keyof typeof known, min: number, max: number, integer = false): number => {
    const value = options[name] ?? known[name];
    if (typeof value !== "number" || !(value >= min && value <= max) || (integer && !Number.isInteger(value))) {
      const kind = integer ? "an integer" : "a number";
      throw new TinywebError("bad-argument", `${name} must be ${kind} in ${min} … ${max}, not ${String(value)}.`);
    }
    return value;
  };
  const seed = options.seed ?? (crypto.getRandomValues(new Int32Array(1))[0] as number);
  if (!Number.isSafeInteger(seed)) throw new TinywebError("bad-argument", `seed must be an integer, not ${String(seed)}.`);
  return {
    maxTokens: number("maxTokens", 1, 2 ** 31 - 1, true),
    temperature: number("temperature", 0, 100),
    topK: number("topK", 0, 2 ** 31 - 1, true),
    topP: number("topP", 0, 1),
    repetitionPenalty: number("repetitionPenalty", 0.01, 100),
    speculate: number("speculate", 0, 1024, true),
    hiddenTokensPerSecond: number("hiddenTokensPerSecond", 0, Infinity),
    seed: seed | 0,
    signal: options.signal,
  };
}

export function checkMessages(messages: unknown): asserts messages is readonly Message[] {
  if (!Array.isArray(messages) || messages.length === 0) {
    throw new TinywebError("bad-argument", "messages must be a non-empty list of { role, content }.");
  }
  messages.forEach((message: Partial<Message> | null, i) => {
    if (typeof message?.role !== "string" || typeof message.content !== "string") {
      throw new TinywebError("bad-argument", `messages[${i}] must have a role and a content, both strings.`);
    }
  });
}

export function checkIds(ids: unknown, vocabSize: number, context: number): asserts ids is readonly number[] {
  if (!Array.isArray(ids) || ids.length === 0) throw new TinywebError("bad-argument", "token ids must be a non-empty list.");
  for (const id of ids) {
    if (!Number.isInteger(id) || id < 0 || id >= vocabSize) {
      throw new TinywebError("bad-argument", `${String(id)} is not a token id of this model (0 … ${vocabSize - 1}).`);
    }
  }
  if (ids.length > context) {
    throw new TinywebError("context-full", `${ids.length} token ids are more than the model's context of ${context}.`);
  }
}
