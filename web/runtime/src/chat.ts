/**
 * The chat itself, as docs/bundle.md ("How a chat runs") tells it: prefill, sample, decode. What is in the KV cache is
 * known by its ids, so a new turn starts behind the common beginning, and a lost device costs only a new prefill.
 */

import type { Fallback } from "./backend.js";
import type { Backend } from "./engine.js";
import { asTinywebError, throwIfAborted, TinywebError } from "./errors.js";
import { fitMessages } from "./fit.js";
import type { ModelHost } from "./host.js";
import { Lock } from "./lock.js";
import { checkIds, checkMessages, completeOptions, type GenerateOptions, type Settings } from "./options.js";
import type { Message } from "./tokenizer.js";

export interface ChatPart {
  /** The next piece of the answer; empty while a character is incomplete. */
  text: string;
  /** The token that completed it. */
  token: number;
}

export type StopReason = "end" | "max-tokens" | "context-full" | "aborted";

export interface ChatInfo {
  /** The model's name. */
  model: string;
  backend: Backend;
  /** The GPU's name, or the number of CPU threads. */
  adapter: string;
  /** Decoding speed of the last answer; 0 before the first. */
  tokensPerSecond: number;
  /** From the call to the first token of the last answer, in milliseconds; 0 before the first. */
  firstTokenMs: number;
  /** Bytes held on the device or in WASM memory: weights, state and temporaries. */
  memoryBytes: number;
  /** Bytes of the weights. */
  modelBytes: number;
  kernelsPerToken: number;
  /** Backends that were passed over, and why. */
  fallbacks: Fallback[];
  /** Tokens the model can see at once. */
  context: number;
  /** Tokens of the last prompt. */
  promptTokens: number;
  /** Tokens of the last prompt that were still in the cache. */
  reusedTokens: number;
  /** How many of the oldest messages the last answer had to leave out. */
  droppedMessages: number;
  /** Why the last answer ended. */
  stopReason: StopReason | undefined;
}

/** A GPU that failed is replaced; anything else is the caller's to know. */
const RECOVERABLE = new Set(["device-lost", "gpu-error"]);

export class ChatSession {
  private readonly lock = new Lock();
  /** Ids whose keys and values are in the cache, from position 0. */
  private cached: number[] = [];
  private readonly last = {
    tokensPerSecond: 0,
    firstTokenMs: 0,
    promptTokens: 0,
    reusedTokens: 0,
    droppedMessages: 0,
    stopReason: undefined as StopReason | undefined,
  };

  constructor(private readonly host: ModelHost) {}

  get info(): ChatInfo {
    const { manifest, engine, fallbacks } = this.host;
    return {
      model: manifest.name,
      backend: engine.backend,
      adapter: engine.adapter,
      memoryBytes: engine.memoryBytes,
      modelBytes: manifest.weights.bytes,
      kernelsPerToken: engine.kernelsPerToken,
      fallbacks: [...fallbacks],
      context: manifest.model.context,
      ...this.last,
    };
  }

  /** Tokens of a conversation as the model would read it. */
  countTokens(messages: readonly Message[]): number {
    checkMessages(messages);
    return this.host.tokenizer.encodeChat(messages).length;
  }

