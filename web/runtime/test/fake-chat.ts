/** A chat model that says what it is told, for tests of what stands before it. */

import type { GenerateOptions } from "../src/options.js";
import type { ChatModel } from "../src/openai/session.js";
import type { Message } from "../src/tokenizer.js";

export class FakeChat implements ChatModel {
  /** The pieces of the next answers. */
  pieces: string[] = ["Hel", "lo"];
  readonly asked: { messages: Message[]; options: GenerateOptions }[] = [];
  /** Loops that were left before their end. */
  left = 0;
  /** Thrown after the pieces. */
  failure: Error | undefined;
  info = {
    model: "fake", context: 100, droppedMessages: 0, stopReason: "end", answerTokens: 9,
    defaults: { temperature: 1, topP: 1, topK: 0, repetitionPenalty: 1, maxTokens: 40 },
  } as { -readonly [Name in keyof ChatModel["info"]]: ChatModel["info"][Name] };

  /** A token for each letter. */
  async countTokens(messages: readonly Message[]): Promise<number> {
    return messages.reduce((sum, { content }) => sum + content.length, 0);
  }

  async *generate(messages: readonly Message[], options: GenerateOptions = {}): AsyncGenerator<{ text: string; token: number }, void> {
    this.asked.push({ messages: structuredClone([...messages]), options });
    let ended = false;
    try {
      for (const text of this.pieces) {
        await Promise.resolve();
        if (options.signal?.aborted) throw Object.assign(new Error("Stopped."), { code: "aborted" });
        yield { text, token: 1 };
      }
      if (this.failure) throw this.failure;
      ended = true;
    } finally {
      if (!ended) this.left += 1;
    }
  }
}
