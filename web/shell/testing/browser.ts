/**
 * The browser of the tests: one program for a whole run. It is started by Vitest's global set-up, `default`; files of tests
 * join it (`useBrowser()`) and open contexts (`newContext()`).
 */

import { existsSync, realpathSync } from "node:fs";
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type BrowserServer, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, inject } from "vitest";
import type { TestProject } from "vitest/node";
import { shared, startBrowser, within } from "./programs";

declare module "vitest" {
  export interface ProvidedContext {
    browser: string;
  }
}

/** Of a step in a page: a click, something to appear. */
const STEP_MS = 20_000;
const START_MS = 60_000;

export function findBrowser(): string {
  const shell = process.env["TINYWEB_BROWSER"] === "whole" ? [] : ["chromium-headless-shell"]; // as tools/browser.py does
  const names = [...shell, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].map((name) => `/usr/bin/${name}`);
  const places = [
    process.env["CHROME"] ?? "",
    ...names,
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    chromium.executablePath(),
  ];
  const found = places.find((place) => place !== "" && existsSync(place));
  if (found === undefined) throw new Error("No Chromium was found: run `make setup`, or set CHROME to the path of one.");
  return realpathSync(found);
}

/** WebGPU on the software adapter, no request of the browser's own, and a host's name that is not localhost. */
const FLAGS = [
  "--no-sandbox",
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-quic",
  "--no-first-run",
  "--host-resolver-rules=MAP phone.test 127.0.0.1",
];

/** Vitest's global set-up of every project that uses a browser. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const launch = (): Promise<BrowserServer> => chromium.launchServer({ executablePath: findBrowser(), args: FLAGS, timeout: START_MS });
  const [server, release] = await shared(
    "browser",
    () => startBrowser(launch),
    (made) => made.close(),
  );
  project.provide("browser", server.wsEndpoint());
  return release;
}

let running: Browser | undefined;
interface Watched {
  /** What its pages wrote to the console in this test. */
  said: string[];
  keep: boolean;
}

const open = new Map<BrowserContext, Watched>();

/** The browser of this file's tests, which begins with `useBrowser()`: in the file itself, as what it imports is loaded once for many. */
export function browser(): Browser {
  if (running === undefined) throw new Error("This file of tests has no browser: call useBrowser() at its top.");
  return running;
}

export function useBrowser(): void {
  beforeAll(async () => {
    running = await chromium.connect(inject("browser"), { timeout: START_MS });
  });
  afterEach(async ({ task }) => {
    const failed = task.result?.state === "fail";
    for (const [context, { said, keep }] of [...open]) {
      const error = failed ? task.result?.errors?.[0] : undefined;
      if (error) error.message += await describe(context, said);
      said.length = 0;
      if (!keep || failed) await within(STEP_MS, "a browser's context to close", context.close());
    }
  });
  afterAll(async () => {
    await running?.close();
    running = undefined;
  });
}

/**
 * A context whose steps have a limit; a failure tells the state of its pages.
 * @param keep whether it outlasts the test, if that succeeds
 */
export async function newContext(options: BrowserContextOptions = {}, keep = false): Promise<BrowserContext> {
  const context = await within(STEP_MS, "a new context of the browser", browser().newContext(options));
  const said: string[] = [];
  open.set(context, { said, keep });
  context.setDefaultTimeout(STEP_MS);
  context.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  context.on("weberror", (error) => said.push(`uncaught: ${error.error().message}`));
  context.on("close", () => open.delete(context));
  return context;
}

async function describe(context: BrowserContext, said: readonly string[]): Promise<string> {
  const text = (page: Page): Promise<string> => page.locator(":is(main, body:not(:has(main)))").innerText({ timeout: 3000 }).catch(String);
  const pages = await Promise.all(
    context.pages().map(async (page) => `\n  page ${page.url()}: ${(await text(page)).replaceAll(/\s+/gu, " ").slice(0, 600)}`),
  );
  return [...pages, ...said.slice(-12).map((line) => `\n  console ${line.slice(0, 300)}`)].join("");
}
