/** What the tests of the built page share. */

import { Buffer } from "node:buffer";
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

/** Adds pictures of one colour, which their names begin with ("unreadable" aside), and waits until all have been read. */
export async function addPictures(page: Page, names: readonly string[]): Promise<void> {
  const before = await page.getByTestId("pictures").getByTestId("picture").count();
  const made = await page.evaluate(async (all) => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [40, 30];
    const context = canvas.getContext("2d") as CanvasRenderingContext2D;
    return all.map((name) => {
      context.fillStyle = /red|green|blue|gold|teal/u.exec(name)?.[0] ?? "black";
      context.fillRect(0, 0, 40, 30);
      return canvas.toDataURL("image/png").split(",", 2)[1] as string;
    });
  }, names);
  const files = made.map((data, i) => ({ name: `${names[i]}.png`, mimeType: "image/png", buffer: Buffer.from(data, "base64") }));
  await page.locator('input[accept^="image/"]').setInputFiles(files);
  const wanted = Math.min(before + names.length, 12);
  await page.waitForFunction(
    (count) =>
      document.querySelectorAll('[data-testid="pictures"] [data-testid="picture"]').length === count &&
      document.querySelector('[data-testid="pictures"] .waits') === null,
    wanted,
  );
}
