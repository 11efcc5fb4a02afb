/** A conversation before a model that says what it is told; session.test.ts has one with a real worker. */

import { beforeEach, describe, expect, it } from "vitest";
import { ChatSession } from "../src/openai/session.js";
import type { Message } from "../src/tokenizer.js";
import { FakeChat } from "./fake-chat.js";
import { collect } from "./open.js";

let chat: FakeChat;
beforeEach(() => void (chat = new FakeChat()));

const system = (content: string): Message => ({ role: "system", content });
const user = (content: string): Message => ({ role: "user", content });
const assistant = (content: string): Message => ({ role: "assistant", content });
const text = async (session: ChatSession, question: string, options?: object): Promise<string> =>
  (await collect(session.send(question, options))).map((part) => part.text).join("");

describe("a conversation", () => {
  it("asks with all of it, and the session's options before the question's", async () => {
    const session = new ChatSession(chat, { system: "be", temperature: 0.5, maxTokens: 9 });
    expect(await text(session, "a")).toBe("Hello");
    expect(await text(session, "b", { maxTokens: 3, topK: 2 })).toBe("Hello");
    expect(chat.asked.map(({ messages }) => messages)).toEqual([
      [system("be"), user("a")],
      [system("be"), user("a"), assistant("Hello"), user("b")],
    ]);
    const plain = chat.asked.map(({ options: { signal, ...options } }) => (expect(signal).toBeInstanceOf(AbortSignal), options));
    expect(plain).toEqual([
      { temperature: 0.5, maxTokens: 9 },
      { temperature: 0.5, maxTokens: 3, topK: 2 },
    ]);
    expect(session.messages).toEqual([system("be"), user("a"), assistant("Hello"), user("b"), assistant("Hello")]);
  });

  it("has copies of what it was given, and gives copies", () => {
    const given = [user("a"), { ...assistant("b"), extra: 1 }];
    const session = new ChatSession(chat, { messages: given });
    expect(session.messages).toEqual([user("a"), assistant("b")]);
    given[0]!.content = "changed";
    session.messages[1]!.content = "changed";
    expect(session.messages).toEqual([user("a"), assistant("b")]);
    expect(new ChatSession(chat).messages).toEqual([]);
    expect(new ChatSession(chat, { system: "" }).messages).toEqual([system("")]);
  });

  it("begins with its own system message unless the messages have one", () => {
    const session = new ChatSession(chat, { system: "own", messages: [user("a"), system("late")] });
    expect(session.messages).toEqual([user("a"), system("late")]);
    session.reset([user("b")]);
    expect(session.messages).toEqual([system("own"), user("b")]);
    session.reset();
    expect(session.messages).toEqual([system("own")]);
    expect(() => session.reset("x" as never)).toThrow("messages must be a non-empty list of { role, content }.");
    expect(() => session.reset([{}] as never)).toThrow("messages[0] must have a role and a content, both strings.");
    expect(session.messages).toEqual([system("own")]);
  });

  it("keeps an answer of nothing, and the pieces that are empty out of it", async () => {
    const session = new ChatSession(chat);
    chat.pieces = [];
    expect(await text(session, "a")).toBe("");
    chat.pieces = ["", "x", "", "y"];
    const seen: number[] = [];
    for await (const _part of session.send("b")) seen.push(session.messages.length);
    expect(seen).toEqual([3, 4, 4, 4]);
    expect(session.messages).toEqual([user("a"), assistant(""), user("b"), assistant("xy")]);
  });

  it("forgets a question without an answer, and keeps what came of one", async () => {
    const session = new ChatSession(chat);
    chat.pieces = [];
    chat.failure = new Error("broken");
    await expect(text(session, "a")).rejects.toThrow("broken");
    expect([session.messages, session.busy]).toEqual([[], false]);
    chat.pieces = ["x"];
    await expect(text(session, "a")).rejects.toThrow("broken");
    expect(session.messages).toEqual([user("a"), assistant("x")]);
    chat.pieces = [""];
    await expect(text(session, "b")).rejects.toThrow("broken");
    expect(session.messages).toEqual([user("a"), assistant("x")]);
  });

  it("is busy until its answer ends, or is left", async () => {
    const session = new ChatSession(chat);
    expect(session.busy).toBe(false);
    for await (const _part of session.send("a")) {
      expect(session.busy).toBe(true);
      await expect(text(session, "b")).rejects.toThrow("This session is still answering: wait for the end, or call stop().");
      expect(session.trim()).toBe(0);
      break;
    }
    expect([session.busy, chat.left]).toEqual([false, 1]);
    expect(session.messages).toEqual([user("a"), assistant("Hel")]);
    session.stop(); // of nothing
  });

  it("may be stopped by itself and by a signal", async () => {
    const session = new ChatSession(chat);
    const run = async (stop: () => void, signal?: AbortSignal): Promise<void> => {
      for await (const _part of session.send("a", { signal })) stop();
    };
    await expect(run(() => session.stop())).rejects.toMatchObject({ code: "aborted" });
    const outer = new AbortController();
    await expect(run(() => outer.abort(), outer.signal)).rejects.toMatchObject({ code: "aborted" });
    expect(session.messages).toEqual([user("a"), assistant("Hel"), user("a"), assistant("Hel")]);
    expect(chat.asked.at(-1)?.options.signal?.aborted).toBe(true);
  });

  it("that is begun anew while it answers is a new one", async () => {
    const session = new ChatSession(chat);
    const running = session.send("old");
    await running.next();
    session.reset([user("x"), assistant("y")]);
    expect(session.busy).toBe(false);
    const other = session.send("new");
    await other.next();
    await expect(running.next()).rejects.toMatchObject({ code: "aborted" });
    expect(session.busy).toBe(true); // with the new answer
    await collect(other);
    expect(session.messages).toEqual([user("x"), assistant("y"), user("new"), assistant("Hello")]);
  });

  it("an answer that ends though the session was begun anew changes nothing", async () => {
    const session = new ChatSession(chat);
    chat.ended.droppedMessages = 1;
    chat.pieces = ["x"];
    const running = session.send("old");
    await running.next();
    session.reset([user("x"), assistant("y")]);
    await running.next();
    expect(await session.context()).toMatchObject({ dropped: 0 });
    expect(session.messages).toEqual([user("x"), assistant("y")]);
  });
});

