/** A headless Chromium, pages of it, and what most tests do with them. */

import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { inject } from "vitest";

function findBrowser(): string {
  const fixed = [
    process.env["CHROME"] ?? "",
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
  ];
  const cache = process.env["PLAYWRIGHT_BROWSERS_PATH"] ?? join(homedir(), ".cache/ms-playwright");
  const kept = existsSync(cache)
    ? readdirSync(cache).flatMap((name) => ["chrome-linux/chrome", "chrome-linux64/chrome"].map((file) => join(cache, name, file)))
    : [];
  const found = [...fixed, ...kept].find((path) => path !== "" && existsSync(path));
  if (found === undefined) {
    throw new Error("No Chromium was found: run `make setup`, or set CHROME to the path of one.");
  }
  return found;
}

export function launch(): Promise<Browser> {
  return chromium.launch({ executablePath: findBrowser(), args: ["--no-sandbox"] });
}

export const DESKTOP = { viewport: { width: 1280, height: 800 } } as const;
export const PHONE = {
  viewport: { width: 390, height: 844 },
  deviceScaleFactor: 2,
  isMobile: true,
  hasTouch: true,
} as const;

export interface Opened {
  page: Page;
  context: BrowserContext;
  /** Whatever the page wrote to the console as an error, threw, or was refused by its policy. */
  problems: string[];
  /** Addresses asked for outside of the site. */
  foreign: string[];
}

export interface OpenOptions {
  /** What the pretended model does; see test/mock/model.js. */
  mock?: string;
  query?: string;
  device?: typeof DESKTOP | typeof PHONE;
  dark?: boolean;
  reducedMotion?: boolean;
}

export async function open(browser: Browser, options: OpenOptions = {}): Promise<Opened> {
  const { mock = "fast", query = "", device = DESKTOP, dark = false, reducedMotion = false } = options;
  const context = await browser.newContext({
    ...device,
    colorScheme: dark ? "dark" : "light",
    reducedMotion: reducedMotion ? "reduce" : "no-preference",
    permissions: ["clipboard-read", "clipboard-write"],
  });
  const page = await context.newPage();
  const problems: string[] = [];
  const foreign: string[] = [];
  const site = inject("siteUrl");
  page.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("request", (request) => {
    if (!request.url().startsWith(site) && !request.url().startsWith("data:")) foreign.push(request.url());
  });
  await page.goto(`${site}?mock=${mock}${query === "" ? "" : `&${query}`}`);
  return { page, context, problems, foreign };
}

export async function reaches(page: Page, state: "loading" | "ready" | "generating" | "error"): Promise<void> {
  await page.locator(`[data-state="${state}"]`).waitFor();
}

export async function say(page: Page, text: string): Promise<void> {
  await page.getByTestId("prompt").fill(text);
  await page.getByTestId("send").click();
}

/** Sends the text and waits for the whole answer. */
export async function ask(page: Page, text: string): Promise<string> {
  await say(page, text);
  await reaches(page, "ready");
  return (await page.getByTestId("message-assistant").last().textContent()) ?? "";
}

/** Pictures go to the folder in TINYCHAT_SHOTS, if it is set. */
export async function shoot(page: Page, name: string): Promise<void> {
  const folder = process.env["TINYCHAT_SHOTS"];
  if (folder === undefined) return;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`) });
}
