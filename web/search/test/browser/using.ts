/** What the tests of the built page share. */

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll } from "vitest";
import { launch, reaches } from "tinyweb-shell/testing";

let running: Browser | undefined;

export function browser(): Browser {
  if (running === undefined) throw new Error("There is no browser yet.");
  return running;
}

/** Starts a browser for the tests of a file. */
export function useBrowser(): void {
  beforeAll(async () => {
    running = await launch();
  }, 60_000);
  afterAll(() => running?.close());
}

/** The model is there, and everything has been read. */
export async function settled(page: Page): Promise<void> {
  await reaches(page, "ready");
  await page.getByTestId("documents").getByText(/^\d+ passages?$/u).first().waitFor();
}

export async function ask(page: Page, query: string): Promise<void> {
  await page.getByTestId("query").fill(query);
  await page.locator(`[data-testid="results"][aria-busy="false"][data-query="${query}"]`).waitFor();
}

/** The text of the first result. */
export function first(page: Page): Promise<string> {
  return page.getByTestId("result-item").first().getByTestId("open-result").innerText();
}
