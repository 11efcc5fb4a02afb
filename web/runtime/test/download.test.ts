import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { fetchSized, fetchSmall, sleep, type DownloadSettings } from "../src/download.js";
import type { TinywebError } from "../src/errors.js";

const URL_ = "http://site.test/file.bin";

interface Asked {
  at: number;
  range: string | null;
  cache: string | undefined;
  signal: AbortSignal;
}

/** An answer, or what fetching throws; `null` for one that never comes. */
type Answer = Response | Error | null;

let asked: Asked[];
let begun: number;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  asked = [];
  begun = performance.now();
});
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0); // whatever happened, nothing is left waiting
  vi.useRealTimers();
});

/** A server that answers in turn, the last one again and again. */
function server(answers: (() => Answer)[], settings: Partial<DownloadSettings> = {}): DownloadSettings {
  return {
    fetch: async (url, init = {}) => {
      expect(url).toBe(URL_);
      const signal = init.signal as AbortSignal;
      asked.push({ at: performance.now() - begun, range: new Headers(init.headers).get("range"), cache: init.cache, signal });
      const answer = (answers[Math.min(asked.length, answers.length) - 1] as () => Answer)();
      if (answer instanceof Error) throw answer;
      if (answer) return answer;
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError"))));
    },
    ...settings,
  };
}

/** Waits for an end, with all the time in the world. */
async function settle<T>(work: Promise<T>): Promise<T | TinywebError> {
  let ended = false;
  const result = work.catch((error: unknown) => error as TinywebError).finally(() => (ended = true));
  for (let i = 0; i < 2000 && !ended; i++) await vi.advanceTimersByTimeAsync(500);
  expect(ended).toBe(true);
  return result;
}

const bytes = (...values: number[]): Uint8Array<ArrayBuffer> => Uint8Array.from(values);

/** Chunks, each after a pause; then the end, or what breaks off. */
function body(
  chunks: Uint8Array<ArrayBuffer>[],
  { pause = 0, end }: { pause?: number; end?: Error } = {},
  cancel?: () => void,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const left = [...chunks];
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        if (pause) await new Promise((resolve) => setTimeout(resolve, pause));
        const chunk = left.shift();
        if (chunk) controller.enqueue(chunk);
        else if (end) controller.error(end);
        else controller.close();
      },
      cancel: () => cancel?.(),
    },
    { highWaterMark: 0 },
  );
}

const small = (settings: DownloadSettings, most = 100): Promise<Uint8Array | TinywebError> => settle(fetchSmall(URL_, most, settings));

describe("sleep", () => {
  it("takes its time, and leaves no listener", async () => {
    const { signal } = new AbortController();
    const [taken, left] = [vi.spyOn(signal, "addEventListener"), vi.spyOn(signal, "removeEventListener")];
    let over = false;
    const sleeping = sleep(700, signal).then(() => (over = true));
    await vi.advanceTimersByTimeAsync(699);
    expect(over).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(over).toBe(true);
    await sleeping;
    expect(left.mock.calls[0]?.slice(0, 2)).toEqual(taken.mock.calls[0]?.slice(0, 2));
    const alone = sleep(5);
    await vi.advanceTimersByTimeAsync(5);
    await alone;
  });

  it("ends with its signal", async () => {
    const controller = new AbortController();
    const sleeping = expect(sleep(700, controller.signal)).rejects.toMatchObject({ code: "aborted" });
    controller.abort();
    expect(vi.getTimerCount()).toBe(0);
    await sleeping;
    await expect(sleep(700, controller.signal)).rejects.toMatchObject({ code: "aborted" });
  });
});

