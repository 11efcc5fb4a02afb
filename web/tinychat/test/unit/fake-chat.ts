/** A page's state around a model made of promises, without any interface. */

import { Shell, MemoryStore, type BackendChoice, type LoadOptions, type ModelModule } from "tinyweb-shell";
import { ChatApp } from "../../src/app/chat-app";
import { displayName, parseFacts } from "../../src/app/facts";
import type { Answer, AnswerFigures, AnswerPart, Chat, GenerateOptions, PromptMessage } from "../../src/model-api";
import { parseSettings, type Settings } from "../../src/store/settings";
import { FAKE_INFO } from "./fake-info";

export function failure(code: string, message = `failed with ${code}`): Error {
  return Object.assign(new Error(message), { code });
}

/** Lets everything that can run, run. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 30; i++) await Promise.resolve();
  await new Promise((resolve) => setTimeout(resolve, 0));
}

export type Step = string | Error | "wait";

export class FakeChat implements Chat {
  info = FAKE_INFO;
  /** What an answer's figures are when it has ended. */
  ended: AnswerFigures = { tokensPerSecond: 50, firstTokenMs: 9, droppedMessages: 0, stopReason: "end" };
  readonly prompts: PromptMessage[][] = [];
  readonly options: GenerateOptions[] = [];
  readonly listeners = new Map<string, (detail?: unknown) => void>();
  disposed = false;
  /** What the coming answers do; after the last, each is "Yes." */
  answers: Step[][] = [];
  release: () => void = () => undefined;

  generate(messages: PromptMessage[], options: GenerateOptions = {}): Answer {
    const progress: AnswerFigures = { tokensPerSecond: 0, firstTokenMs: 0, droppedMessages: 0, stopReason: "aborted" };
    return Object.assign(this.parts(messages, options, progress), { progress });
  }

  private async *parts(messages: PromptMessage[], options: GenerateOptions, progress: AnswerFigures): AsyncGenerator<AnswerPart, void> {
    this.prompts.push(structuredClone(messages));
    this.options.push(options);
    for (const step of this.answers.shift() ?? ["Yes."]) {
      if (step === "wait") await new Promise<void>((resolve) => (this.release = resolve));
      else if (step instanceof Error) throw step;
      else {
        if (options.signal?.aborted === true) throw failure("aborted");
        yield { text: step, token: 1 };
        progress.tokensPerSecond = 20;
      }
    }
    Object.assign(progress, this.ended);
  }

  on: Chat["on"] = (event, listener) => {
    this.listeners.set(event, listener as () => void);
    return () => this.listeners.delete(event);
  };

  async dispose(): Promise<void> {
    this.disposed = true;
  }
}

export interface Bench {
  app: ChatApp;
  chats: FakeChat[];
  loads: LoadOptions[];
  storage: MemoryStore;
  /** What the coming loads do; after the last, each gives a new FakeChat. */
  outcomes: (Error | "wait" | FakeChat)[];
  release(): void;
  /** The newest loaded model. */
  chat(): FakeChat;
  last(): { role: string; text: string; ending: string; problem?: string } | undefined;
}

export function bench(options: { storage?: MemoryStore; address?: BackendChoice; info?: unknown } = {}): Bench {
  const storage = options.storage ?? new MemoryStore();
  const chats: FakeChat[] = [];
  const loads: LoadOptions[] = [];
  const outcomes: Bench["outcomes"] = [];
  let release = (): void => undefined;
  let id = 0;
  let time = 1000;
  const module: ModelModule<Chat> = {
    info: options.info,
    async load(given = {}) {
      loads.push(given);
      const outcome = outcomes.shift() ?? new FakeChat();
      given.onProgress?.({ phase: "weights", loadedBytes: 1, totalBytes: 4, fromCache: false });
      if (outcome === "wait") await new Promise<void>((resolve) => (release = resolve));
      if (outcome instanceof Error) throw outcome;
      if (given.signal?.aborted === true) throw failure("aborted");
      const chat = outcome === "wait" ? new FakeChat() : outcome;
      chats.push(chat);
      return chat;
    },
  };
  const nextFrame = (callback: () => void): void => queueMicrotask(callback);
  const shell = new Shell<Chat, Settings>(
    {
      app: "tinychat",
      title: (facts) => displayName(parseFacts(facts)),
      words: { kept: "your conversation is kept", next: "your next message" },
      parseSettings,
    },
    {
      storage,
      importModel: async () => module,
      addressBackend: options.address ?? null,
      forgetAddressBackend: () => undefined,
      online: () => true,
      nextFrame,
      ticks: () => time,
    },
  );
  const app = new ChatApp({
    shell,
    now: () => ++time,
    ticks: () => time,
    newId: () => `id${++id}-${storage.keys().length}`,
    newSeed: () => 7,
    nextFrame,
  });
  return {
    app,
    chats,
    loads,
    storage,
    outcomes,
    release: () => release(),
    chat: () => chats.at(-1) as FakeChat,
    last: () => app.state.conversation.messages.at(-1),
  }; // prettier-ignore
}
