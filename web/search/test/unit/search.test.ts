/** Words, ranking, files and what storage may hold. */

import { describe, expect, test } from "vitest";
import { Finder, type Surroundings } from "../../src/app/finder";
import { Library, parseDoc, type Doc } from "../../src/app/library";
import { rank, rankPictures } from "../../src/app/rank";
import { isPicture } from "../../src/pictures";
import { decode, FileError, nameOf, textOfFile } from "../../src/text/files";
import { highlight, keywords, share, stem } from "../../src/text/words";

function doc(id: string, rows: [string, number[]][], done = rows.length): Doc {
  let text = "";
  const passages = rows.map(([words]) => {
    const start = text.length;
    text += `${words}\n\n`;
    return { start, end: start + words.length };
  });
  return { id, name: id, text, addedAt: 1, passages, vectors: Float32Array.from(rows.flatMap(([, v]) => v)), done, model: "m" };
}

describe("words", () => {
  test("of one stem find each other", () => {
    for (const [a, b] of [
      ["train", "trains"],
      ["baking", "bake"],
      ["stopped", "stops"],
      ["Plants", "plant"],
      ["quick", "quickly"],
      ["box", "boxes"],
    ]) {
      expect(stem(a as string), `${a} ${b}`).toBe(stem(b as string));
    }
    expect(stem("cat")).not.toBe(stem("cash"));
  });

  test("that say nothing are no keywords", () => {
    expect([...keywords("How do the plants make their food?")]).toEqual(["plant", "mak", "food"]);
    expect(keywords("what is it").size).toBe(0);
  });

  test("are marked where they stand", () => {
    const runs = highlight("A train: two trains.", keywords("train"));
    expect(runs.map(({ text }) => text).join("")).toBe("A train: two trains.");
    expect(runs.filter(({ marked }) => marked).map(({ text }) => text)).toEqual(["train", "trains"]);
    expect(highlight("<b>&amp;</b>", new Set())).toEqual([{ text: "<b>&amp;</b>", marked: false }]);
    expect(share("Müller's trains", keywords("train Müller zebra"))).toBeCloseTo(2 / 3);
  });
});

test("pictures are known by type or name", () => {
  const is = (name: string, type = ""): boolean => isPicture(new File([], name, { type }));
  expect([is("a.JPG"), is("b.heic"), is("camera", "image/webp"), is("c.png", "image/png")]).toEqual([true, true, true, true]);
  expect([is("a.txt", "text/plain"), is("drawing.svg", "image/svg+xml"), is("png")]).toEqual([false, false, false]);
});

describe("rank", () => {
  const docs = [
    doc("a", [
      ["one", [1, 0]],
      ["two words", [0.8, 0.6]],
      ["three", [0, 1]],
    ]),
    doc(
      "b",
      [
        ["four", [0.6, 0.8]],
        ["not yet", [1, 0]],
      ],
      1,
    ),
  ];

  test("puts the nearest first, and leaves out what is not there", () => {
    expect(rank(docs, Float32Array.of(1, 0), new Set(), 10).map(({ text }) => text)).toEqual(["one", "two words", "four"]);
    expect(rank(docs, Float32Array.of(1, 0), new Set(), 1)).toHaveLength(1);
  });

  test("heeds words that are shared", () => {
    const [best] = rank(docs, Float32Array.of(0.95, 0.312), keywords("words"), 10);
    expect(best?.text).toBe("two words");
  });

  test("puts pictures apart", () => {
    const picture = (id: string, vector: number[], done = 1): Doc => ({ ...doc(id, [["", vector]], done), picture: new Blob([]) });
    const all = [...docs, picture("p", [0.8, 0.6]), picture("q", [1, 0]), picture("waits", [1, 0], 0), picture("other", [1, 0, 0])];
    const names = (scale: number, limit: number, except?: string): string[] =>
      rankPictures(all, Float32Array.of(1, 0), scale, limit, except).map(({ doc: { id } }) => id);
    expect(names(1, 10)).toEqual(["q", "p"]);
    expect(names(1, 1)).toEqual(["q"]);
    expect(names(1, 10, "q")).toEqual(["p"]);
    expect(rank(all, Float32Array.of(1, 0), new Set(), 10).map(({ doc: { id } }) => id)).toEqual(["a", "a", "b"]);
    const many = Array.from({ length: 9 }, (_, i) => picture(`${i}`, [1 - i / 20, i / 20]));
    expect(rankPictures(many, Float32Array.of(1, 0), 100, 20)).toHaveLength(6);
    expect(rankPictures(many, Float32Array.of(1, 0), 10, 20)).toHaveLength(9);
  });

  test("leaves out the passage that others are to be like, and vectors of other models", () => {
    expect(rank(docs, Float32Array.of(1, 0), new Set(), 10, { doc: "a", index: 0 })[0]?.text).toBe("two words");
    expect(rank(docs, Float32Array.of(1, 0, 0), new Set(), 10)).toEqual([]);
  });
});

