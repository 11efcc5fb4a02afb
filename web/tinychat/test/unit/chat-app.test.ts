/** The page's conduct with a model made of promises, without any interface. */

import { describe, expect, test } from "vitest";
import { bench, failure, settle, FakeChat } from "./fake-chat";

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