describe("patience", () => {
  it("waits longer each time, and gives up after the fourth attempt", async () => {
    const cause = new TypeError("Failed to fetch");
    expect(await small(server([() => cause]))).toMatchObject({
      code: "download-failed",
      message: `Could not download ${URL_}: Failed to fetch. Check the connection and try again.`,
      cause,
    });
    expect(asked.map(({ at }) => at)).toEqual([0, 500, 1500, 3500]);
  });

  it("is as long as it is told", async () => {
    await small(server([() => new TypeError("x")], { attempts: 3, backoffMs: 100 }));
    expect(asked.map(({ at }) => at)).toEqual([0, 100, 300]);
  });

  it.each([500, 503, 599, 408, 425, 429])("holds where the server answers %i", async (status) => {
    expect(await small(server([() => new Response("", { status }), () => new Response(bytes(7))]))).toEqual(bytes(7));
    expect(asked).toHaveLength(2);
    asked = [];
    expect(await small(server([() => new Response("", { status })]))).toMatchObject({
      code: "download-failed",
      message: `Could not download ${URL_}: the server answered ${status}. Check the connection and try again.`,
    });
    expect(asked).toHaveLength(4);
  });

  it.each([400, 403, 404, 410, 418, 426, 428, 430, 499])("ends where the server answers %i", async (status) => {
    expect(await small(server([() => new Response("", { status, statusText: "Words" })]))).toMatchObject({
      code: "download-failed",
      message: `Could not download ${URL_}: the server answered ${status} Words. Is the address right?`,
    });
    expect(asked).toHaveLength(1);
  });

  it("ends where nothing comes for half a minute, each time", async () => {
    expect(await small(server([() => null]))).toMatchObject({
      code: "download-failed",
      message: `Could not download ${URL_}: no data for 30 s. Check the connection and try again.`,
    });
    expect(asked.map(({ at }) => at)).toEqual([0, 30_500, 61_500, 93_500]);
    expect(asked.every(({ signal }) => signal.aborted)).toBe(true);
    expect(await small(server([() => null], { stallMs: 1500, attempts: 1 }))).toMatchObject({
      message: expect.stringContaining("no data for 1.5 s."),
    });
  });

  it("lasts as long as something comes", async () => {
    const slow = (): Response => new Response(body([bytes(1), bytes(2), bytes(3)], { pause: 20_000 }));
    expect(await small(server([slow]))).toEqual(bytes(1, 2, 3));
    expect(asked).toHaveLength(1);
    // Each attempt brings a byte: none counts as a failure in a row.
    asked = [];
    const [got, all] = [new Uint8Array(20), bytes(...Array.from({ length: 20 }, (_, i) => i))];
    const next = (): Response => {
      const at = asked.length - 1;
      const headers: HeadersInit = at ? { "content-range": `bytes ${at}-19/20` } : {};
      return new Response(body([all.slice(at, at + 1)], { end: new TypeError("reset") }), { status: at ? 206 : 200, headers });
    };
    await settle(fetchSized(URL_, 20, { start: 0, chunk: (part, at) => got.set(part, at) }, server([next])));
    expect(got).toEqual(all);
    expect(asked.map(({ at }) => at - (asked[0] as Asked).at)).toEqual(Array.from({ length: 20 }, (_, i) => 500 * i));
  });

  it("ends with the signal: before, under way, and between attempts", async () => {
    expect(await small(server([() => new Response("x")], { signal: AbortSignal.abort() }))).toMatchObject({ code: "aborted" });
    expect(asked).toEqual([]);
    for (const answer of [() => null, () => new TypeError("offline"), () => new Response(body([bytes(1)], { pause: 10_000 }))]) {
      const controller = new AbortController();
      const [taken, left] = [vi.spyOn(controller.signal, "addEventListener"), vi.spyOn(controller.signal, "removeEventListener")];
      const loading = fetchSmall(URL_, 9, server([answer], { signal: controller.signal }));
      const ended = expect(loading).rejects.toMatchObject({ code: "aborted" });
      await vi.advanceTimersByTimeAsync(100);
      controller.abort();
      await vi.advanceTimersByTimeAsync(0);
      await ended;
      expect(asked.at(-1)?.signal.aborted || answer() instanceof Error).toBe(true);
      expect(left.mock.calls.length).toBeGreaterThanOrEqual(1);
      expect(taken.mock.calls.length).toBeGreaterThanOrEqual(1);
      await vi.advanceTimersByTimeAsync(20_000);
    }
    expect(asked).toHaveLength(3);
  });

  it("does not take a stop for a failure", async () => {
    const controller = new AbortController();
    const ended = expect(fetchSmall(URL_, 9, server([() => null], { attempts: 1, signal: controller.signal }))).rejects.toMatchObject({
      code: "aborted",
    });
    controller.abort();
    await ended;
  });

  it("leaves no listener on the signal", async () => {
    const { signal } = new AbortController();
    const [taken, left] = [vi.spyOn(signal, "addEventListener"), vi.spyOn(signal, "removeEventListener")];
    await small(server([() => new TypeError("x"), () => new Response("y")], { signal }));
    expect(left.mock.calls.map(([, listener]) => listener)).toEqual(taken.mock.calls.map(([, listener]) => listener));
  });
});

