import { afterEach, describe, expect, it } from "vitest";
import { Chat } from "../src/client.js";
import { ChatSession } from "../src/openai/index.js";
import { CONTEXT, expected, promptIds } from "./fake-bundle.js";
import { BASE } from "./fake-server.js";
import { LocalWorker } from "./local-worker.js";
import { collect } from "./open.js";

const chats: Chat[] = [];
async function open(): Promise<Chat> {
  const chat = await Chat.open(new LocalWorker(), BASE, { backend: "wasm-single" });
  chats.push(chat);
  return chat;
}
afterEach(() => Promise.all(chats.splice(0).map((chat) => chat.dispose())));

type Messages = { role: string; content: string }[];
/** What the model must say, as text, and whether it ends by itself. */
const answer = (messages: Messages, tokens: number): string =>
  new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(expected(promptIds(messages), tokens).filter((id) => id < 256)));
const user = (content: string): Messages[number] => ({ role: "user", content });
const assistant = (content: string): Messages[number] => ({ role: "assistant", content });
const text = async (parts: AsyncIterable<{ text: string }>): Promise<string> => (await collect(parts)).map((part) => part.text).join("");

describe("a chat session", () => {
  it("keeps the conversation, and the cache with it", async () => {
    const chat = await open();
    const session = new ChatSession(chat, { system: "s", temperature: 0, maxTokens: 3 });
    const first = [{ role: "system", content: "s" }, user("a")];
    expect(await text(session.send("a"))).toBe(answer(first, 3));
    const second = [...first, assistant(answer(first, 3)), user("b")];
    const said = session.send("b", { maxTokens: 2 });
    expect(await text(said)).toBe(answer(second, 2));
    expect(session.messages).toEqual([...second, assistant(answer(second, 2))]);
    const { reusedTokens, ...result } = await said.result;
    expect(result).toMatchObject({ promptTokens: promptIds(second).length, answerTokens: 2, stopReason: "max-tokens" });
    expect(reusedTokens).toBeGreaterThanOrEqual(promptIds(first).length);
    expect(session.busy).toBe(false);
  });

  it("goes on with a conversation that was kept, and begins anew", async () => {
    const session = new ChatSession(await open(), {
      system: "unused",
      messages: [{ role: "system", content: "old" }, user("a"), assistant("b")],
    });
    expect(session.messages.map(({ content }) => content)).toEqual(["old", "a", "b"]);
    session.messages.push(user("not mine"));
    expect(session.messages).toHaveLength(3);
    session.reset();
    expect(session.messages).toEqual([{ role: "system", content: "unused" }]);
    session.reset([user("x")]);
    expect(session.messages.map(({ content }) => content)).toEqual(["unused", "x"]);
  });

  it("keeps what came of an answer that broke off, and no question without one", async () => {
    const session = new ChatSession(await open(), { temperature: 0.5, topK: 1, seed: 1, maxTokens: 30 });
    let seen = "";
    const run = async (): Promise<void> => {
      for await (const part of session.send("hello")) {
        seen += part.text;
        if (seen.length >= 2) session.stop();
      }
    };
    await expect(run()).rejects.toMatchObject({ code: "aborted" });
    expect(session.messages).toEqual([user("hello"), assistant(seen)]);
    await expect(text(session.send("never", { signal: AbortSignal.abort() }))).rejects.toMatchObject({ code: "aborted" });
    expect(session.messages).toHaveLength(2);
    for await (const part of session.send("left")) if (part.text) break;
    expect(session.messages.at(-2)).toEqual(user("left"));
    expect(session.messages.at(-1)?.content).not.toBe("");
    await expect(text(session.send("x".repeat(100)))).rejects.toMatchObject({ code: "context-full" });
    expect(session.messages).toHaveLength(4);
  });

  it("refuses what it cannot begin with", async () => {
    const chat = await open();
    expect(() => new ChatSession(undefined as never)).toThrow(/needs a chat model/);
    expect(() => new ChatSession(chat, { system: 5 as never })).toThrow(/system must be a text/);
    expect(() => new ChatSession(chat, { messages: "x" as never })).toThrow(/messages must be a non-empty list/);
    expect(() => new ChatSession(chat, { messages: [{ role: "user" } as never] })).toThrow(/messages\[0\]/);
  });

  it("answers one question at a time, and may be begun anew meanwhile", async () => {
    const session = new ChatSession(await open(), { temperature: 0.5, topK: 1, seed: 1, maxTokens: 40 });
    const running = session.send("one");
    await running.next();
    expect(session.busy).toBe(true);
    await expect(session.send("two").next()).rejects.toMatchObject({ code: "bad-argument", message: expect.stringContaining("stop()") });
    session.reset();
    await expect(text(running)).rejects.toMatchObject({ code: "aborted" });
    expect(session.messages).toEqual([]);
    expect(await text(session.send("b", { temperature: 0, maxTokens: 3 }))).toBe(answer([user("b")], 3));
  });

  it("reports its use of the context, and forgets what the model no longer sees", async () => {
    const session = new ChatSession(await open(), { system: "s", temperature: 0, maxTokens: 4 });
    expect(await session.context("hi")).toEqual({
      tokens: promptIds([{ role: "system", content: "s" }, user("hi")]).length,
      size: CONTEXT,
      dropped: 0,
    });
    for (const question of ["first question", "second question", "third question"]) await text(session.send(question));
    const { tokens, dropped } = await session.context();
    expect(tokens).toBeGreaterThan(CONTEXT);
    expect(dropped).toBeGreaterThan(0);
    const before = session.messages;
    expect(session.trim()).toBe(dropped);
    expect(session.messages).toEqual([before[0], ...before.slice(1 + dropped)]);
    expect((await session.context()).dropped).toBe(0);
    expect(session.trim()).toBe(0);
  });
});
