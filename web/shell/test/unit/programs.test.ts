/** What starts programs for tests: limits, second tries, and what a run shares. */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { errors } from "playwright-core";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { shared, startBrowser, within } from "../../testing/programs";

test("what takes too long is told by its name", async () => {
  vi.useFakeTimers();
  try {
    const waiting = expect(within(3000, "the page", new Promise(() => undefined))).rejects.toThrow("Waited 3 s for the page.");
    await vi.advanceTimersByTimeAsync(3000);
    await waiting;
    expect(await within(1000, "nothing", Promise.resolve(5))).toBe(5);
    await expect(within(1000, "nothing", Promise.reject(new Error("own")))).rejects.toThrow("own");
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

describe("a browser that does not come up", () => {
  let folder: string;
  const log = (): string[] => readFileSync(join(folder, "log"), "utf8").split("\n").filter(Boolean);
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "tinyweb-retries-"));
    vi.stubEnv("TINYWEB_RETRY_LOG", join(folder, "log"));
    vi.spyOn(console, "warn").mockImplementation(() => undefined);
  });
  afterEach(() => {
    vi.unstubAllEnvs();
    vi.restoreAllMocks();
    rmSync(folder, { recursive: true });
  });
  /** Fails so often with that error, then starts. */
  function failing(times: number, error: Error): { launch: () => Promise<string>; calls: () => number } {
    let calls = 0;
    return {
      launch: async () => {
        if (calls++ < times) throw error;
        return "up";
      },
      calls: () => calls,
    };
  }

  test.each([
    new errors.TimeoutError("browserType.launchServer: Timeout 60000ms exceeded."),
    new Error("browserType.launchServer: Target page, context or browser has been closed"),
  ])("is started once more, which is written down: %s", async (error) => {
    const once = failing(1, error);
    expect(await startBrowser(once.launch)).toBe("up");
    expect(log()).toEqual([`starting the browser: ${error.name}: ${error.message}`]);
    const twice = failing(2, error);
    await expect(startBrowser(twice.launch)).rejects.toBe(error);
    expect(twice.calls()).toBe(2);
  });

  test("is not tried again for another error", async () => {
    const wrong = failing(1, new TypeError("args.map is not a function"));
    await expect(startBrowser(wrong.launch)).rejects.toThrow("args.map");
    expect(wrong.calls()).toBe(1);
  });

  test("fails the run when it is the sixth", async () => {
    const closed = new Error("Target page, context or browser has been closed");
    for (let i = 0; i < 5; i++) expect(await startBrowser(failing(1, closed).launch)).toBe("up");
    await expect(startBrowser(failing(1, closed).launch)).rejects.toThrow("More than 5 programs had to be started twice");
    expect(log()).toHaveLength(6);
  });
});

test("what a run shares is made once, and ends with its last user", async () => {
  const log: string[] = [];
  const take = (): Promise<[number, () => Promise<void>]> =>
    shared(
      "of this test",
      async () => log.push("made"),
      async () => void log.push("ended"),
    );
  const [[first, releaseFirst], [second, releaseSecond]] = await Promise.all([take(), take()]);
  expect(second).toBe(first);
  await releaseFirst();
  expect(log).toEqual(["made"]);
  await releaseSecond();
  expect(log).toEqual(["made", "ended"]);
});
