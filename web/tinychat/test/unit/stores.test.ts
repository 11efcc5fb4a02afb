import { JSDOM } from "jsdom";
import { LocalStore, MemoryStore, SettingsStore } from "tinyweb-shell";
import { beforeEach, describe, expect, test } from "vitest";
import { ConversationStore, MAX_CONVERSATIONS, newConversation, parseConversation, titleFrom, type Conversation } from "../../src/store/conversations";
import { DEFAULT_SETTINGS, parseSettings } from "../../src/store/settings";

function localStorageOf(quota: number): Storage {
  return new JSDOM("", { url: "https://example.org/", storageQuota: quota }).window.localStorage;
}

function conversation(id: string, updatedAt: number, text = `said in ${id}`): Conversation {
  return {
    id,
    title: titleFrom(text),
    createdAt: 1,
    updatedAt,
    messages: [
      { id: `${id}-q`, role: "user", text, ending: "done" },
      { id: `${id}-a`, role: "assistant", text: "Yes.", ending: "done", stats: { tokens: 2, tokensPerSecond: 50 } },
    ],
  };
}

describe("titleFrom", () => {
  test("takes the first line", () => expect(titleFrom("  One   two\n\nthree")).toBe("One two"));
  test("cuts long lines at a word", () => {
    const title = titleFrom("The quick brown fox jumps over the lazy dog and then goes on for quite a while");
    expect(title).toBe("The quick brown fox jumps over the lazy dog and then goes on…");
  });
  test("cuts a word that is longer than a title", () => expect(titleFrom("x".repeat(100))).toBe(`${"x".repeat(60)}…`));
  test("of nothing is nothing", () => expect(titleFrom(" \n ")).toBe(""));
});

describe("conversations", () => {
  let storage: Storage;
  let store: ConversationStore;
  beforeEach(() => {
    storage = localStorageOf(5_000_000);
    store = new ConversationStore(new LocalStore(storage, "tinychat:/:"));
  });

  test("come back as they were, newest first", () => {
    store.put(conversation("a", 10));
    store.put(conversation("b", 30));
    store.put(conversation("c", 20));
    const again = new ConversationStore(new LocalStore(storage, "tinychat:/:"));
    expect(again.list().map(({ id }) => id)).toEqual(["b", "c", "a"]);
    expect(again.get("a")).toEqual(conversation("a", 10));
  });

  test("of another folder on the same origin are not seen", () => {
    store.put(conversation("a", 10));
    const other = new ConversationStore(new LocalStore(storage, "tinychat:/other/:"));
    expect(other.list()).toEqual([]);
    other.clear();
    expect(store.get("a")).toBeDefined();
  });

  test("that are empty are not kept", () => {
    store.put(newConversation("a", 5));
    expect(store.list()).toEqual([]);
    expect(storage.length).toBe(0);
  });

  test("are removed one by one or all together", () => {
    store.put(conversation("a", 10));
    store.put(conversation("b", 20));
    store.remove("a");
    expect(store.list().map(({ id }) => id)).toEqual(["b"]);
    store.clear();
    expect(store.list()).toEqual([]);
  });

  test("beyond the limit push out the oldest", () => {
    expect(MAX_CONVERSATIONS).toBe(200);
    for (let i = 0; i < MAX_CONVERSATIONS; i++) store.put(conversation(`n${i}`, i));
    store.put(conversation("new", 1000));
    store.put(conversation("n5", 2000, "said again"));
    expect(store.list()).toHaveLength(MAX_CONVERSATIONS);
    expect(store.get("n0")).toBeUndefined();
    expect(store.get("n1")).toBeDefined();
    expect(store.list().slice(0, 2).map(({ id }) => id)).toEqual(["n5", "new"]);
  });

  test("push out a few of the oldest when the storage is full", () => {
    const small = localStorageOf(4000);
    const full = new ConversationStore(new LocalStore(small, "p:"));
    for (let i = 0; i < 20; i++) full.put(conversation(`n${i}`, i, "x".repeat(300)));
    const kept = full.list();
    expect(kept.length).toBeGreaterThan(1);
    expect(kept.length).toBeLessThan(10);
    expect(kept[0]?.id).toBe("n19");
    expect(full.get("n0")).toBeUndefined();
  });

  test("that do not fit at all stay until the page is closed, and destroy few others", () => {
    const small = localStorageOf(8000);
    const full = new ConversationStore(new LocalStore(small, "p:"));
    for (let i = 0; i < 20; i++) full.put(conversation(`n${i}`, i, "short"));
    full.put(conversation("huge", 100, "x".repeat(9000)));
    expect(full.get("huge")?.messages[0]?.text).toHaveLength(9000);
    expect(full.list()).toHaveLength(11);
    full.remove("huge");
    expect(full.get("huge")).toBeUndefined();
  });

  test("that are damaged are left out, and do not hide the others", () => {
    store.put(conversation("good", 10));
    storage.setItem("tinychat:/:chat:broken", "{not json");
    storage.setItem("tinychat:/:chat:wrong", JSON.stringify({ id: "wrong", messages: "none" }));
    storage.setItem("tinychat:/:chat:null", "null");
    expect(store.list().map(({ id }) => id)).toEqual(["good"]);
  });
});

describe("parseConversation", () => {
  test("keeps what is sound", () => {
    const parsed = parseConversation({
      id: "x",
      messages: [
        { id: "1", role: "user", text: "Hello\nthere", ending: "nonsense" },
        { id: "2", role: "system", text: "no" },
        { id: 3, role: "user", text: "no" },
        "no",
        { id: "4", role: "assistant", text: "Hi", ending: "context", stats: { tokens: -1, tokensPerSecond: 3 }, extra: 1 },
      ],
    });
    expect(parsed).toEqual({
      id: "x",
      title: "Hello",
      createdAt: 0,
      updatedAt: 0,
      messages: [
        { id: "1", role: "user", text: "Hello\nthere", ending: "done" },
        { id: "4", role: "assistant", text: "Hi", ending: "context" },
      ],
    });
  });
  test.each([null, 3, "x", [], {}, { id: "" }, { id: "x" }])("is undefined for %j", (value) =>
    expect(parseConversation(value)).toBeUndefined(),
  );
});

describe("settings", () => {
  test("survive", () => {
    const storage = new MemoryStore();
    const settings = { ...DEFAULT_SETTINGS, theme: "dark", temperature: 0, system: "Be kind." } as const;
    new SettingsStore(storage, parseSettings).save(settings);
    expect(new SettingsStore(storage, parseSettings).load()).toEqual(settings);
  });

  test("of a first visit are the defaults", () => {
    expect(new SettingsStore(new MemoryStore(), parseSettings).load()).toEqual(DEFAULT_SETTINGS);
  });

  test("that make no sense are replaced one by one", () => {
    expect(
      parseSettings({ theme: "pink", backend: "cuda", temperature: 99, topP: "0.5", maxTokens: 100.4, system: 3, sidebar: false }),
    ).toEqual({ ...DEFAULT_SETTINGS, temperature: 2, maxTokens: 100, sidebar: false });
  });
});

test("a blocked storage is replaced by memory", () => {
  const store = new MemoryStore();
  store.set("a", { b: [1] });
  expect(store.get("a")).toEqual({ b: [1] });
  expect(store.keys()).toEqual(["a"]);
  store.remove("a");
  expect(store.get("a")).toBeUndefined();
  expect(store.lasting).toBe(false);
});
