/** The page's conduct with a model made of promises, without any interface. */

import { describe, expect, test } from "vitest";
import { MemoryStore, Shell, type BackendChoice, type LoadOptions, type ModelModule } from "tinyweb-shell";
import { ChatApp, isEmptyAnswer, promptMessages } from "../../src/app/chat-app";
import { displayName, parseFacts } from "../../src/app/facts";
import type { Answer, AnswerFigures, AnswerPart, Chat, GenerateOptions, PromptMessage } from "../../src/model-api";
import type { Message } from "../../src/store/conversations";
import { parseSettings, type Settings } from "../../src/store/settings";
import { FAKE_INFO } from "./fake-info";

function failure(code: string, message = `failed with ${code}`): Error {
  return Object.assign(new Error(message), { code });
}

/** Lets everything that can run, run. */
async function settle(): Promise<void> {
  for (let i = 0; i < 30; i++) await Promise.resolve();
  await new Promise((resolve) => setTimeout(resolve, 0));
}

type Step = string | Error | "wait";

class FakeChat implements Chat {
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

interface Bench {
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

function bench(options: { storage?: MemoryStore; address?: BackendChoice; info?: unknown } = {}): Bench {
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

describe("loading", () => {
  test("goes from loading to ready and tells the progress", async () => {
    const { app, outcomes, release, loads } = bench();
    outcomes.push("wait");
    const loaded = app.shell.model.load();
    await settle();
    expect(app.pageState).toBe("loading");
    expect(app.state.engine).toMatchObject({ phase: "loading", progress: { loadedBytes: 1, totalBytes: 4 } });
    release();
    await loaded;
    expect(app.pageState).toBe("ready");
    expect(loads[0]?.backend).toBe("auto");
  });

  test("that fails can be tried again", async () => {
    const { app, outcomes } = bench();
    outcomes.push(failure("hash-mismatch"));
    await app.shell.model.load();
    expect(app.pageState).toBe("error");
    expect(app.state.engine).toMatchObject({ failure: { code: "hash-mismatch", detail: "failed with hash-mismatch" } });
    await app.shell.model.load();
    expect(app.pageState).toBe("ready");
  });

  test("goes on by itself when the network is back, but only then", async () => {
    const { app, outcomes, loads } = bench();
    outcomes.push(failure("out-of-memory"));
    await app.shell.model.load();
    app.shell.model.cameOnline();
    await settle();
    expect(loads).toHaveLength(1);
    outcomes.push(failure("download-failed"));
    await app.shell.model.load();
    app.shell.model.cameOnline();
    await settle();
    expect(app.pageState).toBe("ready");
  });

  test("a newer load wins over an older one", async () => {
    const { app, outcomes, release, chats, loads } = bench();
    outcomes.push("wait");
    const first = app.shell.model.load();
    await settle();
    app.changeSettings({ backend: "wasm" });
    await settle();
    expect(loads.map(({ backend }) => backend)).toEqual(["auto", "wasm"]);
    expect(loads[0]?.signal?.aborted).toBe(true);
    release();
    await first;
    expect(app.pageState).toBe("ready");
    expect(chats).toHaveLength(1);
  });

  test("the address goes before the setting, until the reader chooses", async () => {
    const { app, loads, chats } = bench({ address: "wasm-single" });
    await app.shell.model.load();
    app.changeSettings({ temperature: 0.2 });
    await settle();
    app.changeSettings({ backend: "webgpu" });
    await settle();
    expect(loads.map(({ backend }) => backend)).toEqual(["wasm-single", "webgpu"]);
    expect(chats[0]?.disposed).toBe(true);
  });
});

describe("talking", () => {
  test("sends the system prompt and all that was said", async () => {
    const { app, chat, last } = bench();
    await app.shell.model.load();
    app.changeSettings({ system: "  Be kind. ", temperature: 0 });
    expect(app.send("  Hello  ")).toBe(true);
    await settle();
    expect(last()).toMatchObject({ role: "assistant", text: "Yes.", ending: "done", stats: { tokens: 1, tokensPerSecond: 50 } });
    app.send("Again");
    await settle();
    expect(chat().prompts[1]).toEqual([
      { role: "system", content: "Be kind." },
      { role: "user", content: "Hello" },
      { role: "assistant", content: "Yes." },
      { role: "user", content: "Again" },
    ]);
    expect(chat().options[0]).toMatchObject({ temperature: 0, topP: 0.95, maxTokens: 256, seed: 7 });
  });

  test("takes the model's own defaults where nothing is set", async () => {
    const { app, chat } = bench({ info: { name: "m", defaults: { temperature: 0.3, maxTokens: 99 } } });
    await app.shell.model.load();
    app.changeSettings({ topP: 0.5 });
    app.send("x");
    await settle();
    expect(chat().options[0]).toMatchObject({ temperature: 0.3, topP: 0.5, maxTokens: 99 });
  });

  test("samples when answering again, unless the reader has set a temperature", async () => {
    const { app, chat } = bench({ info: { defaults: { temperature: 0 } } });
    await app.shell.model.load();
    app.send("x");
    await settle();
    app.regenerate();
    await settle();
    app.send("y");
    await settle();
    app.changeSettings({ temperature: 0 });
    app.regenerate();
    await settle();
    expect(chat().options.map(({ temperature }) => temperature)).toEqual([0, 0.7, 0, 0]);
  });

  test("sends nothing that is empty, and nothing while it answers", async () => {
    const { app, chat } = bench();
    await app.shell.model.load();
    expect(app.send("  \n ")).toBe(false);
    chat().answers.push(["a", "wait"]);
    app.send("one");
    await settle();
    expect(app.pageState).toBe("generating");
    expect(app.send("two")).toBe(false);
    app.regenerate();
    expect(chat().prompts).toHaveLength(1);
  });

  test("waits for the model, and answers when it is ready", async () => {
    const { app, outcomes, release, last } = bench();
    outcomes.push("wait");
    void app.shell.model.load();
    app.send("Hello");
    expect(app.state.queued).toBe(true);
    expect(app.send("and again")).toBe(false);
    await settle();
    release();
    await settle();
    expect(app.state.queued).toBe(false);
    expect(last()).toMatchObject({ role: "assistant", text: "Yes." });
  });

  test("a message that waits survives a failed load; sending after one tries again", async () => {
    const { app, outcomes, last } = bench();
    outcomes.push(failure("download-failed"));
    const loading = app.shell.model.load();
    app.send("Hello");
    await loading;
    expect(app.pageState).toBe("error");
    expect(app.state.queued).toBe(true);
    await app.shell.model.load();
    await settle();
    expect(last()?.text).toBe("Yes.");

    const other = bench();
    other.outcomes.push(failure("download-failed"));
    await other.app.shell.model.load();
    other.app.send("Hello");
    await settle();
    expect(other.last()?.text).toBe("Yes.");
  });

  test("stops at once and keeps what there is", async () => {
    const { app, chat, last } = bench();
    await app.shell.model.load();
    chat().answers.push(["One ", "wait", "two"]);
    app.send("Count");
    await settle();
    app.stop();
    expect(app.pageState).toBe("ready");
    expect(last()).toMatchObject({ text: "One ", ending: "stopped" });
    expect(chat().options[0]?.signal?.aborted).toBe(true);
    // The next answer waits until the model has really stopped, and what comes late is not shown.
    app.send("Next");
    await settle();
    expect(chat().prompts).toHaveLength(1);
    chat().release();
    await settle();
    expect(chat().prompts).toHaveLength(2);
    expect(app.state.conversation.messages.map(({ text }) => text)).toEqual(["Count", "One ", "Next", "Yes."]);
  });

  test("stops waiting, too", async () => {
    const { app, outcomes, release, last } = bench();
    outcomes.push("wait");
    void app.shell.model.load();
    app.send("Hello");
    app.stop();
    await settle();
    release();
    await settle();
    expect(last()?.role).toBe("user");
    app.regenerate();
    await settle();
    expect(last()?.text).toBe("Yes.");
  });

  test("answers again in place of the last answer", async () => {
    const { app, chat } = bench();
    await app.shell.model.load();
    chat().answers.push(["First."]);
    app.send("Hello");
    await settle();
    app.regenerate();
    await settle();
    expect(app.state.conversation.messages.map(({ text }) => text)).toEqual(["Hello", "Yes."]);
    expect(chat().prompts[1]).toEqual([{ role: "user", content: "Hello" }]);
  });

  test.each([
    ["max-tokens", "length"],
    ["context-full", "context"],
    ["end", "done"],
  ] as const)("tells that an answer ended by %s", async (stopReason, ending) => {
    const { app, chat, last } = bench();
    await app.shell.model.load();
    Object.assign(chat().ended, { stopReason, droppedMessages: 2 });
    app.send("Hello");
    await settle();
    expect(last()?.ending).toBe(ending);
    expect(app.state.forgotten).toBe(2);
    expect(app.state.figures).toMatchObject({ tokensPerSecond: 50, firstTokenMs: 9 });
    app.newChat();
    expect(app.state.forgotten).toBe(0);
  });

  test("an error ends the answer, not the page", async () => {
    const { app, chat, last } = bench();
    await app.shell.model.load();
    chat().answers.push(["So ", failure("gpu-error")]);
    app.send("Hello");
    await settle();
    expect(last()).toMatchObject({ text: "So ", ending: "failed", stats: { tokens: 1, tokensPerSecond: 20 } }); // as far as it came
    expect(last()?.problem).toMatch(/^The GPU reported an error\./u);
    expect(app.pageState).toBe("ready");
    app.regenerate();
    await settle();
    expect(last()).toMatchObject({ text: "Yes.", ending: "done" });
    expect(last()).not.toHaveProperty("problem");
  });

  test.each([
    ["message", 104, "This message is too long by about 104 tokens for what the model can hold. Shorten it and send it again."],
    [
      "system",
      120,
      "The instructions in the settings are too long by about 120 tokens for what the model can hold. Shorten them in the settings and send the message again.",
    ],
    [
      "both",
      1,
      "The instructions in the settings and this message together are too long by about 1 token for what the model can hold. Shorten one of them and send the message again.",
    ],
  ])("what is too long is told, and by how much: %s", async (of, tokens, problem) => {
    const { app, chat, last } = bench();
    await app.shell.model.load();
    chat().answers.push([Object.assign(failure("context-full"), { excess: { of, tokens } })]);
    app.send("x".repeat(5000));
    await settle();
    expect(last()?.problem).toBe(problem);
  });
});

describe("a lost GPU", () => {
  test("that the runtime replaces is told, before and after", async () => {
    const { app, chat, last } = bench();
    await app.shell.model.load();
    chat().answers.push(["One ", "wait", "two"]);
    app.send("Count");
    await settle();
    chat().listeners.get("device-lost")?.();
    expect(app.state.notes).toMatchObject([{ id: "device", tone: "busy" }]);
    chat().release();
    await settle();
    expect(app.state.notes).toMatchObject([{ id: "device", tone: "good", text: expect.stringContaining("is back") }]);
    expect(last()?.text).toBe("One two");
  });

  test("that ends on another backend is told", async () => {
    const { app, chat } = bench();
    await app.shell.model.load();
    chat().listeners.get("device-lost")?.();
    expect(app.state.notes[0]?.text).toMatch(/with your next message/u);
    chat().info = { ...chat().info, backend: "wasm" };
    chat().listeners.get("backend-changed")?.();
    expect(app.state.notes[0]?.text).toMatch(/goes on with WASM/u);
    expect(app.state.engine).toMatchObject({ info: { backend: "wasm" } });
    app.shell.model.dismissNote("device");
    expect(app.state.notes).toEqual([]);
  });

  test("that the runtime gives up on is loaded anew, once, under the answer", async () => {
    const { app, chat, chats, last } = bench();
    await app.shell.model.load();
    chat().answers.push(["One ", failure("device-lost")]);
    app.send("Count");
    await settle();
    expect(chats).toHaveLength(2);
    expect(chats[0]?.disposed).toBe(true);
    expect(last()).toMatchObject({ text: "Yes.", ending: "done" });
    expect(app.state.notes).toMatchObject([{ id: "device", tone: "good" }]);
  });

  test("twice in one answer is an error, and the conversation is kept", async () => {
    const { app, outcomes, last } = bench();
    const hopeless = (): FakeChat => Object.assign(new FakeChat(), { answers: [[failure("device-lost")]] });
    outcomes.push(hopeless(), hopeless());
    await app.shell.model.load();
    app.send("Count");
    await settle();
    expect(last()).toMatchObject({ role: "assistant", ending: "failed" });
    expect(app.state.conversation.messages).toHaveLength(2);
  });
});

describe("conversations", () => {
  test("are kept, listed and opened again", async () => {
    const storage = new MemoryStore();
    const { app } = bench({ storage });
    await app.shell.model.load();
    app.send("First thing");
    await settle();
    app.newChat();
    app.send("Second thing");
    await settle();
    expect(app.state.history.map(({ title }) => title)).toEqual(["Second thing", "First thing"]);

    const again = bench({ storage });
    expect(again.app.state.conversation.title).toBe("Second thing");
    again.app.open(again.app.state.history[1]?.id ?? "");
    expect(again.app.state.conversation.messages.map(({ text }) => text)).toEqual(["First thing", "Yes."]);
    const third = bench({ storage });
    expect(third.app.state.conversation.title).toBe("First thing");
  });

  test("in the middle of an answer come back with what there was", async () => {
    const storage = new MemoryStore();
    const { app, chat } = bench({ storage });
    await app.shell.model.load();
    chat().answers.push(["One ", "wait"]);
    app.send("Count");
    await settle();
    app.save();
    const again = bench({ storage });
    expect(again.last()).toMatchObject({ text: "One ", ending: "stopped" });
    expect(again.app.pageState).toBe("loading");
  });

  test("that are left stop their answer", async () => {
    const { app, chat } = bench();
    await app.shell.model.load();
    chat().answers.push(["One ", "wait", "two"]);
    app.send("Count");
    await settle();
    app.newChat();
    expect(app.pageState).toBe("ready");
    expect(app.state.conversation.messages).toEqual([]);
    chat().release();
    await settle();
    expect(app.state.conversation.messages).toEqual([]);
    app.open(app.state.history[0]?.id ?? "");
    expect(app.state.conversation.messages.map(({ text }) => text)).toEqual(["Count", "One "]);
  });

  test("can be deleted and brought back", async () => {
    const { app } = bench();
    await app.shell.model.load();
    app.send("Keep me");
    await settle();
    const { id } = app.state.conversation;
    app.remove(id);
    expect(app.state.history).toEqual([]);
    expect(app.state.conversation.messages).toEqual([]);
    expect(app.state.deleted?.title).toBe("Keep me");
    app.undoRemove();
    expect(app.state.conversation.id).toBe(id);
    expect(app.state.deleted).toBeNull();
    app.removeAll();
    expect(app.state.history).toEqual([]);
    expect(app.state.conversation.messages).toEqual([]);
  });
});

describe("settings", () => {
  test("are kept; resetting leaves the theme", async () => {
    const storage = new MemoryStore();
    const { app } = bench({ storage });
    app.changeSettings({ theme: "dark", temperature: 1.5, system: "x" });
    expect(bench({ storage }).app.sampling.temperature).toBe(1.5);
    app.shell.resetSettings(["sidebar"]);
    expect(bench({ storage }).app.state.settings).toMatchObject({ theme: "dark", temperature: null, system: "" });
  });
});

test("answers without anything to see are not sent", () => {
  const conversation = {
    id: "x",
    title: "",
    createdAt: 0,
    messages: [
      { id: "1", at: 1, role: "user", text: "a", ending: "done" },
      { id: "2", at: 2, role: "assistant", to: "1", text: "\u200b \n", ending: "stopped" },
      { id: "3", at: 3, role: "user", text: "b", ending: "done" },
    ],
  } as const; // prettier-ignore
  expect(promptMessages({ ...conversation, messages: [...conversation.messages] }, " ")).toEqual([
    { role: "user", content: "a" },
    { role: "user", content: "b" },
  ]);
});

test("figures of the model, flat or as in the manifest", () => {
  expect(
    parseFacts({ name: "m", parameters: 5, quant: "q8", context: 9, modelBytes: 7, defaults: { temperature: 0, topP: 1, maxTokens: 3 } }),
  ).toEqual({
    name: "m",
    parameters: 5,
    quant: "q8",
    context: 9,
    modelBytes: 7,
    temperature: 0,
    topP: 1,
    maxTokens: 3,
  }); // prettier-ignore
  expect(parseFacts({ model: { quant: "q4", context: 512 }, weights: { bytes: 8 }, chat: { defaults: { top_p: 0.5 } } })).toEqual({
    quant: "q4",
    context: 512,
    modelBytes: 8,
    topP: 0.5,
  }); // prettier-ignore
  for (const nothing of [undefined, null, 3, "x", {}, { name: 5, parameters: "many", context: -1 }])
    expect(parseFacts(nothing)).toEqual({});
});

test("what another tab has deleted does not come back by looking at it", async () => {
  const storage = new MemoryStore();
  const here = bench({ storage });
  await here.app.shell.model.load();
  here.app.send("Hello");
  await settle();
  const there = bench({ storage });
  there.app.remove(there.app.state.conversation.id);
  here.app.save();
  here.app.changedElsewhere();
  await settle();
  expect(here.app.state.history).toEqual([]);
  expect(here.app.state.conversation.messages).toEqual([]);
  expect(here.app.state.notes).toMatchObject([{ id: "gone", text: expect.stringContaining("deleted in another tab") }]);
  here.app.send("Something else");
  await settle();
  expect(here.app.state.history.map(({ title }) => title)).toEqual(["Something else"]);
});

describe("another tab", () => {
  async function two(): Promise<{ here: Bench; there: Bench; told: () => Promise<void> }> {
    const storage = new MemoryStore();
    const here = bench({ storage });
    await here.app.shell.model.load();
    here.app.send("Hello");
    await settle();
    const there = bench({ storage });
    await there.app.shell.model.load();
    const told = async (): Promise<void> => {
      here.app.changedElsewhere();
      there.app.changedElsewhere();
      await settle();
    };
    return { here, there, told };
  }
  const texts = ({ app }: Bench): string[] => app.state.conversation.messages.map(({ text }) => text);

  test("that asks while an answer is written: both turns stay, each answer with its question", async () => {
    const { here, there, told } = await two();
    here.chat().answers.push(["One ", "wait", "two"]);
    here.app.send("Count");
    await settle();
    there.app.send("And you?");
    await settle();
    await told();
    expect(texts(here)).toEqual(["Hello", "Yes.", "Count", "One ", "And you?", "Yes."]);
    here.chat().release();
    await settle();
    await told();
    expect(texts(here)).toEqual(["Hello", "Yes.", "Count", "One two", "And you?", "Yes."]);
    expect(texts(there)).toEqual(texts(here));
    expect(there.chat().prompts[0]?.at(-1)?.content).toBe("And you?");
  });

  test("that answers anew what is being answered here ends the answer here", async () => {
    const { here, there, told } = await two();
    here.chat().answers.push(["One ", "wait", "two"]);
    here.app.send("Count");
    await settle();
    await told();
    there.app.regenerate();
    await settle();
    await told();
    expect(here.app.pageState).toBe("ready");
    expect(here.chat().options.at(-1)?.signal?.aborted).toBe(true);
    here.chat().release();
    await settle();
    await told();
    expect(texts(here)).toEqual(["Hello", "Yes.", "Count", "Yes."]);
    expect(texts(there)).toEqual(texts(here));
  });

  test("that deletes the conversation ends the answer here; after an undo all of it is there", async () => {
    const { here, there, told } = await two();
    here.chat().answers.push(["One ", "wait", "two"]);
    here.app.send("Count");
    await settle();
    there.app.remove(there.app.state.conversation.id);
    await told();
    expect(here.app.pageState).toBe("ready");
    expect(texts(here)).toEqual([]);
    expect(here.storage.get("current")).toBe(here.app.state.conversation.id);
    there.app.undoRemove();
    expect(texts(there)).toEqual(["Hello", "Yes.", "Count", "One "]);
    there.app.remove(there.app.state.conversation.id);
    there.app.forgetRemoved();
    expect(there.storage.keys().filter((key) => key.startsWith("chat:"))).toEqual([]);
  });

  test("does not change which message is answered once the model is ready", async () => {
    const { here, there, told } = await two();
    const third = bench({ storage: here.storage });
    third.outcomes.push("wait");
    void third.app.shell.model.load();
    third.app.send("Waits");
    there.app.send("Does not wait");
    await settle();
    third.app.changedElsewhere();
    await settle();
    third.release();
    await settle();
    await told();
    expect(texts(here)).toEqual(["Hello", "Yes.", "Waits", "Yes.", "Does not wait", "Yes."]);
    expect(third.chat().prompts[0]?.at(-1)?.content).toBe("Waits");
  });
});

describe("nothing to see", () => {
  test.each(["\u200b", "\u2060\ufeff\u00ad", "\ufe0f", "\u3164\u115f", "\u0000\u0007", " \u00a0\u2003\n"])(
    "is not sent: %j",
    async (text) => {
      const { app, chat } = bench();
      await app.shell.model.load();
      expect(app.send(text)).toBe(false);
      expect(chat().prompts).toEqual([]);
    },
  );

  test.each([[[]], [["\u200b", "\n"]]])("in an answer is told, and answered again: %j", async (parts) => {
    const { app, chat, last } = bench();
    await app.shell.model.load();
    chat().answers.push(parts);
    app.send("Hello");
    await settle();
    expect(isEmptyAnswer(last() as Message)).toBe(true);
    expect(app.shell.state.announcement).toBe("TinyChat: The answer is empty.");
    app.regenerate();
    await settle();
    expect(isEmptyAnswer(last() as Message)).toBe(false);
    expect(app.shell.state.announcement).toBe("TinyChat: Yes.");
  });
});
