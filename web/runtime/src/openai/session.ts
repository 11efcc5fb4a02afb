/** A conversation that keeps its messages. */

import { answerOf, type Answer, type ChatResult } from "../answer.js";
import type { ChatInfo, ChatPart } from "../chat.js";
import type { Chat } from "../client.js";
import { badArgument, optionsOf, unlike } from "../arguments.js";
import { linkedAbort } from "../errors.js";
import { checkMessages, generateOptions, type GenerateOptions } from "../options.js";
import type { Message } from "../tokenizer.js";

/** What a session needs of a chat model; `loadChat` gives one. */
export interface ChatModel extends Pick<Chat, "generate" | "countTokens"> {
  readonly info: Pick<ChatInfo, "model" | "context" | "defaults">;
}

export interface SessionOptions extends Omit<GenerateOptions, "signal"> {
  /** What the model is told before the first question. It is never trimmed. */
  system?: string;
  /** An earlier conversation to go on with, system messages included. */
  messages?: readonly Message[];
}

/** How much of the context a conversation takes. */
export interface ContextUse {
  /** Tokens of the conversation, as the model would read all of it. */
  tokens: number;
  /** Tokens the model can see at once, its answer included. */
  size: number;
  /** Oldest messages that the last answer was given without; `trim` removes them. */
  dropped: number;
}

/**
 * A conversation with a chat model: `send` adds a question and its answer to `messages`. Several sessions may share a model: answers
 * then come one after another, and what the sessions' beginnings have in common is not read again.
 */
export class ChatSession {
  private readonly all: Message[] = [];
  private readonly defaults: GenerateOptions;
  private readonly system: Message[];
  private running: AbortController | undefined;
  private left = 0;

  constructor(
    private readonly chat: ChatModel,
    options?: SessionOptions | null,
  ) {
    if (typeof (chat as Partial<ChatModel> | undefined)?.generate !== "function") {
      throw badArgument("A session needs a chat model: new ChatSession(await loadChat(…)).");
    }
    const { system, messages = [], ...defaults } = optionsOf(options, "a session");
    if (system !== undefined && typeof system !== "string") throw unlike("system", "a text", system);
    this.defaults = generateOptions(defaults, "a session");
    this.system = system === undefined ? [] : [{ role: "system", content: system }];
    this.reset(messages);
  }

  /** The conversation so far: a copy, which can be kept as JSON and given to a new session's `messages`. */
  get messages(): Message[] {
    return this.all.map((message) => ({ ...message }));
  }

  /** Whether an answer is on its way. */
  get busy(): boolean {
    return this.running !== undefined;
  }

  /**
   * Asks, and yields the answer piece by piece. An answer that breaks off (`stop`, the signal, a loop that is left, an error) stays
   * in `messages` as far as it came; if nothing came, the question goes too. `result` has the answer's figures.
   * @throws TinywebError "bad-argument" (while another answer is on its way) | "aborted" | "context-full" | "device-lost" | …
   */
  send(text: string, given?: GenerateOptions | null): Answer<ChatPart> {
    return answerOf((figures) => this.parts(text, given, figures));
  }

  private async *parts(text: string, given: GenerateOptions | null | undefined, figures: ChatResult): AsyncGenerator<ChatPart, void> {
    const { signal, ...options } = generateOptions(given, "send()");
    if (typeof text !== "string") throw unlike("What is sent", "a text", text);
    if (this.running) throw badArgument("This session is still answering: wait for the end, or call stop().");
    const { controller: running, unlink } = linkedAbort(signal);
    this.running = running;
    const { all } = this;
    const asked: Message = { role: "user", content: text };
    const answer: Message = { role: "assistant", content: "" };
    all.push(asked);
    try {
      const said = this.chat.generate(all, { ...this.defaults, ...options, signal: running.signal });
      for await (const part of said) {
        Object.assign(figures, said.progress);
        if (answer.content === "" && part.text !== "" && all.at(-1) === asked) all.push(answer);
        answer.content += part.text;
        yield part;
      }
      if (all.at(-1) === asked) all.push(answer); // a model may have nothing to say
      Object.assign(figures, said.progress);
      if (this.running === running) this.left = figures.droppedMessages;
    } finally {
      if (all.at(-1) === asked) all.pop();
      unlink();
      if (this.running === running) this.running = undefined;
    }
  }

  /** Breaks off the answer that is on its way; its `send` then throws "aborted". */
  stop(): void {
    this.running?.abort();
  }

  /** Begins anew: with the system message alone, or with another conversation. */
  reset(messages: readonly Message[] = []): void {
    if (!Array.isArray(messages) || messages.length > 0) checkMessages(messages);
    this.stop();
    this.running = undefined; // what is still on its way belongs to nobody
    const own = messages.some(({ role }) => role === "system") ? [] : this.system;
    this.all.splice(0, Infinity, ...[...own, ...messages].map(({ role, content }) => ({ role, content })));
    this.left = 0;
  }

  /** How much of the context the conversation takes, with `text` as its next question if one is given. */
  async context(text?: string): Promise<ContextUse> {
    const messages = text === undefined ? this.all : [...this.all, { role: "user", content: text }];
    const tokens = messages.length > 0 ? await this.chat.countTokens(messages) : 0;
    return { tokens, size: this.chat.info.context, dropped: this.left };
  }

  /** Forgets the oldest messages, which the model no longer saw when it gave the last answer. @returns how many */
  trim(): number {
    const first = this.all.findIndex(({ role }) => role !== "system");
    const removed = first < 0 || this.running ? [] : this.all.splice(first, this.left);
    this.left -= removed.length;
    return removed.length;
  }
}
