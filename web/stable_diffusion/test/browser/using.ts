/** What the tests of the page do with it. */

import type { Page } from "playwright-core";
import { reaches } from "tinyweb-shell/testing";

export { useBrowser } from "tinyweb-shell/testing";

export interface Asked {
  prompt: string;
  negativePrompt: string;
  steps: number;
  guidance: number;
  seed: number;
  width: number;
  height: number;
  scheduler: string;
  strength?: number;
  image?: number;
}

/** Asks for a picture and waits until it is there. */
export async function paint(page: Page, prompt: string): Promise<void> {
  await page.getByTestId("prompt").fill(prompt);
  await page.getByTestId("generate").click();
  await page.locator(`[data-testid="image"][alt="${prompt}"]`).waitFor();
  await reaches(page, "ready");
}

/** Red, green and blue of a picture's middle. */
export function middle(page: Page): Promise<number[]> {
  return page.getByTestId("image").evaluate(async (image) => {
    const element = image as HTMLImageElement;
    await element.decode();
    const canvas = document.createElement("canvas");
    canvas.width = element.naturalWidth;
    canvas.height = element.naturalHeight;
    const context = canvas.getContext("2d");
    context?.drawImage(element, 0, 0);
    return [...(context?.getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data ?? [])].slice(0, 3);
  });
}
