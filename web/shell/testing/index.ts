/** Pages in the tests' browser, and what most tests of a built page do with them. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type axe from "axe-core";
import type { BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { inject } from "vitest";
import type { PageState } from "../src/model/loader";
import { newContext } from "./browser";
import "./site"; // the type of what is injected

export { useBrowser } from "./browser";

export const DESKTOP = { viewport: { width: 1280, height: 800 } } as const;
export const PHONE = {
  viewport: { width: 390, height: 844 },
  deviceScaleFactor: 2,
  isMobile: true,
  hasTouch: true,
} as const;

export const SMALL_PHONE = { ...PHONE, viewport: { width: 320, height: 568 } } as const;

export interface Screen {
  viewport: { width: number; height: number };
  deviceScaleFactor?: number;
  isMobile?: boolean;
  hasTouch?: boolean;
}

export interface Opened {
  page: Page;
  context: BrowserContext;
  /** Whatever the page wrote to the console as an error, threw, or was refused by its policy. */
  problems: string[];
  /** Addresses asked for outside of the site. */
  foreign: string[];
}

export interface OpenOptions {
  /** What the pretended model does; see pretend.js and the page's test/mock/model.js. */
  mock?: string;
  query?: string;
  device?: Screen;
  dark?: boolean;
  reducedMotion?: boolean;
  /** Instead of `device`, `dark` and `reducedMotion`: gives the tab, which has no screen of its own, what it needs before the visit. */
  prepare?: (opened: Opened) => Promise<void>;
  /** In a context that no other test uses: for tests that put something into it that stays, such as an init script or a route. */
  alone?: boolean;
}

/** Pages that earlier tests of this file have left, by the options of their contexts: a new tab costs more than a visit. */
const left = new Map<string, Opened>();

/** A tab like new: nothing stored, nothing kept in memory. */
async function renew({ page, context, problems, foreign }: Opened): Promise<void> {
  const site = inject("siteUrl");
  for (const other of context.pages()) if (other !== page) await other.close();
  await page.goto(`${site}blank`);
  await page.evaluate(() => sessionStorage.clear());
  const session = await context.newCDPSession(page);
  await session.send("Storage.clearDataForOrigin", { origin: new URL(site).origin, storageTypes: "all" });
  await session.detach();
  problems.length = 0;
  foreign.length = 0;
}

async function newTab(options: BrowserContextOptions, keep: boolean): Promise<Opened> {
  const context = await newContext({ ...options, permissions: ["clipboard-read", "clipboard-write"] }, keep);
  const page = await context.newPage();
  const problems: string[] = [];
  const foreign: string[] = [];
  const site = inject("siteUrl");
  page.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("request", (request) => {
    if (!request.url().startsWith(site) && !/^(data|blob):/u.test(request.url())) foreign.push(request.url());
  });
  return { page, context, problems, foreign };
}

/** Opens the page with nothing stored: a first visit. Of two calls in a test with the same options, the second takes the first's tab. */
export async function open(options: OpenOptions = {}): Promise<Opened> {
  const { mock = "fast", query = "", device = DESKTOP, prepare, alone = false } = options;
  const emulated = {
    colorScheme: options.dark === true ? "dark" : "light",
    reducedMotion: options.reducedMotion === true ? "reduce" : "no-preference",
  } as const;
  const key = prepare === undefined ? JSON.stringify(device) : "prepared";
  const kept = alone ? undefined : left.get(key);
  if (kept !== undefined) await renew(kept);
  const opened = kept ?? (await newTab(prepare === undefined ? { ...device, ...emulated } : { viewport: null }, !alone));
  if (kept === undefined && !alone) {
    left.set(key, opened);
    opened.context.on("close", () => left.delete(key));
  }
  if (prepare !== undefined) {
    await prepare(opened);
  } else if (kept !== undefined) {
    await opened.page.emulateMedia(emulated);
    await opened.page.setViewportSize(device.viewport);
  }
  await opened.page.goto(`${inject("siteUrl")}?mock=${mock}${query === "" ? "" : `&${query}`}`);
  return opened;
}

/** Waits until the page is in that state. */
export async function reaches(page: Page, state: PageState): Promise<void> {
  await page.locator(`[data-state="${state}"]`).waitFor();
}

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe finds wrong, one line each. */
export async function violations(page: Page): Promise<string[]> {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  const { violations: found } = await page.evaluate(() => {
    // With the system's own colours, axe would compare the page's, which nobody sees.
    const enabled = !matchMedia("(forced-colors: active)").matches;
    return (globalThis as unknown as { axe: typeof axe }).axe.run({ rules: { "color-contrast": { enabled } } });
  });
  return found.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html}: ${node.failureSummary ?? ""}`));
}

/** What reaches beyond the sides of the screen, where nobody can scroll to. */
export function overflow(page: Page): Promise<string[]> {
  return page.evaluate(() =>
    [...document.querySelectorAll<HTMLElement>("body *")]
      .filter((element) => element.checkVisibility() && element.closest(".offscreen, pre, table") === null)
      .map((element) => ({ element, box: element.getBoundingClientRect() }))
      .filter(({ box }) => box.width > 0 && (box.left < -1 || box.right > innerWidth + 1))
      .map(({ element, box }) => `${element.outerHTML.slice(0, 80)} ${box.left} to ${box.right} of ${innerWidth}`),
  );
}

/** What can be touched and is smaller than 44 pixels. */
export function tooSmallToTouch(page: Page): Promise<string[]> {
  return page.evaluate(() =>
    [
      ...document.querySelectorAll<HTMLElement>(
        ".button, button, summary, select, textarea, input:not([type=radio]), label:has(input[type=radio])",
      ),
    ]
      .filter((element) => element.checkVisibility())
      .map((element) => ({ element, box: element.getBoundingClientRect() }))
      .filter(({ box }) => box.width < 43.5 || box.height < 43.5)
      .map(({ element, box }) => `${element.outerHTML.slice(0, 80)} ${box.width}x${box.height}`),
  );
}

/** `data-testid` of what has the focus. */
export function focusedTestId(page: Page): Promise<string | null> {
  return page.evaluate(() => document.activeElement?.getAttribute("data-testid") ?? null);
}

/** What pretend.js keeps as `window.mock`. */
export interface Mock<Asked = unknown> {
  loads: number;
  disposed: number;
  loadOptions: { backend?: string }[];
  asked: Asked[];
  continue(): void;
}

export function mockOf<Asked>(page: Page): Promise<Omit<Mock<Asked>, "continue">> {
  return page.evaluate(() => JSON.parse(JSON.stringify((window as unknown as { mock: Mock }).mock)) as Mock<never>);
}

/** Lets a download that stands still (`?mock=slow`) go on. */
export function goOn(page: Page): Promise<void> {
  return page.evaluate(() => (window as unknown as { mock: Mock }).mock.continue());
}
