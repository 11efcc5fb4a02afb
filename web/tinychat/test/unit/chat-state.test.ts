/** What the page keeps: conversations, settings, and what another tab changes of them. */

import { describe, expect, test } from "vitest";
import { MemoryStore } from "tinyweb-shell";
import { isEmptyAnswer, promptMessages } from "../../src/app/chat-app";
import { parseFacts } from "../../src/app/facts";
import type { Message } from "../../src/store/conversations";
import { bench, settle, type Bench } from "./fake-chat";

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
  expect(
    parseFacts({ model: { quant: "q4", fidelity: "alike", context: 512 }, weights: { bytes: 8 }, chat: { defaults: { top_p: 0.5 } } }),
  ).toEqual({
    quant: "q4",
    fidelity: "alike",
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
