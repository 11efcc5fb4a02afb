/**
 * Two pages over one storage, whose writes reach each other late and one by one, as those of two processes do: whatever
 * they do, in whatever order, nothing that was said is lost, and in the end both show the same.
 */

import { LocalStore, Shell } from "tinyweb-shell";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { ChatApp } from "../../src/app/chat-app";
import type { Answer, AnswerFigures, AnswerPart, Chat, GenerateOptions, PromptMessage } from "../../src/model-api";
import { ConversationStore, type Message } from "../../src/store/conversations";
import { parseSettings, type Settings } from "../../src/store/settings";
import { FAKE_INFO } from "./fake-info";

/** Mulberry32: the same numbers for the same seed. */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

interface Write {
  by: object;
  key: string;
  /** Null removes. */
  value: string | null;
}

function apply(map: Map<string, string>, { key, value }: Write): void {
  if (value === null) map.delete(key);
  else map.set(key, value);
}

/** What one tab sees of the storage: what has reached it of the order that all writes have, and its own writes on top of that. */
class TabStorage {
  private readonly base = new Map<string, string>();
  private view = new Map<string, string>();
  private listed: string[] | undefined;
  private seen = 0;
  /** Own writes that have not come back, and how many of them are in `order`. */
  private own: Write[] = [];
  private sent = 0;

  constructor(private readonly order: Write[]) {
    this.receive(Infinity);
  }

  get length(): number {
    return this.view.size;
  }

  key(index: number): string | null {
    this.listed ??= [...this.view.keys()];
    return this.listed[index] ?? null;
  }

  getItem(key: string): string | null {
    return this.view.get(key) ?? null;
  }

  setItem(key: string, value: string): void {
    this.write(key, value);
  }

  removeItem(key: string): void {
    if (this.view.has(key)) this.write(key, null);
  }

  clear(): void {
    for (const key of [...this.view.keys()]) this.removeItem(key);
  }

  private write(key: string, value: string | null): void {
    const write = { by: this, key, value };
    this.own.push(write);
    this.listed = undefined;
    apply(this.view, write);
  }

  send(count: number): void {
    const going = this.own.slice(this.sent, this.sent + count);
    this.order.push(...going);
    this.sent += going.length;
  }

  /** Returns whether something of another tab was among it. */
  receive(count: number): boolean {
    const news = this.order.slice(this.seen, this.seen + count);
    this.seen += news.length;
    for (const write of news) {
      apply(this.base, write);
      if (write.by !== this) continue;
      this.own.shift();
      this.sent--;
    }
    this.listed = undefined;
    this.view = new Map(this.base);
    for (const write of this.own) apply(this.view, write);
    return news.some(({ by }) => by !== this);
  }

  get content(): Record<string, string> {
    return Object.fromEntries([...this.view].sort(([a], [b]) => (a < b ? -1 : 1)));
  }
}

/** Says what the test lets it say. */
class Prompted implements Chat {
  readonly info = FAKE_INFO;
  next: (text: string | null) => void = () => undefined;

  generate(_: readonly PromptMessage[], options?: GenerateOptions | null): Answer {
    const progress: AnswerFigures = { tokensPerSecond: 0, firstTokenMs: 0, droppedMessages: 0, stopReason: "end" };
    return Object.assign(this.parts(options?.signal), { progress });
  }

  private async *parts(signal?: AbortSignal | null): AsyncGenerator<AnswerPart, void> {
    for (;;) {
      const text = await new Promise<string | null>((resolve) => {
        this.next = resolve;
        signal?.addEventListener("abort", () => resolve(null));
      });
      if (signal?.aborted === true) throw Object.assign(new Error("aborted"), { code: "aborted" });
      if (text === null) return;
      yield { text, token: 1 };
    }
  }

  on: Chat["on"] = () => () => undefined;
  async dispose(): Promise<void> {}
}

async function settle(): Promise<void> {
  for (let i = 0; i < 40; i++) await Promise.resolve();
}

const FOLDER = "tinychat:/:";

