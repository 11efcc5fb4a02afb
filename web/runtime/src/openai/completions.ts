/** `chat.completions.create`: OpenAI's requests and answers over a chat model in this page. */

import { optionsOf } from "../arguments.js";
import type { Chat } from "../client.js";
import { linkedAbort, TinywebError } from "../errors.js";
import { readChatRequest, type ChatRequest, type ChatWish } from "./request.js";
import type { ChatModel } from "./session.js";
import { Stops } from "./stops.js";

export type FinishReason = "stop" | "length";

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

interface Head<Kind extends string> {
  id: string;
  object: Kind;
  /** Seconds since 1970. */
  created: number;
  model: string;
}

export interface ChatCompletion extends Head<"chat.completion"> {
  choices: [
    {
      index: 0;
      message: { role: "assistant"; content: string; refusal: null };
      logprobs: null;
      finish_reason: FinishReason;
    },
  ];
  usage: Usage;
}

export interface ChatCompletionChunk extends Head<"chat.completion.chunk"> {
  /** Empty in the chunk that brings `usage`. */
  choices: {
    index: 0;
    delta: { role?: "assistant"; content?: string };
    logprobs: null;
    finish_reason: FinishReason | null;
  }[];
  /** In the last chunk, if `stream_options.include_usage` asked for it. */
  usage?: Usage | null;
}

/** The chunks of an answer, as they come. Leaving the loop, or `controller.abort()`, stops the model. */
export interface ChatStream extends AsyncIterable<ChatCompletionChunk> {
  controller: AbortController;
}

export interface RequestOptions {
  signal?: AbortSignal | undefined;
}

export class ChatCompletions {
  constructor(private readonly chat: ChatModel) {}

  /**
   * The model's answer to a conversation: in chunks if `stream` is true, else in one piece.
   * The whole conversation is read: one that does not fit the context is an error, not cut (`ChatSession` cuts).
   * @throws TinywebError "bad-argument" naming a parameter that this model does not know | "context-full" | "aborted" | …
   */
  create(request: ChatRequest & { stream: true }, options?: RequestOptions | null): Promise<ChatStream>;
  create(request: ChatRequest & { stream?: false | null }, options?: RequestOptions | null): Promise<ChatCompletion>;
  create(request: ChatRequest, options?: RequestOptions | null): Promise<ChatCompletion | ChatStream>;
  async create(request: ChatRequest, options?: RequestOptions | null): Promise<ChatCompletion | ChatStream> {
    const { signal } = optionsOf(options, "create()", ["signal"]);
    const { model, context } = this.chat.info;
    const wish = readChatRequest(request, model);
    const prompt = await this.chat.countTokens(wish.messages);
    if (prompt >= context) {
      throw new TinywebError(
        "context-full",
        `messages: they take ${prompt} tokens, and this model reads at most ${context} with its answer. Leave out the oldest.`,
      );
    }
    const head = { id: `chatcmpl-${randomId()}`, created: Math.floor(Date.now() / 1000), model };
    if (wish.stream) {
      const { controller, unlink } = linkedAbort(signal);
      const chunks = this.chunks(head, wish, prompt, controller.signal, unlink);
      return { controller, [Symbol.asyncIterator]: () => chunks };
    }
    let content = "";
    const answer = this.answer(wish, prompt, signal);
    for (;;) {
      const { done, value } = await answer.next();
      if (!done) content += value;
      else {
        const message = { role: "assistant", content, refusal: null } as const;
        const choice = { index: 0, message, logprobs: null, finish_reason: value.reason } as const;
        return { ...head, object: "chat.completion", choices: [choice], usage: value.usage };
      }
    }
  }

  private async *chunks(
    head: Omit<Head<string>, "object">,
    wish: ChatWish,
    prompt: number,
    signal: AbortSignal,
    ended: () => void,
  ): AsyncGenerator<ChatCompletionChunk, void> {
    const chunk = (delta: { role?: "assistant"; content?: string }, finish_reason: FinishReason | null = null): ChatCompletionChunk => ({
      ...head,
      object: "chat.completion.chunk",
      choices: [{ index: 0, delta, logprobs: null, finish_reason }],
      ...(wish.includeUsage ? { usage: null } : {}),
    });
    const answer = this.answer(wish, prompt, signal);
    try {
      yield chunk({ role: "assistant", content: "" });
      for (;;) {
        const { done, value } = await answer.next();
        if (!done) yield chunk({ content: value });
        else {
          yield chunk({}, value.reason);
          if (wish.includeUsage) yield { ...chunk({}), choices: [], usage: value.usage };
          return;
        }
      }
    } finally {
      ended();
      await answer.return({ reason: "stop", usage: usageOf(prompt, 0) }); // a loop that was left stops the model
    }
  }

  /** The pieces of the answer that are certain, none empty; then why it ended. */
  private async *answer(
    wish: ChatWish,
    prompt: number,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<string, { reason: FinishReason; usage: Usage }> {
    const { chat } = this;
    const stops = new Stops(wish.stop);
    // No more than the context leaves, so that no message is left out to make room for the answer.
    const maxTokens = Math.min(wish.maxTokens ?? chat.info.defaults.maxTokens, chat.info.context - prompt);
    const options: Parameters<Chat["generate"]>[1] = { ...wish.sampling, maxTokens, ...(signal ? { signal } : {}) };
    const answer = chat.generate(wish.messages, options);
    for await (const part of answer) {
      const text = stops.push(part.text);
      if (text) yield text;
      if (stops.found) break;
    }
    const rest = stops.end();
    if (rest) yield rest;
    const { stopReason, answerTokens } = await answer.result;
    return { reason: stops.found || stopReason === "end" ? "stop" : "length", usage: usageOf(prompt, answerTokens) };
  }
}

const usageOf = (prompt: number, answer: number): Usage => ({
  prompt_tokens: prompt,
  completion_tokens: answer,
  total_tokens: prompt + answer,
});

export function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
