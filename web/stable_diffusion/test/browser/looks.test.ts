/** Every state of the page on desktop and phone, light and dark: nothing broken, nothing inaccessible. With pictures. */

import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { DESKTOP, open, overflow, PHONE, reaches, shoot, tooSmallToTouch, violations, type OpenOptions } from "tinyweb-shell/testing";
import { browser, paint, useBrowser } from "./using";

useBrowser();

interface Scene {
  name: string;
  options: OpenOptions;
  act(page: Page): Promise<void>;
}

const SCENES: Scene[] = [
  { name: "empty", options: {}, act: (page) => reaches(page, "ready") },
  { name: "loading", options: { mock: "slow" }, act: (page) => page.getByText("3.1 of 7.8 MB").waitFor() },
  {
    name: "painting",
    options: { mock: "hanging" },
    async act(page) {
      await page.getByTestId("prompt").fill("a blue square on a yellow background");
      await page.getByTestId("generate").click();
      await page.getByText("Step 2 of 6", { exact: true }).waitFor();
    },
  },
  {
    name: "gallery",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      for (const prompt of ["a red circle", "a blue square on a yellow background", "a green circle on a black background", "a pink square on a cyan background"]) await paint(page, prompt);
      await page.getByTestId("picture").nth(3).waitFor();
    },
  },
  {
    name: "start-picture",
    options: { mock: "fast,large" },
    async act(page) {
      await reaches(page, "ready");
      await paint(page, "an orange circle on a purple background");
      await page.getByTestId("vary").click();
      await page.getByTestId("start-picture").waitFor();
    },
  },
  {
    name: "broken",
    options: { mock: "fast,full" },
    async act(page) {
      await page.getByTestId("prompt").fill("a red circle");
      await page.getByTestId("generate").click();
      await page.getByTestId("error").waitFor();
    },
  },
];

const LOOKS = [
  { device: DESKTOP, dark: false, looks: "desktop-light" },
  { device: PHONE, dark: true, looks: "phone-dark" },
  // The others differ in nothing that a check would find: for the pictures.
  ...(process.env["TINYWEB_SHOTS"] === undefined
    ? []
    : [{ device: DESKTOP, dark: true, looks: "desktop-dark" }, { device: PHONE, dark: false, looks: "phone-light" }]),
];

describe.each(SCENES)("$name", ({ name, options, act }) => {
  test.each(LOOKS)("$looks", async ({ device, dark, looks }) => {
    const { page, context, problems, foreign } = await open(browser(), { ...options, device, dark, reducedMotion: true });
    await act(page);
    await shoot(page, `${name}-${looks}`);
    expect(await violations(page)).toEqual([]);
    expect(await overflow(page)).toBe(0);
    if (device === PHONE) expect(await tooSmallToTouch(page)).toEqual([]);
    expect(problems).toEqual([]);
    expect(foreign.filter((url) => !url.startsWith("blob:"))).toEqual([]);
    await context.close();
  });
});