interface Said {
  conversation: string;
  message: Message;
  /** Ids of the messages that were seen when it was said. */
  after: string[];
}

class World {
  time = 1_000_000;
  ids = 0;
  readonly order: Write[] = [];
  readonly said: Said[] = [];
  readonly removed = new Set<string>();
  /** Messages of the readers that were asked to be answered anew. */
  readonly anew = new Set<string>();

  get stored(): ConversationStore {
    return new ConversationStore(new LocalStore(new TabStorage(this.order), FOLDER));
  }
}

class Tab {
  storage!: TabStorage;
  app!: ChatApp;
  chat = new Prompted();

  constructor(private readonly world: World) {}

  async open(): Promise<void> {
    const { world } = this;
    this.storage = new TabStorage(world.order);
    this.chat = new Prompted();
    const { chat } = this;
    const nextFrame = (callback: () => void): void => queueMicrotask(callback);
    const shell = new Shell<Chat, Settings>(
      { app: "tinychat", title: () => "TinyChat", words: { kept: "kept", next: "next" }, parseSettings },
      {
        storage: new LocalStore(this.storage, FOLDER),
        importModel: async () => ({ info: undefined, load: async () => chat }),
        addressBackend: null,
        forgetAddressBackend: () => undefined,
        online: () => true,
        nextFrame,
        ticks: () => world.time,
      },
    );
    this.app = new ChatApp({
      shell,
      now: () => world.time,
      ticks: () => world.time,
      newId: () => `id${world.ids++}`,
      newSeed: () => 7,
      nextFrame,
    });
    await this.app.shell.model.load();
  }

  send(text: string): void {
    if (!this.app.send(text)) return;
    const { id, messages } = this.app.state.conversation;
    const at = messages.findIndex((message) => message.text === text);
    this.world.said.push({ conversation: id, message: messages[at] as Message, after: messages.slice(0, at).map((message) => message.id) });
  }

  regenerate(): void {
    this.app.regenerate();
    const { messages } = this.app.state.conversation;
    const answer = messages.find(({ id }) => id === this.app.state.answering?.messageId);
    if (answer?.to !== undefined) this.world.anew.add(answer.to);
  }

  remove(id: string): void {
    this.app.remove(id);
    this.world.removed.add(id);
  }

  /** Does something after which an answer has ended, and notes what it was. */
  async ends(act: () => void | Promise<void>): Promise<void> {
    const { conversation, answering } = this.app.state;
    await act();
    const { messages } = this.app.state.conversation.id === conversation.id ? this.app.state.conversation : conversation;
    const message = messages.find(({ id }) => id === answering?.messageId);
    if (message !== undefined && this.app.state.answering?.messageId !== message.id) {
      this.world.said.push({ conversation: conversation.id, message, after: [] });
    }
  }

  receive(count: number): void {
    if (this.storage.receive(count)) this.app.changedElsewhere();
  }

  async close(): Promise<void> {
    this.app.save();
    const { conversation, answering } = this.app.state;
    const message = conversation.messages.find(({ id }) => id === answering?.messageId);
    if (message !== undefined) this.world.said.push({ conversation: conversation.id, message, after: [] });
    this.app.forgetRemoved();
    this.storage.send(Infinity);
  }
}

async function everythingArrives(tabs: readonly Tab[]): Promise<void> {
  for (let round = 0; round < 3; round++) {
    for (const { storage } of tabs) storage.send(Infinity);
    for (const tab of tabs) tab.receive(Infinity);
    await settle();
  }
}

