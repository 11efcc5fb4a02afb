/** What the tests of the page do with it. */

import type { Page } from "playwright-core";
import { reaches } from "tinyweb-shell/testing";

export { useBrowser } from "tinyweb-shell/testing";

export async function run(page: Page): Promise<void> {
  await reaches(page, "ready");
  await page.getByTestId("run").click();
  await page.getByTestId("times").waitFor();
  await reaches(page, "ready");
}

/** A picture of one colour, as a PNG made in the page. */
export async function picture(page: Page, colour: string): Promise<{ name: string; mimeType: string; buffer: Buffer }> {
  const data = await page.evaluate((fill) => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [40, 30];
    const context = canvas.getContext("2d") as CanvasRenderingContext2D;
    context.fillStyle = fill;
    context.fillRect(0, 0, 40, 30);
    return canvas.toDataURL("image/png").split(",")[1] as string;
  }, colour);
  return { name: `${colour}.png`, mimeType: "image/png", buffer: Buffer.from(data, "base64") };
}
