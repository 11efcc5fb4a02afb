import { JSDOM } from "jsdom";
import { LocalStore, MemoryStore, SettingsStore } from "tinyweb-shell";
import { beforeEach, describe, expect, test } from "vitest";
import {
  arrange,
  ConversationStore,
  MAX_CONVERSATIONS,
  parseHead,
  titleFrom,
  type Conversation,
  type Message,
} from "../../src/store/conversations";
import { DEFAULT_SETTINGS, parseSettings } from "../../src/store/settings";

function localStorageOf(quota: number): Storage {
  return new JSDOM("", { url: "https://example.org/", storageQuota: quota }).window.localStorage;
}

function conversation(id: string, at: number, text = `said in ${id}`): Conversation {
  return {
    id,
    title: titleFrom(text),
    createdAt: 1,
    messages: [
      { id: `${id}-q`, at, role: "user", text, ending: "done" },
      {
        id: `${id}-a`,
        at: at + 1,
        role: "assistant",
        to: `${id}-q`,
        text: "Yes.",
        ending: "done",
        stats: { tokens: 2, tokensPerSecond: 50 },
      },
    ],
  };
}

/** Returns whether all of it fitted. */
function put(store: ConversationStore, said: Conversation): boolean {
  store.create(said);
  return said.messages.map((message) => store.put(said.id, message)).every(Boolean);
}

/** As pages stored a conversation before each message had a value of its own. */
function earlier(id: string, updatedAt: number): unknown {
  return {
    id,
    title: "One",
    createdAt: 1000,
    updatedAt,
    messages: [
      { id: `${id}-1`, role: "user", text: "One", ending: "done" },
      { id: `${id}-2`, role: "assistant", text: "Two", ending: "length", stats: { tokens: 2, tokensPerSecond: 50 } },
      { id: `${id}-3`, role: "user", text: "Three", ending: "done" },
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
    put(store, conversation("a", 10));
    put(store, conversation("b", 30));
    put(store, conversation("c", 20));
    const again = new ConversationStore(new LocalStore(storage, "tinychat:/:"));
    expect(again.list().map(({ id }) => id)).toEqual(["b", "c", "a"]);
    expect(again.get("a")).toEqual(conversation("a", 10));
  });

  test("of another folder on the same origin are not seen", () => {
    put(store, conversation("a", 10));
    const other = new ConversationStore(new LocalStore(storage, "tinychat:/other/:"));
    expect(other.list()).toEqual([]);
    other.clear();
    expect(store.get("a")).toBeDefined();
  });

  test("without a message are not listed", () => {
    store.create({ ...conversation("a", 5), messages: [] });
    expect(store.list()).toEqual([]);
    expect(store.get("a")).toBeUndefined();
  });

  test("are removed one by one or all together", () => {
    put(store, conversation("a", 10));
    put(store, conversation("b", 20));
    store.remove("a", 30);
    expect(store.list().map(({ id }) => id)).toEqual(["b"]);
    store.clear();
    expect(store.list()).toEqual([]);
  });

  test("beyond the limit push out the oldest", () => {
    expect(MAX_CONVERSATIONS).toBe(200);
    for (let i = 0; i < MAX_CONVERSATIONS; i++) put(store, conversation(`n${i}`, i));
    put(store, conversation("new", 1000));
    store.put("n5", { id: "again", at: 2000, role: "user", text: "said again", ending: "done" });
    expect(store.list()).toHaveLength(MAX_CONVERSATIONS);
    expect(store.get("n0")).toBeUndefined();
    expect(store.get("n1")).toBeDefined();
    expect(
      store
        .list()
        .slice(0, 2)
        .map(({ id }) => id),
    ).toEqual(["n5", "new"]);
  });

  test("push out a few of the oldest when the storage is full", () => {
    const small = localStorageOf(4000);
    const full = new ConversationStore(new LocalStore(small, "p:"));
    for (let i = 0; i < 20; i++) put(full, conversation(`n${i}`, i, "x".repeat(300)));
    const kept = full.list();
    expect(kept.length).toBeGreaterThan(1);
    expect(kept.length).toBeLessThan(10);
    expect(kept[0]?.id).toBe("n19");
    expect(full.get("n0")).toBeUndefined();
  });

  test("that do not fit at all stay until the page is closed, and destroy few others", () => {
    const small = localStorageOf(8000);
    const full = new ConversationStore(new LocalStore(small, "p:"));
    for (let i = 0; i < 20; i++) put(full, conversation(`n${i}`, i, "short"));
    put(full, conversation("huge", 100, "x".repeat(9000)));
    expect(full.get("huge")?.messages[0]?.text).toHaveLength(9000);
    expect(full.list()).toHaveLength(11);
    // What is said on does not destroy more of them.
    expect(full.put("huge", { id: "m", at: 101, role: "user", text: "more", ending: "done" })).toBe(false);
    expect(full.list()).toHaveLength(11);
    full.remove("huge", 200);
    full.discard("huge");
    expect(full.get("huge")).toBeUndefined();
    expect(put(full, conversation("next", 300))).toBe(true);
  });

  test("that are damaged are left out, and do not hide the others", () => {
    put(store, conversation("good", 10));
    storage.setItem("tinychat:/:chat:broken", "{not json");
    storage.setItem("tinychat:/:chat:wrong", JSON.stringify({ id: "wrong", messages: "none" }));
    storage.setItem("tinychat:/:chat:null", "null");
    expect(store.list().map(({ id }) => id)).toEqual(["good"]);
  });

  test("that were deleted come back whole, with what was said to them meanwhile", () => {
    put(store, conversation("a", 10));
    const removed = store.remove("a", 20);
    expect(removed?.title).toBe("said in a");
    const late: Message = { id: "late", at: 15, role: "user", text: "said in another tab", ending: "done" };
    store.put("a", late);
    expect([store.get("a"), store.list()]).toEqual([undefined, []]);
    expect(store.remove("a", 30)).toBeUndefined();
    if (removed !== undefined) store.restore(removed);
    expect(store.get("a")?.messages).toEqual([...conversation("a", 10).messages, late]);
    store.discard("a");
    expect(store.get("a")).toBeDefined();
  });

  test("that were deleted leave nothing behind", () => {
    for (const id of ["a", "b", "c"]) put(store, conversation(id, 10));
    for (const id of ["a", "b"]) store.remove(id, 1_000_000);
    store.discard("a");
    store.put("a", { id: "late", at: 15, role: "user", text: "by a tab that has not noticed", ending: "done" });
    store.sweep(1_000_000);
    const keys = (): string[] => Object.keys(storage).map((key) => key.slice("tinychat:/:chat:".length, "tinychat:/:chat:".length + 1));
    expect(new Set(keys())).toEqual(new Set(["b", "c"]));
    store.sweep(2_000_000);
    expect(new Set(keys())).toEqual(new Set(["c"]));
    expect(store.get("c")).toEqual(conversation("c", 10));
  });

  test("can be deleted from a storage that is full to the last byte", () => {
    put(store, conversation("a", 10, "x"));
    for (let size = 1 << 20; size > 0; ) {
      try {
        storage.setItem(`other${storage.length}`, "x".repeat(size));
      } catch {
        size >>= 1;
      }
    }
    store.remove("a", Date.now());
    expect(new ConversationStore(new LocalStore(storage, "tinychat:/:")).get("a")).toBeUndefined();
  });

  test("do not show half a turn when the other half was not stored", () => {
    put(store, conversation("a", 10));
    store.put("a", { id: "answer", at: 21, role: "assistant", to: "not stored", text: "Yes.", ending: "done" });
    expect(store.get("a")?.messages).toHaveLength(2);
  });

  describe("of the earlier form", () => {
    const told = [
      { id: "e-1", at: 1000, role: "user", text: "One", ending: "done" },
      { id: "e-2", at: 1001, role: "assistant", to: "e-1", text: "Two", ending: "length", stats: { tokens: 2, tokensPerSecond: 50 } },
      { id: "e-3", at: 1002, role: "user", text: "Three", ending: "done" },
    ];
    beforeEach(() => storage.setItem("tinychat:/:chat:e", JSON.stringify(earlier("e", 5000))));

    test("are listed and opened", () => {
      expect(store.list()).toEqual([{ id: "e", title: "One", updatedAt: 5000 }]);
      expect(store.get("e")).toEqual({ id: "e", title: "One", createdAt: 1000, messages: told });
    });

    test("go on, and can have an answer replaced", () => {
      store.put("e", { id: "four", at: 6000, role: "assistant", to: "e-3", text: "Four", ending: "done" });
      store.put("e", { id: "two", at: 7000, role: "assistant", to: "e-1", text: "Two again", ending: "done" });
      expect(store.list()[0]?.updatedAt).toBe(7000);
      expect(store.get("e")?.messages.map(({ text }) => text)).toEqual(["One", "Two again", "Three", "Four"]);
    });

    test("are deleted and brought back", () => {
      const removed = store.remove("e", 8000);
      expect(store.list()).toEqual([]);
      expect(JSON.stringify({ ...storage })).not.toContain("Three");
      if (removed !== undefined) store.restore(removed);
      expect(store.get("e")?.messages).toEqual(told);
    });
  });
});

