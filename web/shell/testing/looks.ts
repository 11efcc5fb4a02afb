/** How a page looks in each of its states, on all kinds of screens: nothing broken, nothing inaccessible. With pictures. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { CDPSession, Page } from "playwright-core";
import { describe, expect, test } from "vitest";
import {
  DESKTOP,
  open,
  overflow,
  PHONE,
  reaches,
  SMALL_PHONE,
  tooSmallToTouch,
  useBrowser,
  violations,
  type Opened,
  type OpenOptions,
  type Screen,
} from "./index";

export interface Scene {
  name: string;
  options: OpenOptions;
  act(page: Page): Promise<void>;
  /** Brings to light, on each screen, what only some of them show at once. */
  reveal?(page: Page): Promise<void>;
  /** The page goes on by itself: it is opened anew for each screen. */
  passing?: boolean;
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
      await page
        .getByText("GPU limits")
        .or(page.getByText("no WebGPU in this browser"))
        .or(page.getByText("none that WebGPU"))
        .first()
        .waitFor();
    },
  },
  { name: "download-failed", options: { mock: "download,fast" }, act: (page) => reaches(page, "error") },
];

interface Look {
  looks: string;
  screen: Screen;
  dark: boolean;
  /** The reader's own size of text. */
  textPercent?: number;
  /** The system draws in a few colours of its own. */
  forcedColors?: boolean;
}

const SIDEWAYS = { ...PHONE, viewport: { width: PHONE.viewport.height, height: PHONE.viewport.width } };
const LOOKS: readonly Look[] = [
  { looks: "desktop-light", screen: DESKTOP, dark: false },
  { looks: "phone-dark", screen: PHONE, dark: true },
];
/** Of these a page's first two scenes and a failure are enough to check; pictures are taken of all. */
const MORE_LOOKS: readonly Look[] = [
  { looks: "small-light", screen: SMALL_PHONE, dark: false },
  { looks: "landscape-dark", screen: SIDEWAYS, dark: true },
  { looks: "large-text-light", screen: PHONE, dark: false, textPercent: 200 },
  { looks: "contrast-dark", screen: DESKTOP, dark: true, forcedColors: true },
];
/** Colours do not depend on the size, nor sizes on the colours: for the pictures. */
const PICTURED: readonly Look[] = [
  { looks: "desktop-dark", screen: DESKTOP, dark: true },
  { looks: "phone-light", screen: PHONE, dark: false },
];
const sessions = new WeakMap<Page, CDPSession>();
/** The folder for pictures, if they are wanted. */
const PICTURES = process.env["TINYWEB_SHOTS"];

/** Of pixels, that the content has at least: the page is more than its controls. */
const LOWEST = 96;

/** Gives the tab that screen, or changes what it has: the page stays. */
async function wear({ page, context }: Opened, { screen, dark, textPercent = 100, forcedColors = false }: Look): Promise<void> {
  const session = sessions.get(page) ?? (await context.newCDPSession(page));
  sessions.set(page, session); // what it emulates ends with it
  const touch = screen.hasTouch === true;
  await session.send("Emulation.setDeviceMetricsOverride", {
    ...screen.viewport,
    deviceScaleFactor: screen.deviceScaleFactor ?? 1,
    mobile: screen.isMobile === true,
  });
  await session.send("Emulation.setTouchEmulationEnabled", { enabled: touch, ...(touch ? { maxTouchPoints: 5 } : {}) });
  // Fades would lower the contrast that is measured.
  await page.emulateMedia({
    colorScheme: dark ? "dark" : "light",
    forcedColors: forcedColors ? "active" : "none",
    reducedMotion: "reduce",
  });
  await page.evaluate((percent) => {
    document.documentElement.style.fontSize = percent === 100 ? "" : `${percent}%`;
  }, textPercent);
}

/** The layout of a new screen, and what the page does about it. */
function settle(page: Page): Promise<void> {
  return page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve()))));
}

async function shoot(page: Page, name: string): Promise<void> {
  const session = sessions.get(page);
  if (PICTURES === undefined || session === undefined) return;
  mkdirSync(PICTURES, { recursive: true });
  // In the pixels of the screen, which only the session that emulates it knows.
  const { data } = await session.send("Page.captureScreenshot", { format: "png" });
  writeFileSync(join(PICTURES, `${name}.png`), data, "base64");
}

/** What the page knows of the screen: that it is the one that is meant. */
function worn(page: Page): Promise<object> {
  return page.evaluate(() => ({
    size: [innerWidth, innerHeight],
    pixelRatio: devicePixelRatio,
    touch: matchMedia("(pointer: coarse) and (hover: none)").matches,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    forcedColors: matchMedia("(forced-colors: active)").matches,
    still: matchMedia("(prefers-reduced-motion: reduce)").matches,
    textPercent: (100 * parseFloat(getComputedStyle(document.documentElement).fontSize)) / 16,
  }));
}

async function check(
  { page, problems, foreign }: Opened,
  { name, reveal }: Scene,
  { looks, screen, dark, textPercent = 100, forcedColors = false }: Look,
): Promise<void> {
  const { viewport, deviceScaleFactor = 1, hasTouch = false } = screen;
  expect(await worn(page)).toEqual({
    size: [viewport.width, viewport.height],
    pixelRatio: deviceScaleFactor,
    touch: hasTouch,
    dark,
    forcedColors,
    still: true,
    textPercent,
  });
  await reveal?.(page);
  await shoot(page, `${name}-${looks}`);
  expect(await violations(page)).toEqual([]);
  expect(await overflow(page)).toEqual([]);
  if (screen !== DESKTOP) expect(await tooSmallToTouch(page)).toEqual([]);
  expect(await page.locator("main").evaluate((main) => main.clientHeight)).toBeGreaterThan(LOWEST);
  expect(problems).toEqual([]);
  expect(foreign).toEqual([]);
}

/** Tests a page's `scenes`, the most telling first, and what it has of the shell. */
export function testLooks(scenes: readonly Scene[]): void {
  useBrowser();
  const all = [...scenes, ...SHARED.filter(({ name }) => !scenes.some((scene) => scene.name === name))];
  describe.each(all)("$name", (scene) => {
    const index = all.indexOf(scene);
    const telling = index < 2 || scene.name === "download-failed"; // which leaves the content least room
    const looks = PICTURES !== undefined ? [...LOOKS, ...MORE_LOOKS, ...PICTURED] : telling ? [...LOOKS, ...MORE_LOOKS] : LOOKS;
    // The page is opened once, on a desktop or on a phone by turns; then the screen changes, as by turning or in another theme.
    const turns = index % 2 === 0 ? looks : [looks[1], looks[0], ...looks.slice(2)].filter((look) => look !== undefined);
    let opened: Opened | undefined;
    test.each(turns)("$looks", async (look) => {
      if (opened === undefined || scene.passing === true) {
        opened = undefined; // a scene that fails half way is played anew
        const tab = await open({ ...scene.options, prepare: (fresh) => wear(fresh, look) });
        if (look.textPercent !== undefined) await wear(tab, look);
        await scene.act(tab.page);
        opened = tab;
      } else {
        await wear(opened, look);
        await settle(opened.page);
      }
      await check(opened, scene, look);
    });
  });
}
