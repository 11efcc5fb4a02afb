/** The chat itself: one answer at a time, its figures, and going on where it was after a lost device. */

import { answerOf, type Answer, type ChatResult } from "./answer.js";
import { badArgument } from "./arguments.js";
import { parseJson } from "./bundle.js";
import { isAbort, throwIfAborted, TinywebError } from "./errors.js";
import { fitMessages } from "./fit.js";
import { ModelHost, type HostInfo, type HostSettings } from "./host.js";
import { Lock } from "./lock.js";
import { Loop } from "./loop.js";
import type { GenerateOptions } from "./options.js";
import { Pace } from "./pace.js";
import type { Call, WirePart } from "./protocol.js";
import type { ChatPlan, Sampling } from "./tasks.js";
import { ChatTokenizer, type Message } from "./tokenizer.js";
import { readTokenizer } from "./read-tokenizer.js";

/** Tokens before a continuation that its first words depend on. */
const LOOK_BACK = 16;

export interface ChatPart {
  /** The next piece of the answer; empty while a character is incomplete. */
  text: string;
  /** The token that completed it. */
  token: number;
}

export interface ChatInfo extends HostInfo {
  kernelsPerToken: number;
  /** Tokens the model sees at once. */
  context: number;
  /** Tokens it could see at once with more memory. */
  fullContext: number;
  /** What `generate` takes where its options say nothing. */
  defaults: Sampling;
}

/** @internal */
export interface Settings extends Sampling {
  speculate: number;
  hiddenTokensPerSecond: number;
  /** 32 bits. */
  seed: number;
  signal: AbortSignal | undefined;
}

/** @internal */
export class ChatSession {
  private readonly lock = new Lock();
  private readonly loop: Loop;
  private readonly plan: ChatPlan;

  private constructor(
    readonly host: ModelHost,
    private readonly tokenizer: ChatTokenizer,
    private readonly pace = new Pace(),
  ) {
    this.plan = host.manifest.chat as ChatPlan;
    this.loop = new Loop(host.manifest, () => host.engine);
  }

  /** Opens a bundle whose task is "chat"; its tokenizer is made while the engine is. */
  static async open(base: URL, settings: HostSettings, pace?: Pace, signal?: AbortSignal): Promise<ChatSession> {
    let tokenizer: ChatTokenizer | undefined;
    const beside = async (host: ModelHost, stop: AbortSignal): Promise<void> => {
      tokenizer = await openTokenizer(host, stop);
      host.done("tokenizerMs");
    };
    const host = await ModelHost.open(base, { ...settings, task: "chat", beside }, signal);
    return new ChatSession(host, tokenizer as ChatTokenizer, pace);
  }

  /** What a page asks for; `post` takes the parts of a stream. A page asks of a model what its class offers. */
  answer(call: Call, signal: AbortSignal, post: (part: WirePart) => void): unknown {
    switch (call.method) {
      case "generate":
        return stream(this.generate(call.messages, { ...call.options, signal }), post);
      case "generateIds":
        return stream(this.generateIds(call.ids, { ...call.options, signal }), post);
      case "logits":
        return this.logits(call.ids, signal);
      case "countTokens":
        return this.countTokens(call.messages);
      case "clearCache":
        return this.clearCache();
    }
    return undefined;
  }

  get info(): ChatInfo {
    const { engine } = this.host;
    return {
      ...this.host.info,
      kernelsPerToken: engine.kernels(this.plan.decode) + engine.kernels(this.plan.sample),
      context: this.host.context,
      fullContext: this.plan.context,
      defaults: this.plan.defaults,
    };
  }

  /** Tokens of a conversation as the model would read it. */
  countTokens(messages: readonly Message[]): number {
    return this.tokenizer.encodeChat(messages).length;
  }

  /** The assistant's answer, piece by piece; of a base model, how the text of all messages goes on. */
  generate(messages: readonly Message[], options: GenerateOptions = {}): Answer<ChatPart> {
    return answerOf((figures) => this.parts(messages, options, figures));
  }

  private async *parts(messages: readonly Message[], options: GenerateOptions, figures: ChatResult): AsyncGenerator<ChatPart, void> {
    const { plan, tokenizer } = this;
    const settings = this.complete(options);
    const release = await this.lock.acquire(settings.signal);
    try {
      const begun = performance.now();
      const { ids, dropped } = await fitMessages(messages, this.host.context, settings.maxTokens, tokenizer, settings.signal);
      figures.droppedMessages = dropped;
      const detokenizer = tokenizer.detokenizer();
      // The first words of a continuation depend on what they follow: whether there is a space between, say.
      if (plan.begin !== undefined) for (const token of ids.slice(-LOOK_BACK)) detokenizer.push(token);
      let last = -1;
      for await (const token of this.tokens(ids, settings, figures, begun)) {
        if (plan.eos.includes(token)) break;
        last = token;
        yield { text: detokenizer.push(token), token };
      }
      const text = detokenizer.end();
      if (text) yield { text, token: last };
    } finally {
      release();
    }
  }

