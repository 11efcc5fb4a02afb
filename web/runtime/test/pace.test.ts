import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Pace } from "../src/pace.js";

describe("what nobody watches", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
  afterEach(() => vi.useRealTimers());

  /** After how long it goes on, in milliseconds; undefined: not within a day. */
  async function waited(
    pace: Pace,
    perSecond: number,
    signal?: AbortSignal,
    meanwhile: (ms: number) => void = () => undefined,
  ): Promise<number | undefined | "stopped"> {
    let over = false as boolean | "stopped";
    void pace.wait(perSecond, signal).then(
      () => (over = true),
      () => (over = "stopped"),
    );
    for (let ms = 0; ms <= 5000; ms += 50) {
      await vi.advanceTimersByTimeAsync(ms === 0 ? 0 : 50);
      if (over === "stopped") return "stopped";
      if (over) return ms;
      meanwhile(ms);
    }
    await vi.advanceTimersByTimeAsync(86_400_000);
    return over ? Infinity : undefined;
  }

  it("goes slowly while it is hidden, if it may", async () => {
    const pace = new Pace();
    expect(await waited(pace, 1)).toBe(0); // it is seen at first
    pace.set(true);
    expect([await waited(pace, 1), await waited(pace, 4), await waited(pace, Infinity)]).toEqual([1000, 250, 0]);
    expect(await waited(pace, 0)).toBeUndefined();
    pace.set(false);
    expect(await waited(pace, 1)).toBe(0);
  });

  it("goes on as soon as it is seen, all that wait", async () => {
    const pace = new Pace();
    pace.set(true);
    const other = waited(pace, 0);
    expect(await waited(pace, 0, undefined, (ms) => pace.set(ms < 300))).toBe(350);
    expect(await other).toBeLessThanOrEqual(350);
    pace.set(true);
    pace.set(true); // still hidden
    expect(await waited(pace, 1)).toBe(1000);
  });

  it("is stopped by its signal", async () => {
    const pace = new Pace();
    pace.set(true);
    const controller = new AbortController();
    expect(await waited(pace, 0, controller.signal, (ms) => ms >= 100 && controller.abort())).toBe("stopped");
  });
});
