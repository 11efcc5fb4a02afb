/** A base model's page: one text, with a model made of promises. */

import { describe, expect, test } from "vitest";
import { CompletionApp, pieces } from "../../src/app/completion-app";
import { bench, failure, type FakeChat, settle } from "./fake-chat";

async function ready(answers: FakeChat["answers"] = []): Promise<{ app: CompletionApp; chat: FakeChat; around: ReturnType<typeof bench> }> {
  const around = bench();
  const { shell } = around.app;
  let seed = 0;
  const app = new CompletionApp({ shell, ticks: () => 0, newSeed: () => ++seed, nextFrame: queueMicrotask });
  await shell.model.load();
  const chat = around.chats[0] as FakeChat;
  chat.answers = answers;
  return { app, chat, around };
}

describe("a text", () => {
  test("goes on where it ends, spaces and all", async () => {
    const { app, chat } = await ready([[" there", " was"]]);
    app.write("Once upon a time  ");
    app.continue();
    expect(app.busy).toBe(true);
    app.write("not now");
    await settle();
    expect(app.state).toMatchObject({ text: "Once upon a time   there was", phase: "idle", canUndo: true, canRetry: true });
    expect(chat.prompts).toEqual([[{ role: "user", content: "Once upon a time  " }]]);
    expect(app.state.ended).not.toBe("");
  });

  test("is undone and tried again, with other chances", async () => {
    const { app, chat } = await ready([[" a"], [" b"], ["c"]]);
    app.write("x");
    app.continue();
    await settle();
    app.retry();
    await settle();
    expect(app.state.text).toBe("x b");
    expect(chat.options[1]?.seed).not.toBe(chat.options[0]?.seed);
    app.continue();
    await settle();
    expect(app.state.text).toBe("x bc");
    app.undo();
    expect(app.state).toMatchObject({ text: "x b", canRetry: false });
    app.undo();
    expect(app.state).toMatchObject({ text: "x", canUndo: false });
  });

  test("that was changed by hand is not tried again", async () => {
    const { app } = await ready([[" a"]]);
    app.write("x");
    app.continue();
    await settle();
    app.write("x a!");
    expect(app.state.canRetry).toBe(false);
    app.retry();
    expect(app.state.text).toBe("x a!");
  });

  test("keeps what was written until it was stopped", async () => {
    const { app, chat } = await ready([[" a", "wait", " b"]]);
    app.write("x");
    app.continue();
    await settle();
    app.stop();
    chat.release();
    await settle();
    expect(app.state).toMatchObject({ text: "x a", phase: "idle", problem: "" });
  });

  test("that is too long for the model is told so, also where it ends", async () => {
    const { app, chat } = await ready();
    for (const stopReason of ["end", "max-tokens"] as const) {
      chat.ended = { ...chat.ended, droppedMessages: 2, stopReason };
      app.write("x");
      app.continue();
      await settle();
      expect(app.state.ended).toContain("beginning no longer fits");
      expect(app.state.ended.includes("sees an end")).toBe(stopReason === "end");
    }
  });

  test("is what another tab made of it, unless it was changed here", async () => {
    const around = bench();
    const { shell } = around.app;
    const make = (): CompletionApp => new CompletionApp({ shell, ticks: () => 5000, newSeed: () => 1, nextFrame: queueMicrotask });
    const [here, there] = [make(), make()];
    there.write("Once");
    there.save();
    here.changedElsewhere();
    expect(here.state.text).toBe("Once");
    here.undo();
    expect(here.state.text).toBe("");
    here.write("Mine");
    there.write("Theirs");
    there.save();
    here.changedElsewhere();
    expect(here.state.text).toBe("Mine");
    here.save();
    there.changedElsewhere();
    expect(there.state.text).toBe("Mine");
    there.undo();
    expect(there.state.text).toBe("Theirs");
  });

  test("says why it broke off", async () => {
    const { app } = await ready([[" a", failure("out-of-memory")]]);
    app.write("x");
    app.continue();
    await settle();
    expect(app.state.text).toBe("x a");
    expect(app.state.problem).toContain("Not enough memory");
  });

  test("waits for the model, and is kept", async () => {
    const around = bench();
    const { shell } = around.app;
    const make = (): CompletionApp => new CompletionApp({ shell, ticks: () => 0, newSeed: () => 1, nextFrame: queueMicrotask });
    const app = make();
    app.write("x");
    app.continue();
    expect(app.state.phase).toBe("queued");
    await shell.model.load();
    await settle();
    expect(app.state.text).toBe("xYes.");
    expect(make().state.text).toBe("xYes.");
    app.clear();
    expect(make().state.text).toBe("");
    app.undo();
    expect(app.state.text).toBe("xYes.");
  });
});

test.each(["", "a", "word ".repeat(500), "x".repeat(1000), "😀".repeat(400), `${"y".repeat(319)}😀z`])(
  "pieces are the text (%#)",
  (text) => {
    const cut = pieces(text).map(({ content }) => content);
    expect(cut.join("")).toBe(text);
    for (const piece of cut) {
      expect(piece.length).toBeLessThanOrEqual(321);
      expect(() => encodeURIComponent(piece)).not.toThrow(); // no half of a surrogate pair
    }
  },
);
