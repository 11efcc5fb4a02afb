import { expect, it, vi } from "vitest";
import { Lock } from "../src/lock.js";

const tick = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

it("calls wait for one another, in the order they came", async () => {
  const lock = new Lock();
  const log: string[] = [];
  const call = async (name: string): Promise<void> => {
    const release = await lock.acquire();
    log.push(`+${name}`);
    await tick();
    log.push(`-${name}`);
    release();
  };
  await Promise.all(["a", "b", "c"].map(call));
  await call("d");
  expect(log).toEqual(["+a", "-a", "+b", "-b", "+c", "-c", "+d", "-d"]);
});

it("a call that is stopped while it waits goes at once, and lets in the next one only when it is its turn", async () => {
  const lock = new Lock();
  const first = await lock.acquire();
  const controller = new AbortController();
  const removed = vi.spyOn(controller.signal, "removeEventListener");
  const second = lock.acquire(controller.signal);
  let third = false;
  const waiting = lock.acquire(new AbortController().signal).then(() => (third = true));
  controller.abort();
  await expect(second).rejects.toMatchObject({ code: "aborted" });
  await tick();
  expect(third).toBe(false);
  first();
  await waiting;
  expect(third).toBe(true);
  expect(removed).toHaveBeenCalledOnce();
});

it("a signal that fired before keeps a call out, one that fires later does not matter", async () => {
  const lock = new Lock();
  const held = await lock.acquire();
  await expect(lock.acquire(AbortSignal.abort())).rejects.toMatchObject({ code: "aborted" });
  held();
  const controller = new AbortController();
  const release = await lock.acquire(controller.signal);
  controller.abort();
  release();
  expect(await lock.acquire()).toBeTypeOf("function");
});
