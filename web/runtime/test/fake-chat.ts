/** A chat model that says what it is told, for tests of what stands before it. */

import { answerOf, type Answer, type ChatResult } from "../src/answer.js";
import type { ChatPart } from "../src/chat.js";
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
    model: "fake",
    context: 100,
    defaults: { temperature: 1, topP: 1, topK: 0, repetitionPenalty: 1, maxTokens: 40 },
  } as { -readonly [Name in keyof ChatModel["info"]]: ChatModel["info"][Name] };

  /** What an answer's figures are when it has ended; while it runs they are counted. */
  ended: Partial<ChatResult> = { stopReason: "end", answerTokens: 9 };

  /** A token for each letter. */
  async countTokens(messages: readonly Message[]): Promise<number> {
    return messages.reduce((sum, { content }) => sum + content.length, 0);
  }

  generate(messages: readonly Message[], options?: GenerateOptions | null): Answer<ChatPart> {
    return answerOf((figures) => this.parts(messages, options ?? {}, figures));
  }

  private async *parts(messages: readonly Message[], options: GenerateOptions, figures: ChatResult): AsyncGenerator<ChatPart, void> {
    this.asked.push({ messages: structuredClone([...messages]), options });
    let ended = false;
    try {
      for (const text of this.pieces) {
        await Promise.resolve();
        if (options.signal?.aborted) throw Object.assign(new Error("Stopped."), { code: "aborted" });
        figures.answerTokens += 1;
        yield { text, token: 1 };
      }
      if (this.failure) throw this.failure;
      ended = true;
      Object.assign(figures, this.ended);
    } finally {
      if (!ended) this.left += 1;
    }
  }
}
