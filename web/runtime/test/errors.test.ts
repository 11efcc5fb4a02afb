import { describe, expect, it, vi } from "vitest";
import {
  aborted,
  asTinywebError,
  describe as words,
  fromWire,
  isAbort,
  linkedAbort,
  throwIfAborted,
  TinywebError,
  together,
  toWire,
} from "../src/errors.js";

const tick = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

describe("an error", () => {
  it("has a code, the platform's name where a signal stopped the call, and a cause if there is one", () => {
    expect(new TinywebError("gpu-error", "Broken.")).toMatchObject({ code: "gpu-error", name: "TinywebError", message: "Broken." });
    expect(aborted()).toMatchObject({ code: "aborted", name: "AbortError", message: "Stopped." });
    expect("cause" in new TinywebError("internal", "x")).toBe(false);
    for (const cause of [null, 0, "x"]) expect(new TinywebError("internal", "x", cause).cause).toBe(cause);
  });

  it.each<[unknown, string]>([
    [new Error("why"), "why"],
    [{ message: "of a GPU" }, "of a GPU"],
    [new TypeError(""), "TypeError"],
    ["text", "text"],
    [5, "5"],
    [null, "null"],
    [undefined, "undefined"],
    [{ name: "N" }, "N"],
  ])("in words: %o", (thrown, text) => {
    expect(words(thrown)).toBe(text);
  });

  it("is one of ours, whatever was thrown", () => {
    const own = new TinywebError("storage", "x");
    expect(asTinywebError(own)).toBe(own);
    const other = new RangeError("far");
    expect(asTinywebError(other)).toMatchObject({ code: "internal", message: "far", cause: other });
    expect(asTinywebError(new DOMException("x", "AbortError"))).toMatchObject({ code: "aborted", message: "Stopped." });
  });

  it("crosses to another thread and back", () => {
    const error = new TinywebError("hash-mismatch", "Wrong.");
    const wire = toWire(error);
    expect(wire).toEqual({ code: "hash-mismatch", message: "Wrong.", stack: error.stack });
    const back = fromWire(structuredClone(wire));
    expect(back).toBeInstanceOf(TinywebError);
    expect([back.code, back.message, back.stack, back.name]).toEqual(["hash-mismatch", "Wrong.", error.stack, "TinywebError"]);
    expect(toWire("odd")).toMatchObject({ code: "internal", message: "odd" });
  });

  it("tells whether a signal was the reason", () => {
    const yes = [aborted(), new DOMException("x", "AbortError"), { code: "aborted" }, { name: "AbortError" }];
    const no = [new Error("x"), null, undefined, "aborted", { code: "internal", name: "Error" }];
    expect(yes.map(isAbort)).toEqual(yes.map(() => true));
    expect(no.map(isAbort)).toEqual(no.map(() => false));
    throwIfAborted(undefined);
    throwIfAborted(new AbortController().signal);
    expect(() => throwIfAborted(AbortSignal.abort())).toThrow(expect.objectContaining({ code: "aborted" }));
  });
});

describe("a linked controller", () => {
  it("fires with its signal, and by itself", () => {
    const outer = new AbortController();
    const { controller } = linkedAbort(outer.signal);
    expect(controller.signal.aborted).toBe(false);
    outer.abort();
    expect(controller.signal.aborted).toBe(true);
    expect(linkedAbort(outer.signal).controller.signal.aborted).toBe(true);
    const own = linkedAbort(undefined);
    own.unlink();
    own.controller.abort();
    expect(own.controller.signal.aborted).toBe(true);
  });

  it("hears no more once it is let go", () => {
    const outer = new AbortController();
    const { controller, unlink } = linkedAbort(outer.signal);
    unlink();
    outer.abort();
    expect(controller.signal.aborted).toBe(false);
  });
});

describe("parts side by side", () => {
  const stopped = (stop: AbortSignal): Promise<void> => new Promise((_, reject) => stop.addEventListener("abort", () => reject(aborted())));

  it("are waited for", async () => {
    const done: number[] = [];
    const part = async (n: number): Promise<void> => {
      for (let i = 0; i < n; i++) await tick();
      done.push(n);
    };
    await together(undefined, (stop) => [part(3), part(1), part(stop.aborted ? 9 : 2)]);
    expect(done).toEqual([1, 2, 3]);
    await together(undefined, async () => [part(4)]);
    expect(done).toEqual([1, 2, 3, 4]);
  });

  it("stop with the first failure, which is the one that is told, after all have ended", async () => {
    const first = new Error("first");
    let ended = false;
    const slow = async (stop: AbortSignal): Promise<void> => {
      await stopped(stop).catch(() => undefined);
      await tick();
      ended = true;
      throw new Error("later");
    };
    await expect(together(undefined, (stop) => [slow(stop), tick().then(() => Promise.reject(first))])).rejects.toBe(first);
    expect(ended).toBe(true);
    await expect(together(undefined, () => [Promise.reject<void>(undefined)])).rejects.toBeUndefined();
  });

  it("stop with the signal, whatever they fail with, and leave no listener", async () => {
    const controller = new AbortController();
    const leave = vi.spyOn(controller.signal, "removeEventListener");
    const running = together(controller.signal, (stop) => [
      stopped(stop).catch(() => {
        throw new Error("other words");
      }),
    ]);
    controller.abort();
    await expect(running).rejects.toMatchObject({ code: "aborted" });
    expect(leave).toHaveBeenCalledOnce();
    const { signal } = new AbortController();
    const left = vi.spyOn(signal, "removeEventListener");
    await expect(
      together(signal, () => {
        throw new Error("no beginning");
      }),
    ).rejects.toThrow("no beginning");
    expect(left).toHaveBeenCalledOnce();
  });
});
