/**
 * The loop of a chat (docs/bundle.md, "How a chat runs"): reads a prompt in blocks, then decodes. What is in the KV cache is
 * known by its ids; steps that ran too far only leave something behind what is counted, which is written over later. A state
 * cannot go back: no step runs too far, and a text that does not go on where the state stands is read from its beginning.
 */

import type { Settings } from "./chat.js";
import type { Engine, Slice } from "./engine.js";
import { throwIfAborted, TinywebError } from "./errors.js";
import type { Manifest } from "./manifest.js";
import type { Block, ChatPlan } from "./tasks.js";
import { nextTask } from "./next-task.js";

/** What launching a block costs beside its positions (reading the weights above all), in positions. */
const LAUNCH_COST = 3;

/** The block to begin with so that reading `tokens` of a prompt costs least. @param blocks largest first, with one of 1 */
export function chooseBlock<Sized extends { block: number }>(blocks: readonly Sized[], tokens: number): Sized {
  const largest = blocks[0] as Sized;
  if (tokens >= largest.block) return largest;
  const costs = [0];
  let choice = largest;
  for (let n = 1; n <= tokens; n++) {
    let least = Infinity;
    for (const sized of blocks) {
      const cost = LAUNCH_COST + sized.block + (costs[Math.max(0, n - sized.block)] as number);
      if (cost < least) [least, choice] = [cost, sized];
    }
    costs.push(least);
  }
  return choice;
}

/** How long a result takes to come back from a GPU, about. */
const READ_BACK_MS = 5;

/** Steps to keep in flight so that the device has work while a result is on its way; slow steps need none beside their own. */
export function depthFor(stepMs: number, most: number): number {
  return Math.max(1, Math.min(most, 1 + Math.ceil(READ_BACK_MS / stepMs - 0.05)));
}

/** Longest and shortest end of the text that is looked for in what came before. */
const NGRAM = [4, 2] as const;

/** Prompt lookup: what followed the last place that reads like the end of `ids`, at most `count` tokens. */
export function draft(ids: readonly number[], count: number): number[] {
  for (let n = NGRAM[0]; n >= NGRAM[1]; n--) {
    for (let start = ids.length - n - 1; start >= 0; start--) {
      let same = 0;
      while (same < n && ids[start + same] === ids[ids.length - n + same]) same += 1;
      if (same === n) return ids.slice(start + n, start + n + count);
    }
  }
  return [];
}

export class Loop {
  /** Ids whose keys and values are in the cache, from position 0. */
  cached: number[] = [];
  /** Tokens of the last prompt that were still in the cache. */
  reused = 0;
  /** Tokens that a state has read; -1 while that is not known. */
  private stands = 0;
  private readonly chat: ChatPlan;
  private readonly startPos: number;
  private readonly count: number;

  /** @param engine the one in use now: it may be replaced */
  constructor(
    manifest: Manifest,
    private readonly engine: () => Engine,
  ) {
    this.chat = manifest.chat as ChatPlan;
    this.startPos = manifest.slots.get("start_pos") as number;
    this.count = manifest.slots.get("count") as number;
  }

  /** Brings the keys and values of `ids` into the cache and the logits of the last position into place. */
  async prefill(ids: readonly number[], signal: AbortSignal | undefined): Promise<void> {
    const { chat, cached } = this;
    const engine = this.engine();
    throwIfAborted(signal);
    let start = 0;
    while (start < cached.length && start < ids.length - 1 && cached[start] === ids[start]) start += 1;
    if (!chat.rewinds && start !== this.stands) start = 0;
    cached.length = start;
    this.reused = start;
    engine.write(chat.ids, 4 * start, bytesOf(Int32Array.from(ids.slice(start))));
    while (start < ids.length) {
      const { entry, block } = chooseBlock(
        chat.prefill.filter((sized) => start + sized.block <= chat.positions),
        ids.length - start,
      );
      const count = Math.min(block, ids.length - start);
      engine.setVariable(this.startPos, start);
      engine.setVariable(this.count, count);
      this.stands = -1;
      await engine.run([entry]);
      this.stands = start + count;
      for (const end = start + count; start < end; start++) cached.push(ids[start] as number);
      throwIfAborted(signal);
    }
  }