describe("a small file", () => {
  it("is revalidated; where nothing answers, what the browser keeps is asked, in turn", async () => {
    const cause = new TypeError("offline");
    await small(server([() => cause]));
    expect(asked.map(({ cache }) => cache)).toEqual(["no-cache", "force-cache", "no-cache", "force-cache"]);
    asked = [];
    await small(server([() => new Response("", { status: 503 })]));
    expect(asked.map(({ cache }) => cache)).toEqual(["no-cache", "no-cache", "no-cache", "no-cache"]);
  });

  it("is whole, also if it comes in parts, breaks off once, or comes without a stream", async () => {
    const parts = [bytes(1, 2), bytes(3), bytes(4, 5)];
    const broken = (): Response => new Response(body(parts.slice(0, 2), { end: new TypeError("reset") }));
    expect(await small(server([broken, () => new Response(body(parts))]))).toEqual(bytes(1, 2, 3, 4, 5));
    const whole = {
      ok: true,
      status: 200,
      headers: new Headers(),
      body: null,
      arrayBuffer: async () => bytes(6, 7).buffer,
    } as unknown as Response;
    expect(await small(server([() => whole]))).toEqual(bytes(6, 7));
    expect(await small(server([() => new Response("")]))).toEqual(bytes());
  });

  it("may be as large as it may be, and no larger", async () => {
    expect(await small(server([() => new Response(body([bytes(1, 2), bytes(3)]))]), 3)).toEqual(bytes(1, 2, 3));
    asked = [];
    const cancelled = vi.fn();
    expect(await small(server([() => new Response(body([bytes(1, 2), bytes(3, 4)], {}, cancelled))]), 3)).toMatchObject({
      code: "download-failed",
      message: `Could not download ${URL_}: the file is larger than 3 bytes. Is the address right?`,
    });
    expect(asked).toHaveLength(1);
    expect(cancelled).toHaveBeenCalledOnce(); // the rest is not wanted
  });
});

