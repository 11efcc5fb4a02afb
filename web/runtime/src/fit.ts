/** Which messages of a long conversation the model still sees. */

import { TinywebError } from "./errors.js";
import type { Message } from "./tokenizer.js";

export interface Fitted {
  ids: number[];
  /** How many of the oldest messages were left out. */
  dropped: number;
}

/** Room for an answer below which a prompt counts as too long. */
const MIN_ANSWER = 16;

/**
 * Drops the oldest turns until the prompt leaves room for the answer. System messages at the start and the last message
 * always stay. Room for the answer is `maxTokens`, but no more than half of the context; when only the messages that must
 * stay are left, a shorter answer is accepted.
 * @throws TinywebError "context-full" when even those do not fit
 */
export function fitMessages(
  messages: readonly Message[], context: number, maxTokens: number, encode: (messages: readonly Message[]) => number[],
): Fitted {
  const rest = messages.findIndex((message) => message.role !== "system");
  const first = rest < 0 ? messages.length : rest;
  const head = messages.slice(0, first);
  const reserve = Math.min(maxTokens, Math.floor(context / 2));
  let start = first;
  for (;;) {
    const ids = encode([...head, ...messages.slice(start)]);
    if (ids.length + reserve <= context) return { ids, dropped: start - first };
    if (start >= messages.length - 1) {
      if (ids.length + Math.min(reserve, MIN_ANSWER) <= context) return { ids, dropped: start - first };
      throw new TinywebError(
        "context-full",
        `The message is too long: it takes ${ids.length} tokens, and this model reads at most ${context} including its answer.`,
      );
    }
    // A turn ends where the user speaks again.
    start += 1;
    while (start < messages.length - 1 && messages[start]?.role !== "user") start += 1;
  }
}