async function interleave(seed: number): Promise<World> {
  const random = randomOf(seed);
  const world = new World();
  const tabs = [new Tab(world), new Tab(world)] as const;
  for (const tab of tabs) {
    await tab.open();
    if (world.order.length > 0) continue;
    tab.send(`beginning of ${seed}`);
    await settle();
    tab.storage.send(Infinity);
  }
  for (let step = 0; step < 60; step++) {
    const tab = tabs[random(2)] as Tab;
    const { app, chat, storage } = tab;
    const { history } = app.state;
    const some = history[random(Math.max(1, history.length))]?.id ?? "";
    world.time += random(700);
    switch (random(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
        tab.send(`said ${step}`);
        break;
      case 4:
      case 5:
      case 6:
        chat.next(`word ${step} `);
        break;
      case 7:
      case 8:
        await tab.ends(async () => {
          chat.next(null);
          await settle();
        });
        break;
      case 9:
        await tab.ends(() => app.stop());
        break;
      case 10:
        tab.regenerate();
        break;
      case 11:
        if (random(3) === 0) await tab.ends(() => app.newChat());
        else await tab.ends(() => app.open(some));
        break;
      case 12:
        if (random(2) === 0) {
          // One reader does not delete the same thing twice before the tabs know of each other.
          if (world.removed.has(some)) await everythingArrives(tabs);
          if (app.state.history.some(({ id }) => id === some)) await tab.ends(() => tab.remove(some));
        }
        break;
      case 13:
      case 14:
        await tab.ends(() => app.undoRemove());
        break;
      case 15:
        // Seconds later; by then tabs know of each other.
        await everythingArrives(tabs);
        for (const each of tabs) each.app.forgetRemoved();
        break;
      case 16:
        if (random(3) === 0) {
          if (app.state.deleted !== null) await everythingArrives(tabs);
          await tab.close();
          await tab.open();
        } else if (random(2) === 0) world.time -= 5000; // the clock was set
        break;
      case 17:
        storage.send(random(5));
        break;
      default:
        storage.send(Infinity);
        tab.receive(random(8));
    }
    await settle();
  }
  for (const tab of tabs) await tab.ends(() => tab.app.stop());
  await everythingArrives(tabs);
  check(world, tabs);
  return world;
}

function check(world: World, tabs: readonly Tab[]): void {
  const { stored } = world;
  const content = new TabStorage(world.order).content;
  for (const { app, storage } of tabs) {
    expect(storage.content).toEqual(content);
    expect(app.state.history).toEqual(stored.list());
    const { id, messages } = app.state.conversation;
    expect(messages).toEqual(stored.get(id)?.messages ?? []);
  }
  for (const { conversation, message, after } of world.said) {
    const kept = stored.get(conversation);
    if (kept === undefined) {
      expect(world.removed).toContain(conversation);
      continue;
    }
    const ids = kept.messages.map(({ id }) => id);
    const at = ids.indexOf(message.id);
    if (message.to === undefined) {
      expect(kept.messages[at]?.text).toBe(message.text);
      for (const earlier of after) if (ids.includes(earlier)) expect(ids.indexOf(earlier)).toBeLessThan(at);
    } else {
      const shown = kept.messages[ids.indexOf(message.to) + 1];
      if (shown?.id === message.id) expect(shown.text.startsWith(message.text)).toBe(true);
      else {
        // It was replaced, as the reader wished.
        expect(world.anew).toContain(message.to);
        expect(shown?.to).toBe(message.to);
      }
    }
  }
}

// Each of a thousand pages would tell how long it took to load.
beforeAll(() => void vi.spyOn(console, "info").mockReturnValue(undefined));
afterAll(() => void vi.restoreAllMocks());

describe("two tabs", () => {
  test("lose nothing, and agree, in 1000 interleavings", async () => {
    const seen = { said: 0, answers: 0, anew: 0, removed: 0 };
    for (let seed = 0; seed < 1000; seed++) {
      const { said, anew, removed } = await interleave(seed).catch((error: Error) => {
        error.message = `interleaving ${seed}: ${error.message}`;
        throw error;
      });
      seen.said += said.filter(({ message }) => message.role === "user").length;
      seen.answers += said.filter(({ message }) => message.role === "assistant" && message.text !== "").length;
      seen.anew += anew.size;
      seen.removed += removed.size;
    }
    // That things happened at all.
    for (const count of Object.values(seen)) expect(count).toBeGreaterThan(300);
  }, 300_000);
});
