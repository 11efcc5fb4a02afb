/** What the tests of the page share: one browser for a file, and opening a page that must end without problems. */

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect } from "vitest";
import { launch, open, type OpenOptions, type Opened } from "./support";

export let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

export interface Mock {
  loads: number;
  disposed: number;
  loadOptions: { backend?: string }[];
  asked: { messages: { role: string; content: string }[]; options: Record<string, unknown> }[];
  continue(): void;
}

export function mockOf(page: Page): Promise<Omit<Mock, "continue">> {
  return page.evaluate(() => JSON.parse(JSON.stringify((window as unknown as { mock: Mock }).mock)) as Mock);
}

/** Opens a page, does something with it, and demands that nothing went wrong on the way. */
export async function using(options: OpenOptions, act: (opened: Opened) => Promise<void>): Promise<void> {
  const opened = await open(browser, options);
  try {
    await act(opened);
    expect(opened.problems).toEqual([]);
    expect(opened.foreign).toEqual([]);
  } finally {
    await opened.context.close();
  }
}

export function focusedTestId(page: Page): Promise<string | null> {
  return page.evaluate(() => document.activeElement?.getAttribute("data-testid") ?? null);
}