describe("files", () => {
  const file = (name: string, content: BlobPart, type = ""): File => new File([content], name, { type });

  test("are text in any of the usual encodings", async () => {
    expect(await textOfFile(file("a.txt", "grün\r\nblau"))).toBe("grün\nblau");
    expect(decode(Uint8Array.of(0x67, 0x72, 0xfc, 0x6e))).toBe("grün");
    expect(decode(Uint8Array.of(0xff, 0xfe, 0x67, 0, 0xfc, 0))).toBe("gü");
    expect(decode(Uint8Array.of(1, 0, 2))).toBeUndefined();
  });

  test("that are none are refused with what to do", async () => {
    await expect(textOfFile(file("a.PDF", "x"))).rejects.toThrowError(/PDF files cannot be read here/u);
    await expect(textOfFile(file("noname", "x", "application/pdf"))).rejects.toThrowError(/PDF/u);
    await expect(textOfFile(file("a.docx", "x"))).rejects.toThrowError(/word processors/u);
    await expect(textOfFile(file("a.txt", " \n"))).rejects.toThrowError(FileError);
    await expect(textOfFile(file("a.png", "\0\0"))).rejects.toThrowError(/is no text/u);
  });

  test("names of pasted texts are their first words", () => {
    expect(nameOf("# Title\n\nText")).toBe("Title");
    expect(nameOf("word ".repeat(40))).toMatch(/^(word ?)+…$/u);
    expect(nameOf("\n")).toBe("Pasted text");
  });
});

describe("the library", () => {
  test("takes what is damaged as a text that is to be read again", () => {
    const good = doc("a", [["one", [1, 0]]]);
    expect(parseDoc(good)).toEqual(good);
    for (const change of [
      { passages: [{}] },
      { vectors: [1] },
      { done: 2 },
      { model: 3 },
      { vectors: new Float32Array(3).subarray(0, 0) },
    ]) {
      expect(parseDoc({ ...good, ...change })).toMatchObject({ text: good.text, passages: [], done: 0 });
    }
    expect(parseDoc({ id: 1 })).toBeUndefined();
    expect(parseDoc(null)).toBeUndefined();
  });

  test("keeps documents in memory where there is no storage", async () => {
    const library = await Library.open("/");
    expect(library.trouble).toBe("refused");
    const [one, two] = [doc("a", [["one", [1, 0]]]), { ...doc("b", []), addedAt: 2 }];
    await library.put(one);
    await library.put(two);
    expect((await library.list()).map(({ id }) => id)).toEqual(["b", "a"]);
    await library.remove("b");
    expect(await library.list()).toEqual([one]);
    await library.clear();
    expect(await library.list()).toEqual([]);
  });
});

describe("reading that is stopped", () => {
  test("is said to be once all that was read is stored", async () => {
    const stored: number[] = [];
    let store = (): void => undefined;
    const library = {
      trouble: null,
      list: async () => [],
      put: (doc: Doc) =>
        new Promise<void>((resolve) => {
          const put = (): void => {
            stored.push(doc.done);
            resolve();
          };
          if (doc.done === 0) put();
          else store = put; // takes its time
        }),
    };
    const text = Array.from({ length: 60 }, (_, i) => `passage ${i}`).join("\n");
    const loaded = {
      info: { model: "m", dimensions: 1 },
      *passages(): Iterable<{ start: number; end: number }> {
        for (let i = 0; i < 60; i++) yield { start: i, end: i + 1 };
      },
      embed: async (texts: string[], { signal }: { signal?: AbortSignal }) => {
        await new Promise((resolve) => setTimeout(resolve));
        signal?.throwIfAborted();
        return texts.map(() => Float32Array.of(1));
      },
    };
    const model = {
      state: { engine: { phase: "ready", info: loaded.info } },
      onReady: () => undefined,
      dropNote: () => undefined,
      run: (act: (model: unknown, signal: AbortSignal) => Promise<unknown>, signal: AbortSignal) =>
        act(loaded, signal).then((result) => {
          signal.throwIfAborted();
          return result;
        }),
    };
    const shell = { model, storage: { get: () => true }, subscribe: () => () => undefined, announce: () => undefined };
    const finder = new Finder({
      shell,
      library: Promise.resolve(library),
      newId: () => "a",
      now: () => 1,
      ticks: () => 0,
      tell: () => undefined,
      persist: () => undefined,
    } as unknown as Surroundings);
    await finder.open();
    const read = new Promise<void>((resolve) => {
      const end = finder.subscribe(() => {
        if ((finder.state.docs[0]?.done ?? 0) < 4) return;
        end();
        finder.stop();
        resolve();
      });
    });
    await finder.add("book", text);
    await read;
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(finder.state).toMatchObject({ paused: true });
    expect(finder.state.work, "it is not stored yet").not.toBeNull();
    store();
    await expect.poll(() => finder.state.work, { timeout: 5000 }).toBeNull();
    expect(stored).toEqual([0, finder.state.docs[0]?.done]);
    expect(stored[1]).toBeGreaterThanOrEqual(4);
    // what goes on is not held up by it
    finder.goOn();
    await expect.poll(() => finder.state.docs[0]?.done, { timeout: 5000 }).toBe(60);
    store();
  });
});
