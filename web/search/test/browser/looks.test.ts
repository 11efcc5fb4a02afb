/** Every state of the page on desktop and phone, light and dark: nothing broken, nothing inaccessible. With pictures. */

import { Buffer } from "node:buffer";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { DESKTOP, open, overflow, PHONE, shoot, tooSmallToTouch, violations, type OpenOptions } from "tinyweb-shell/testing";
import { ask, browser, settled, useBrowser } from "./using";

useBrowser();

interface Scene {
  name: string;
  options: OpenOptions;
  act(page: Page): Promise<void>;
}

const SCENES: Scene[] = [
  { name: "welcome", options: {}, act: settled },
  { name: "loading", options: { mock: "slow" }, act: (page) => page.getByText("3.1 of 7.8 MB").waitFor() },
  {
    name: "results",
    options: {},
    async act(page) {
      await settled(page);
      await ask(page, "how do plants make their food");
    },
  },
  {
    name: "passage",
    options: {},
    async act(page) {
      await settled(page);
      await ask(page, "overnight trip by rail");
      await page.getByTestId("open-result").first().click();
      await page.getByTestId("passage").waitFor();
    },
  },
  {
    name: "similar",
    options: {},
    async act(page) {
      await settled(page);
      await ask(page, "bread");
      await page.getByTestId("similar").first().click();
      await page.getByTestId("like").waitFor();
    },
  },
  {
    name: "reading",
    options: { mock: "fast,crawling" },
    async act(page) {
      await page.getByTestId("documents").getByText(/[1-9]\d* of 14/u).waitFor();
    },
  },
  {
    name: "refused",
    options: {},
    async act(page) {
      await settled(page);
      await page.getByTestId("file").setInputFiles({ name: "a long name of a paper.pdf", mimeType: "application/pdf", buffer: Buffer.from("%PDF") });
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
    expect(foreign).toEqual([]);
    await context.close();
  });
});