  /** The assistant's answer, piece by piece. */
  async *generate(messages: readonly Message[], options: GenerateOptions = {}): AsyncGenerator<ChatPart, void> {
    checkMessages(messages);
    const { manifest, tokenizer } = this.host;
    const settings = completeOptions(options, manifest.chat.defaults);
    const release = await this.lock.acquire(settings.signal);
    try {
      const { ids, dropped } = fitMessages(messages, manifest.model.context, settings.maxTokens, (some) => tokenizer.encodeChat(some));
      this.last.droppedMessages = dropped;
      const detokenizer = tokenizer.detokenizer();
      let last = -1;
      for await (const token of this.tokens(ids, settings)) {
        if (manifest.chat.eos.includes(token)) break;
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
  async *generateIds(ids: readonly number[], options: GenerateOptions = {}): AsyncGenerator<number, void> {
    const { manifest } = this.host;
    checkIds(ids, manifest.model);
    const settings = completeOptions(options, manifest.chat.defaults);
    const release = await this.lock.acquire(settings.signal);
    try {
      this.last.droppedMessages = 0;
      yield* this.tokens(ids, settings);
    } finally {
      release();
    }
  }

  /** Logits that follow the last of `ids`: f32, one per word of the vocabulary. */
  async logits(ids: readonly number[], signal?: AbortSignal): Promise<Float32Array> {
    const { manifest } = this.host;
    checkIds(ids, manifest.model);
    const release = await this.lock.acquire(signal);
    try {
      for (;;) {
        try {
          await this.prefill(ids, signal);
          return await this.host.engine.readFloats(manifest.chat.logits, manifest.model.vocabSize);
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
    this.cached = [];
  }

  /** Tokens after `prompt` up to the end token or a limit; goes on where it was after a lost device. */
  private async *tokens(prompt: readonly number[], settings: Settings): AsyncGenerator<number, void> {
    const { context } = this.host.manifest.model;
    const { eos } = this.host.manifest.chat;
    const known = [...prompt];
    // The cache holds `context` positions; the token after the last of them can still be chosen.
    const limit = Math.min(prompt.length + settings.maxTokens, context + 1);
    const begun = performance.now();
    let firstAt = 0;
    let ended: StopReason = "aborted";
    this.last.promptTokens = prompt.length;
    this.last.stopReason = undefined;
    try {
      while (known.length < limit) {
        try {
          for await (const token of this.stretch(known, limit, settings)) {
            const now = performance.now();
            if (known.length === prompt.length) {
              firstAt = now;
              this.last.firstTokenMs = now - begun;
            } else {
              this.last.tokensPerSecond = ((known.length - prompt.length) * 1000) / (now - firstAt);
            }
            known.push(token);
            if (eos.includes(token)) ended = "end";
            yield token;
            throwIfAborted(settings.signal);
            if (ended === "end") return;
          }
        } catch (error) {
          await this.recover(error, settings.signal);
        }
      }
      ended = limit === context + 1 ? "context-full" : "max-tokens";
    } finally {
      this.last.stopReason = ended;
    }
  }

  /** Prefills `known`, then yields the tokens that follow; the caller appends them to `known`. */
  private async *stretch(known: readonly number[], limit: number, settings: Settings): AsyncGenerator<number, void> {
    const { chat, slots, model } = this.host.manifest;
    const { engine } = this.host;
    await this.prefill(known, settings.signal);
    engine.write(chat.samplingF, 0, bytesOf(new Float32Array([settings.temperature, settings.topP, settings.repetitionPenalty, 0])));
    engine.write(chat.samplingI, 0, bytesOf(new Int32Array([settings.topK, settings.seed])));
    const choose = settings.temperature === 0 && settings.repetitionPenalty === 1 ? chat.greedy : chat.sample;
    const startPos = slots.get("start_pos") as number;
    engine.setVariable(slots.get("count") as number, 1);
    const pending: Promise<number>[] = [];
    /** Position of the last token that is known or being computed. */
    let position = known.length - 1;
    try {
      for (let sampled = false; ; sampled = true) {
        // Where results come late, the next step is queued before the last one's token is here.
        while (pending.length < engine.depth && position + 1 < limit) {
          engine.setVariable(startPos, position);
          const step = engine.step(sampled || pending.length > 0 ? [chat.decode, choose] : [choose], chat.ids, position + 1);
          step.catch(() => undefined); // awaited below
          pending.push(step);
          position += 1;
        }
        const step = pending.shift();
        if (!step) return;
        const token = await step;
        if (!(token >= 0 && token < model.vocabSize)) {
          throw new TinywebError("internal", `The ${engine.backend} backend chose token ${token}, which does not exist.`);
        }
        // The step that chose this token has put the one before it into the cache.
        if (sampled) this.cached.push(known[this.cached.length] as number);
        throwIfAborted(settings.signal);
        yield token;
      }
    } finally {
      await Promise.allSettled(pending); // they still write into the cache, behind what is counted
    }
  }

  /** Brings the keys and values of `ids` into the cache and the logits of the last position into place. */
  private async prefill(ids: readonly number[], signal: AbortSignal | undefined): Promise<void> {
    const { chat, slots } = this.host.manifest;
    const { engine } = this.host;
    throwIfAborted(signal);
    let start = 0;
    while (start < this.cached.length && start < ids.length - 1 && this.cached[start] === ids[start]) start += 1;
    this.cached.length = start;
    this.last.reusedTokens = start;
    engine.write(chat.ids, 4 * start, bytesOf(Int32Array.from(ids.slice(start))));
    while (start < ids.length) {
      const { entry, block } = chooseBlock(chat.prefill, ids.length - start);
      const count = Math.min(block, ids.length - start);
      engine.setVariable(slots.get("start_pos") as number, start);
      engine.setVariable(slots.get("count") as number, count);
      engine.run(entry);
      for (const end = start + count; start < end; start++) this.cached.push(ids[start] as number);
      await engine.turn();
      throwIfAborted(signal);
    }
  }

  /** Replaces a lost engine, or throws what cannot be repaired. */
  private async recover(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    const cause = asTinywebError(error);
    if (cause.code !== "aborted") this.cached = [];
    if (!RECOVERABLE.has(cause.code)) throw cause;
    await this.host.recover(cause, signal);
  }
}

/** The largest block of which more than half is used, else the smallest. */
export function chooseBlock<Block extends { block: number }>(blocks: readonly Block[], tokens: number): Block {
  return blocks.find(({ block }) => block < 2 * tokens) ?? (blocks.at(-1) as Block);
}

function bytesOf(array: Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return new Uint8Array(array.buffer);
}

