/** What the tests of the page share: talking, and opening a page that must end without problems. */

import type { Page } from "playwright-core";
import { mockOf as anyMockOf, open, reaches, type OpenOptions, type Opened } from "tinyweb-shell/testing";
import { expect } from "vitest";

export { useBrowser } from "tinyweb-shell/testing";

interface Asked {
  messages: { role: string; content: string }[];
  options: Record<string, unknown>;
}

export function mockOf(page: Page): ReturnType<typeof anyMockOf<Asked>> {
  return anyMockOf<Asked>(page);
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

/** Opens a page, does something with it, and demands that nothing went wrong on the way. */
export async function using(options: OpenOptions, act: (opened: Opened) => Promise<void>): Promise<void> {
  const opened = await open(options);
  await act(opened);
  expect(opened.problems).toEqual([]);
  expect(opened.foreign).toEqual([]);
}
