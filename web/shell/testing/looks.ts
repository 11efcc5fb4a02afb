/** How a page looks in each of its states, on all kinds of screens: nothing broken, nothing inaccessible. With pictures. */

import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import { DESKTOP, open, overflow, PHONE, reaches, shoot, SMALL_PHONE, tooSmallToTouch, useBrowser, violations, type OpenOptions } from "./index";

export interface Scene {
  name: string;
  options: OpenOptions;
  act(page: Page): Promise<void>;
}

/** What every page has of the shell. */
const SHARED: readonly Scene[] = [
  { name: "loading", options: { mock: "slow" }, act: (page) => page.getByText("3.1 of 7.8 MB").waitFor() },
  {
    name: "settings",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await page.getByTestId("settings").click();
      await page.getByTestId("stored").waitFor();
    },
  },
  {
    name: "settings-end",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await page.getByTestId("settings").click();
      await page.getByTestId("stored-usage").waitFor();
      await page.getByTestId("about-open").scrollIntoViewIfNeeded();
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
  { name: "download-failed", options: { mock: "download,fast" }, act: (page) => reaches(page, "error") },
];

interface Look extends OpenOptions {
  looks: string;
}

const SIDEWAYS = { ...PHONE, viewport: { width: PHONE.viewport.height, height: PHONE.viewport.width } };
const LOOKS: readonly Look[] = [
  { looks: "desktop-light", device: DESKTOP, dark: false },
  { looks: "phone-dark", device: PHONE, dark: true },
];
/** Of these every page's first two scenes are enough to check; pictures are taken of all. */
const MORE_LOOKS: readonly Look[] = [
  { looks: "small-light", device: SMALL_PHONE, dark: false },
  { looks: "landscape-dark", device: SIDEWAYS, dark: true },
  { looks: "large-text-light", device: PHONE, dark: false, textPercent: 200 },
  { looks: "contrast-dark", device: DESKTOP, dark: true, forcedColors: true },
];
/** Colours do not depend on the size, nor sizes on the colours: for the pictures. */
const PICTURED: readonly Look[] = [
  { looks: "desktop-dark", device: DESKTOP, dark: true },
  { looks: "phone-light", device: PHONE, dark: false },
];
const PICTURES = process.env["TINYWEB_SHOTS"] !== undefined;

/** Of pixels, that the content has at least: the page is more than its controls. */
const LOWEST = 96;

async function look({ name, options, act }: Scene, { looks, ...how }: Look): Promise<void> {
  // Fades would lower the contrast that is measured.
  const { page, problems, foreign } = await open({ ...options, ...how, reducedMotion: true });
  await act(page);
  await shoot(page, `${name}-${looks}`);
  expect(await violations(page)).toEqual([]);
  expect(await overflow(page)).toEqual([]);
  if (how.device !== DESKTOP) expect(await tooSmallToTouch(page)).toEqual([]);
  expect(await page.locator("main").evaluate((main) => main.clientHeight)).toBeGreaterThan(LOWEST);
  expect(problems).toEqual([]);
  expect(foreign).toEqual([]);
}

/** Tests a page's `scenes`, the most telling first, and what it has of the shell. */
export function testLooks(scenes: readonly Scene[]): void {
  useBrowser();
  const all = [...scenes, ...SHARED.filter(({ name }) => !scenes.some((scene) => scene.name === name))];
  describe.each(all)("$name", (scene) => {
    const looks = PICTURES ? [...LOOKS, ...MORE_LOOKS, ...PICTURED] : all.indexOf(scene) < 2 ? [...LOOKS, ...MORE_LOOKS] : LOOKS;
    test.each(looks)("$looks", (how) => look(scene, how));
  });
}