  /** Prefills `known`, then yields the tokens that follow, up to `limit` in all; the caller appends them to `known`. */
  async *stretch(known: readonly number[], limit: number, settings: Settings): AsyncGenerator<number, void> {
    const { chat, cached } = this;
    const engine = this.engine();
    await this.prefill(known, settings.signal);
    engine.write(chat.samplingF, 0, bytesOf(new Float32Array([settings.temperature, settings.topP, settings.repetitionPenalty, 0])));
    engine.write(chat.samplingI, 0, bytesOf(new Int32Array([settings.topK, settings.seed])));
    const greedy = settings.temperature === 0 && settings.repetitionPenalty === 1;
    const choose = greedy ? chat.greedy : chat.sample;
    const speculate = greedy && chat.verify ? Math.min(settings.speculate, chat.verify.block - 1) : 0;
    const most = speculate > 0 || !chat.rewinds ? 1 : engine.depth; // a guess needs to know what came last
    const pending: Promise<number[]>[] = [];
    let first = true;
    let depth = Math.min(2, most);
    let stepMs = 0;
    let before = 0;
    /** Position of the last token that is known or being computed. */
    let position = known.length - 1;
    try {
      for (;;) {
        while (pending.length < depth && position + 1 < limit) {
          const guesses = first || speculate === 0 ? [] : this.guess(known, Math.min(speculate, limit - position - 2));
          const step = guesses.length > 0 ? this.verify(position, guesses) : this.step(first ? [choose] : [chat.decode, choose], position);
          first = false;
          step.catch(() => undefined); // awaited below
          pending.push(step);
          position += 1;
        }
        const step = pending.shift();
        if (!step) return;
        const tokens = await step;
        position += tokens.length - 1;
        for (const token of tokens) {
          if (!(token >= 0 && token < chat.vocabSize)) {
            throw new TinywebError("internal", `The ${engine.backend} backend chose token ${token}, which does not exist.`);
          }
          // The step that chose this token has put the one before it into the cache.
          if (cached.length < known.length) cached.push(known[cached.length] as number);
          throwIfAborted(settings.signal);
          yield token;
        }
        const now = performance.now();
        if (before > 0) stepMs = stepMs > 0 ? 0.75 * stepMs + 0.25 * (now - before) : now - before;
        before = now;
        if (stepMs > 0) depth = depthFor(stepMs, most);
      }
    } finally {
      await Promise.allSettled(pending); // they still write into the cache, behind what is counted
    }
  }

  /** Forgets what is in the cache; the next prompt is read as a whole. */
  forget(): void {
    this.cached.length = 0;
    this.stands = 0;
  }

  private guess(known: readonly number[], count: number): number[] {
    const { block } = this.chat.verify as Block;
    return count > 0 && known.length - 1 + block <= this.chat.positions ? draft(known, count) : [];
  }

  /** The token chosen for position + 1. */
  private async step(entries: readonly string[], position: number): Promise<number[]> {
    return this.read(entries, position, 1, { buffer: this.chat.ids, offset: 4 * (position + 1), bytes: 4 });
  }

  /** The guesses that are right, and the token after them; what is written to `ids` is as without guessing. */
  private async verify(position: number, guesses: number[]): Promise<number[]> {
    const { ids, verify } = this.chat;
    const { entry, block, tokens } = verify as NonNullable<ChatPlan["verify"]>;
    const engine = this.engine();
    engine.write(ids, 4 * (position + 1), bytesOf(Int32Array.from(guesses)));
    const said = await this.read([entry], position, block, { buffer: tokens, offset: 0, bytes: 4 * (guesses.length + 1) });
    const wrong = guesses.findIndex((guess, i) => guess !== said[i]);
    const right = said.slice(0, wrong < 0 ? said.length : wrong + 1);
    engine.write(ids, 4 * (position + right.length), bytesOf(Int32Array.of(right.at(-1) as number)));
    return right;
  }

  /** What a step of `count` positions left there. */
  private async read(entries: readonly string[], position: number, count: number, slice: Slice): Promise<number[]> {
    const engine = this.engine();
    engine.setVariable(this.startPos, position);
    engine.setVariable(this.count, count);
    const stands = entries.includes(this.chat.decode) ? position + 1 : this.stands;
    this.stands = -1;
    const [bytes] = await engine.step(entries, [slice]);
    this.stands = stands;
    if (engine.depth === 1) await nextTask(); // a cancellation must get in between two tokens
    return [...new Int32Array((bytes as Uint8Array<ArrayBuffer>).buffer)];
  }
}

function bytesOf(array: Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  return new Uint8Array(array.buffer);
}