  /** Token ids that follow `ids`, the end token included. */
  generateIds(ids: readonly number[], options: GenerateOptions = {}): Answer<number> {
    return answerOf((figures) => this.tokensAfter(ids, options, figures));
  }

  private async *tokensAfter(ids: readonly number[], options: GenerateOptions, figures: ChatResult): AsyncGenerator<number, void> {
    this.checkIds(ids);
    const settings = this.complete(options);
    const release = await this.lock.acquire(settings.signal);
    try {
      yield* this.tokens(ids, settings, figures, performance.now());
    } finally {
      release();
    }
  }

  /** Logits that follow the last of `ids`: f32, one per word of the vocabulary. */
  async logits(ids: readonly number[], signal?: AbortSignal): Promise<Float32Array> {
    const { logits, vocabSize } = this.plan;
    this.checkIds(ids);
    const release = await this.lock.acquire(signal);
    try {
      for (;;) {
        try {
          await this.loop.prefill(ids, signal);
          const [bytes] = await this.host.engine.step([], [{ buffer: logits, offset: 0, bytes: 4 * vocabSize }]);
          return new Float32Array((bytes as Uint8Array<ArrayBuffer>).buffer);
        } catch (error) {
          await this.recover(error, signal);
        }
      }
    } finally {
      release();
    }
  }

  /** Forgets what is in the cache; the next prompt is read as a whole. */
  clearCache(): void {
    this.loop.forget();
  }

  private complete(options: GenerateOptions): Settings {
    const { seed = crypto.getRandomValues(new Int32Array(1))[0] as number } = options;
    return { signal: undefined, speculate: 0, hiddenTokensPerSecond: Infinity, ...this.plan.defaults, ...options, seed: seed | 0 };
  }

  private checkIds(ids: readonly number[]): void {
    const {
      plan: { vocabSize },
      host: { context },
    } = this;
    if (!Array.isArray(ids) || ids.length === 0) throw badArgument("token ids must be a non-empty list.");
    for (const id of ids) {
      if (!Number.isInteger(id) || id < 0 || id >= vocabSize)
        throw badArgument(`${String(id)} is not a token id of this model (0 … ${vocabSize - 1}).`);
    }
    if (ids.length > context)
      throw new TinywebError("context-full", `${ids.length} token ids are more than the model's context of ${context}.`);
  }

  /** Tokens after `prompt` up to the end token or a limit; goes on where it was after a lost device. */
  private async *tokens(prompt: readonly number[], settings: Settings, figures: ChatResult, begun: number): AsyncGenerator<number, void> {
    const { eos } = this.plan;
    const { context } = this.host;
    const known = [...prompt];
    // The cache holds `context` positions; the token after the last of them can still be chosen.
    const limit = Math.min(prompt.length + settings.maxTokens, context + 1);
    let firstAt = 0;
    figures.promptTokens = prompt.length;
    while (known.length < limit) {
      try {
        for await (const token of this.loop.stretch(known, limit, settings)) {
          const now = performance.now();
          figures.reusedTokens = this.loop.reused;
          if (known.length === prompt.length) {
            firstAt = now;
            figures.firstTokenMs = now - begun;
          } else {
            figures.tokensPerSecond = ((known.length - prompt.length) * 1000) / (now - firstAt);
          }
          known.push(token);
          figures.answerTokens += 1;
          // The end token is not handed on by everyone who asks: what follows is not reached then.
          if (eos.includes(token)) figures.stopReason = "end";
          yield token;
          throwIfAborted(settings.signal);
          if (figures.stopReason === "end") return;
          await this.pace.wait(settings.hiddenTokensPerSecond, settings.signal);
        }
      } catch (error) {
        await this.recover(error, settings.signal);
      }
    }
    figures.stopReason = limit === context + 1 ? "context-full" : "max-tokens";
  }

  /** Replaces a lost engine, or throws what cannot be repaired. */
  private recover(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    if (!isAbort(error)) this.loop.forget();
    return this.host.recover(error, signal);
  }
}

async function stream(answer: Answer<ChatPart | number>, post: (part: WirePart) => void): Promise<void> {
  const tell = (part?: ChatPart | number): void => {
    const figures = { ...answer.progress };
    post(part === undefined ? { figures } : { part, figures });
  };
  try {
    for await (const part of answer) tell(part);
  } finally {
    tell();
  }
}

async function openTokenizer(host: ModelHost, signal: AbortSignal): Promise<ChatTokenizer> {
  const { files, begin } = host.manifest.chat as ChatPlan;
  const { tokenizer, tokenizerConfig, chatTemplate } = files;
  const json = async (name: string, read?: typeof readTokenizer): Promise<Record<string, unknown>> =>
    parseJson(await host.fetch(name, signal), name, read) as Record<string, unknown>;
  const template = chatTemplate === undefined ? undefined : host.fetch(chatTemplate, signal);
  const [content, config, text] = await Promise.all([json(tokenizer, readTokenizer), json(tokenizerConfig), template]);
  return new ChatTokenizer(content, config, text && new TextDecoder().decode(text), begin);
}