describe("the context", () => {
  it("is counted with the next question, if there is one", async () => {
    const session = new ChatSession(chat, { messages: [user("abc"), assistant("de")] });
    expect(await session.context()).toEqual({ tokens: 5, size: 100, dropped: 0 });
    expect(await session.context("fghi")).toEqual({ tokens: 9, size: 100, dropped: 0 });
    expect(session.messages).toHaveLength(2);
    chat.countTokens = async () => 99;
    expect(await new ChatSession(chat).context()).toEqual({ tokens: 0, size: 100, dropped: 0 });
    expect((await new ChatSession(chat).context("")).tokens).toBe(99);
  });

  it("that was too small is made smaller by what the model no longer saw", async () => {
    const session = new ChatSession(chat, { messages: [system("s"), user("1"), assistant("2"), user("3"), assistant("4")] });
    chat.ended.droppedMessages = 2;
    expect(session.trim()).toBe(0); // nothing was asked yet
    await text(session, "5");
    expect((await session.context()).dropped).toBe(2);
    expect(session.trim()).toBe(2);
    expect(session.messages.map(({ content }) => content)).toEqual(["s", "3", "4", "5", "Hello"]);
    expect([(await session.context()).dropped, session.trim()]).toEqual([0, 0]);
    await text(session, "6");
    session.reset();
    expect((await session.context()).dropped).toBe(0);
    const other = new ChatSession(chat, { system: "s" });
    expect(other.trim()).toBe(0);
  });
});

describe("a session", () => {
  it.each<[string, () => unknown, string]>([
    ["no model", () => new ChatSession(undefined as never), "A session needs a chat model: new ChatSession(await loadChat(…))."],
    ["null", () => new ChatSession(null as never), "A session needs a chat model: new ChatSession(await loadChat(…))."],
    [
      "something else",
      () => new ChatSession({ generate: 5 } as never),
      "A session needs a chat model: new ChatSession(await loadChat(…)).",
    ],
    ["a system that is no text", () => new ChatSession(chat, { system: 5 as never }), "system must be a text, not 5."],
    ["wrong options", () => new ChatSession(chat, 5 as never), "The options of a session must be an object, such as { signal }, not 5."],
    ["a wrong number", () => new ChatSession(chat, { topP: 5 }), "topP must be a number in 0 … 1, not 5."],
    ["no text", () => new ChatSession(chat).send(5 as never).next(), "What is sent must be a text, not 5."],
    [
      "wrong options of a question",
      () => new ChatSession(chat).send("a", 5 as never).next(),
      "The options of send() must be an object, such as { signal }, not 5.",
    ],
  ])("says what is wrong: %s", async (_name, call, words) => {
    await expect((async () => call())()).rejects.toMatchObject({ code: "bad-argument", message: words });
  });
});
