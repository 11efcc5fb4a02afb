/** What the tests of the page do with it. */

import type { Page } from "playwright-core";

export { useBrowser } from "tinyweb-shell/testing";

/** A picture of stripes, as a PNG made in the page. */
export async function picture(page: Page, width = 480, height = 320): Promise<{ name: string; mimeType: string; buffer: Buffer }> {
  const data = await page.evaluate(
    ([w, h]) => {
      const canvas = document.createElement("canvas");
      canvas.width = w;
      canvas.height = h;
      const context = canvas.getContext("2d") as CanvasRenderingContext2D;
      const fill = context.createLinearGradient(0, 0, w, h);
      fill.addColorStop(0, "#89a8b2");
      fill.addColorStop(1, "#e5c9a6");
      context.fillStyle = fill;
      context.fillRect(0, 0, w, h);
      return canvas.toDataURL("image/png").split(",")[1] as string;
    },
    [width, height] as const,
  );
  return { name: "stripes.png", mimeType: "image/png", buffer: Buffer.from(data, "base64") };
}

export async function choose(page: Page): Promise<void> {
  await page.getByTestId("file").setInputFiles(await picture(page));
}

/** What the page has found, when it has looked. */
export async function boxes(page: Page): Promise<{ label: string; score: number; box: number[] }[]> {
  const filled = page.getByTestId("boxes").filter({ hasText: "[" });
  await page.getByTestId("result").filter({ hasText: /found/u }).waitFor();
  return JSON.parse((await filled.textContent()) ?? "") as { label: string; score: number; box: number[] }[]; // waits for another look
}