test("messages are in one order, however they arrive", () => {
  const message = (id: string, at: number, to?: string): Message => ({
    id,
    at,
    role: to === undefined ? "user" : "assistant",
    text: id,
    ending: "done",
    ...(to === undefined ? {} : { to }),
  });
  const said = [
    message("b", 5),
    message("a", 5),
    message("a1", 6, "a"),
    message("a2", 9, "a"),
    message("b1", 7, "b"),
    message("c", 8),
    message("x", 9, "gone"),
  ];
  for (let turn = 0; turn < said.length; turn++) {
    said.push(said.shift() as Message);
    expect(arrange(said).map(({ id }) => id)).toEqual(["a", "a2", "b", "b1", "c"]);
  }
});

describe("parseHead", () => {
  test("keeps what is sound", () => {
    const parsed = parseHead({
      id: "x",
      messages: [
        { id: "1", role: "user", text: "\u200b\nHello\nthere", ending: "nonsense" },
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
        { id: "1", at: 0, role: "user", text: "\u200b\nHello\nthere", ending: "done" },
        { id: "4", at: 4, role: "assistant", to: "1", text: "Hi", ending: "context" },
      ],
    });
  });
  test.each([null, 3, "x", [], {}, { id: "" }, { id: "x" }, { id: "x", deletedAt: 5 }])("is undefined for %j", (value) =>
    expect(parseHead(value)).toBeUndefined(),
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

test("what did not fit is stored as soon as there is room", () => {
  const storage = localStorageOf(1000);
  storage.setItem("other", "x".repeat(900));
  const store = new LocalStore(storage, "p:");
  store.set("a", "y".repeat(200));
  store.set("b", 1);
  expect(store.complete).toBe(false);
  expect([store.get("a"), store.get("b")]).toEqual(["y".repeat(200), 1]);
  storage.removeItem("other");
  store.set("c", 2);
  expect(store.complete).toBe(true);
  expect(new LocalStore(storage, "p:").get("a")).toBe("y".repeat(200));
});
