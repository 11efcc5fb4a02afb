/** Every state of the page on desktop and phone, light and dark: nothing broken, nothing inaccessible. With pictures. */

import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { DESKTOP, open, overflow, PHONE, reaches, shoot, type OpenOptions, violations } from "tinyweb-shell/testing";
import { ask, browser, say } from "./using";

interface Scene {
  name: string;
  options: OpenOptions;
  act(page: Page): Promise<void>;
}

const SCENES: Scene[] = [
  { name: "empty", options: {}, act: (page) => reaches(page, "ready") },
  {
    name: "loading",
    options: { mock: "slow" },
    act: (page) => page.getByText("3.1 of 7.8 MB").waitFor(),
  },
  {
    name: "queued",
    options: { mock: "slow" },
    async act(page) {
      await page.getByText("3.1 of 7.8 MB").waitFor();
      await say(page, "What is 7 plus 5?");
      await page.getByTestId("queued").waitFor();
    },
  },
  {
    name: "conversation",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "My name is Ada and I like prime numbers.");
      await ask(page, "What is my name?");
      await ask(page, "Tell me a story about a little fox");
    },
  },
  {
    name: "markdown",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "How do I sort a list in Python? Please answer in Markdown.");
    },
  },
  {
    name: "answering",
    options: { mock: "" },
    async act(page) {
      await reaches(page, "ready");
      await say(page, "Tell me a long story");
      await page.getByText("Part 2").waitFor();
    },
  },
  {
    name: "thinking",
    options: { mock: "thinking" },
    async act(page) {
      await reaches(page, "ready");
      await say(page, "Tell me a story about a little fox");
      await page.getByLabel("Thinking").waitFor();
    },
  },
  {
    name: "settings",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await page.getByTestId("settings").click();
      await page.getByTestId("settings-dialog").waitFor();
    },
  },
  {
    name: "conversations",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      for (const text of ["What is 7 plus 5?", "Tell me a story about a little fox who wants to see the sea", "Sort 49, 93, 3, 14"]) {
        await ask(page, text);
        await page.getByTestId("new-chat").click();
      }
      await ask(page, "What is the capital of France?");
      if ((page.viewportSize()?.width ?? 0) < 900) await page.getByTestId("conversations").click();
      await page.getByTestId("history").waitFor();
    },
  },
  {
    name: "settings-end",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "What is 7 plus 5?");
      await page.getByTestId("settings").click();
      await page.getByTestId("delete-all").scrollIntoViewIfNeeded();
    },
  },
  {
    name: "about",
    options: { mock: "no-webgpu,fast" },
    async act(page) {
      await reaches(page, "ready");
      await page.getByTestId("settings").click();
      await page.getByTestId("about-open").click();
      await page.getByText("GPU limits").or(page.getByText("no WebGPU in this browser")).or(page.getByText("none that WebGPU")).first().waitFor();
    },
  },
  {
    name: "interrupted",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await page.evaluate(() => localStorage.setItem("tinychat:/:loading", '"x"'));
      await page.reload();
      await reaches(page, "error");
    },
  },
  { name: "download-failed", options: { mock: "download,fast" }, act: (page) => reaches(page, "error") },
  { name: "out-of-memory", options: { mock: "memory,fast" }, act: (page) => reaches(page, "error") },
  { name: "no-backend", options: { mock: "no-backend,fast" }, act: (page) => reaches(page, "error") },
  {
    name: "no-webgpu",
    options: { mock: "one-thread,fast" },
    act: (page) => page.getByTestId("note").waitFor(),
  },
  {
    name: "device-lost",
    options: { mock: "lost,fast" },
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "Tell me a story about a little fox");
      await page.getByText("The model is back").waitFor();
    },
  },
  {
    name: "broken-answer",
    options: { mock: "broken,fast" },
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "Tell me a story about a little fox");
    },
  },
];

const LOOKS = [
  { deviceName: "desktop", device: DESKTOP, theme: "light" },
  { deviceName: "phone", device: PHONE, theme: "dark" },
  // Colours do not depend on the size, nor sizes on the colours: the other two are for the pictures.
  ...(process.env["TINYWEB_SHOTS"] === undefined
    ? []
    : [
        { deviceName: "desktop", device: DESKTOP, theme: "dark" },
        { deviceName: "phone", device: PHONE, theme: "light" },
      ]),
];

describe.each(LOOKS)("$deviceName, $theme", ({ deviceName, device, theme }) => {
  test.each(SCENES)("$name", async ({ name, options, act }) => {
    const { page, context, problems, foreign } = await open(browser, {
      ...options,
      device,
      dark: theme === "dark",
      // Fades would lower the contrast that is measured.
      reducedMotion: true,
    });
    await act(page);
    await shoot(page, `${name}-${deviceName}-${theme}`);
    expect(await violations(page)).toEqual([]);
    expect(await overflow(page)).toBe(0);
    expect(problems).toEqual([]);
    expect(foreign).toEqual([]);
    await context.close();
  });
});

test("a phone on its side shows the prompt and at least some of the conversation", async () => {
  const device = { ...PHONE, viewport: { width: 844, height: 390 } } as unknown as typeof PHONE;
  const { page, context } = await open(browser, { device });
  await reaches(page, "ready");
  await shoot(page, "empty-landscape-light");
  const prompt = await page.getByTestId("prompt").boundingBox();
  const scroller = await page.getByRole("main").boundingBox();
  expect(prompt !== null && prompt.y + prompt.height <= 390).toBe(true);
  expect(scroller?.height).toBeGreaterThan(150);
  await context.close();
});