describe("a file of known size", () => {
  const FILE = bytes(10, 11, 12, 13, 14, 15);
  let got: Uint8Array;
  let places: number[];
  const sized = (settings: DownloadSettings, start = 0, cache?: RequestCache): Promise<void | TinywebError> => {
    places = [];
    got = new Uint8Array(FILE.length).fill(99);
    got.set(FILE.slice(0, start));
    const chunk = (part: Uint8Array, at: number): void => {
      places.push(at);
      got.set(part, at);
    };
    return settle(fetchSized(URL_, FILE.length, { start, chunk }, settings, cache));
  };
  const rest = (at: number, from = at): Response =>
    new Response(body([FILE.slice(at)]), { status: 206, headers: { "content-range": `bytes ${from}-5/6` } });
  const whole = (): Response => new Response(body([FILE.slice(0, 4), FILE.slice(4)]));

  it("comes chunk by chunk", async () => {
    expect(await sized(server([whole], { attempts: 1 }))).toBeUndefined();
    expect([got, places]).toEqual([FILE, [0, 4]]);
    expect(asked).toMatchObject([{ range: null, cache: "default" }]);
    await sized(server([whole]), 0, "reload");
    expect(asked[1]).toMatchObject({ range: null, cache: "reload" });
  });

  it("goes on behind what is there, past the browser's cache", async () => {
    await sized(server([() => rest(2)]), 2);
    expect([got, places]).toEqual([FILE, [2]]);
    await sized(server([() => rest(2)]), 2, "reload");
    expect(asked).toMatchObject([
      { range: "bytes=2-", cache: "no-store" },
      { range: "bytes=2-", cache: "reload" },
    ]);
    asked = [];
    expect(await sized(server([whole]), 6)).toBeUndefined(); // all is there
    expect(asked).toEqual([]);
  });

  it("starts again where the server gives all, or refuses to go on", async () => {
    await sized(server([whole]), 2);
    expect([got, places]).toEqual([FILE, [0, 4]]);
    asked = [];
    await sized(server([() => new Response("", { status: 416 }), whole]), 3);
    expect([got, places]).toEqual([FILE, [0, 4]]);
    expect(asked.map(({ range }) => range)).toEqual(["bytes=3-", null]);
    expect(await sized(server([() => new Response("", { status: 416 })]), 3)).toMatchObject({
      message: expect.stringContaining(": the server refused to resume. Check"),
    });
  });

  it("takes a part only if it is the one that was asked for", async () => {
    const other = (): Response => rest(2, 1);
    await sized(server([other, whole]), 2);
    expect([got, places]).toEqual([FILE, [0, 4]]);
    expect(asked.map(({ range }) => range)).toEqual(["bytes=2-", null]);
    asked = [];
    await sized(server([() => new Response(body([FILE]), { status: 206, headers: { "content-range": "bytes 0-5/6" } })]));
    expect(asked).toHaveLength(1); // a part that is all
    expect(await sized(server([other]))).toMatchObject({
      code: "download-failed",
      message: expect.stringContaining(": the server sent another part than asked for. Check"),
    });
    expect(places).toEqual([]);
    await sized(server([() => new Response(body([FILE.slice(2)]), { status: 206 }), whole]), 2); // one that does not say which it is
    expect([got, places]).toEqual([FILE, [0, 4]]);
    await sized(server([() => new Response(body([FILE]), { headers: { "content-range": "bytes 2-5/6" } })]), 2); // no part, whatever it says
    expect([got, places]).toEqual([FILE, [0]]);
  });

  it("goes on where it broke off, and says where it ended for good", async () => {
    await sized(server([() => new Response(body([FILE.slice(0, 3)])), () => rest(3)]));
    expect([got, places]).toEqual([FILE, [0, 3]]);
    expect(asked.map(({ range }) => range)).toEqual([null, "bytes=3-"]);
    asked = [];
    const nothing = (): Response => new Response(body([]), { status: 206, headers: { "content-range": "bytes 3-5/6" } });
    expect(await sized(server([() => new Response(body([FILE.slice(0, 3)])), nothing]))).toMatchObject({
      code: "download-failed",
      message: `Could not download ${URL_}: the transfer ended after 3 of 6 bytes. Check the connection and try again.`,
    });
  });

  it("is given up where the server sends the same beginning again and again", async () => {
    const cut = (): Response => new Response(body([FILE.slice(0, 3)]));
    expect(await sized(server([cut]))).toMatchObject({ code: "download-failed", message: expect.stringContaining("after 3 of 6 bytes") });
    // The first attempt brings something new; three more may bring nothing.
    expect(asked.map(({ cache }) => cache)).toEqual(["default", "reload", "reload", "reload"]);
    asked = [];
    const broken = (): Response => new Response(body([FILE.slice(0, Math.min(asked.length, 3))], { end: new TypeError("reset") }));
    expect(await sized(server([broken]))).toMatchObject({ code: "download-failed" });
    expect(asked).toHaveLength(6); // three attempts that reach further, three that do not
  });

  it("waits for a slow beginning that comes a second time", async () => {
    const first = (): Response => new Response(body([FILE.slice(0, 3)], { end: new TypeError("reset") }));
    const again = (): Response =>
      new Response(
        body(
          [...FILE].map((byte) => bytes(byte)),
          { pause: 20_000 },
        ),
      );
    expect(await sized(server([first, again]))).toBeUndefined();
    expect([got, asked.length]).toEqual([FILE, 2]);
  });

  it("is no page, whatever the status", async () => {
    const page = (): Response => new Response("<!doctype html>", { headers: { "content-type": "text/html; charset=utf-8" } });
    const told = {
      code: "hash-mismatch",
      message: `${URL_}: text/html came, most likely the host's page for missing files. Was all of the site uploaded?`,
    };
    expect(await sized(server([page]))).toMatchObject(told);
    expect(await small(server([page]))).toMatchObject(told);
    expect(places).toEqual([]);
    expect(asked).toHaveLength(2);
  });

  it("is given up at once where it is longer", async () => {
    const cancelled = vi.fn();
    const longer = (): Response => new Response(body([FILE, bytes(1)], {}, cancelled));
    expect(await sized(server([longer]))).toMatchObject({
      code: "hash-mismatch",
      message: `${URL_} is longer than the 6 bytes the manifest names.`,
    });
    expect([asked.length, places]).toEqual([1, [0]]);
    expect(cancelled).toHaveBeenCalledOnce();
  });
});

describe("a body of bytes", () => {
  /** Bytes 1, 2, 3 … in pieces, as browsers give them. */
  const stream = (...sizes: number[]): Response => {
    let next = 1;
    return new Response(
      new ReadableStream({
        type: "bytes",
        pull(controller) {
          const size = sizes.shift();
          if (size === undefined) {
            controller.close();
            controller.byobRequest?.respond(0);
          } else controller.enqueue(Uint8Array.from({ length: size }, () => next++));
        },
      }),
    );
  };

  it("is read into the same memory again and again", async () => {
    const seen: Uint8Array<ArrayBuffer>[] = [];
    const file = new Uint8Array(6);
    const chunk = (part: Uint8Array<ArrayBuffer>, at: number): void => {
      seen.push(part);
      file.set(part, at);
    };
    await fetchSized(URL_, 6, { start: 0, chunk }, server([() => stream(3, 2, 1)]));
    expect(file).toEqual(bytes(1, 2, 3, 4, 5, 6));
    expect(seen.map(({ buffer }) => buffer.byteLength > 0)).toEqual([false, false, false]); // handed in for the next, and so gone
  });

  it("is kept where all of it is wanted", async () => {
    expect(await fetchSmall(URL_, 100, server([() => stream(3, 2, 1)]))).toEqual(bytes(1, 2, 3, 4, 5, 6));
  });
});
