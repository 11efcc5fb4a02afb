/** Every state of the page on desktop and phone, light and dark: nothing broken, nothing inaccessible. With pictures. */

import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { DESKTOP, open, overflow, PHONE, reaches, shoot, tooSmallToTouch, violations, type OpenOptions } from "tinyweb-shell/testing";
import { boxes, browser, choose, useBrowser } from "./using";

useBrowser();

interface Scene {
  name: string;
  options: OpenOptions;
  act(page: Page): Promise<void>;
}

const SCENES: Scene[] = [
  { name: "empty", options: {}, act: (page) => reaches(page, "ready") },
  {
    name: "found",
    options: {},
    async act(page) {
      await choose(page);
      await boxes(page);
    },
  },
  {
    name: "classes",
    options: { mock: "many" },
    async act(page) {
      await reaches(page, "ready");
      await page.getByText("Look for").click();
      await page.getByTestId("search-classes").fill("1");
    },
  },
  {
    name: "bad-file",
    options: { mock: "nothing" },
    async act(page) {
      await choose(page);
      await page.getByText("Nothing found").first().waitFor();
      await page.getByTestId("file").setInputFiles({ name: "letter.txt", mimeType: "text/plain", buffer: Buffer.from("no picture") });
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
    await page.waitForTimeout(100); // the boxes are drawn with the next frame
    await shoot(page, `${name}-${looks}`);
    expect(await violations(page)).toEqual([]);
    expect(await overflow(page)).toBe(0);
    if (device === PHONE) expect(await tooSmallToTouch(page)).toEqual([]);
    expect(problems).toEqual([]);
    expect(foreign.filter((url) => !url.startsWith("blob:"))).toEqual([]);
    await context.close();
  });
});
