/** What the tests of the built page share. */

import type { Page } from "playwright-core";
import { reaches } from "tinyweb-shell/testing";

export { useBrowser } from "tinyweb-shell/testing";

/** The model is there, and everything has been read. */
export async function settled(page: Page): Promise<void> {
  await reaches(page, "ready");
  await page
    .getByTestId("documents")
    .getByText(/^\d+ passages?$/u)
    .first()
    .waitFor();
}

export async function ask(page: Page, query: string): Promise<void> {
  await page.getByTestId("query").fill(query);
  await page.locator(`[data-testid="results"][aria-busy="false"][data-query="${query}"]`).waitFor();
}

/** The text of the first result. */
export function first(page: Page): Promise<string> {
  return page.getByTestId("result-item").first().getByTestId("open-result").innerText();
}
