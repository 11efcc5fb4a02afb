/** Painting, stopping, seeds, the gallery, files with settings inside. */

import { buffer } from "node:stream/consumers";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { mockOf, open, PHONE, reaches } from "tinyweb-shell/testing";
import { readRecipe } from "../../src/picture/metadata";
import { middle, paint, useBrowser, type Asked } from "./using";

useBrowser();

const asked = async (page: Page): Promise<Asked[]> => (await mockOf<Asked>(page)).asked;

test("a prompt becomes a picture, with the model's own settings", async () => {
  const { page, problems } = await open();
  await reaches(page, "ready");
  await paint(page, "a red circle");
  expect(await middle(page)).toEqual([222, 48, 52]);
  expect(await asked(page)).toMatchObject([
    { prompt: "a red circle", negativePrompt: "", steps: 6, guidance: 5, width: 128, height: 128, scheduler: "ddim" },
  ]);
  expect(await page.getByTestId("status").innerText()).toBe("Ready");
  expect(await page.getByTestId("backend").getAttribute("data-backend")).toBe("webgpu");
  expect(problems).toEqual([]);
});

test("every setting reaches the model", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  await page.getByTestId("negative").fill("blue");
  await page.getByTestId("steps").fill("3");
  await page.getByTestId("guidance").fill("7.5");
  await page.getByTestId("size").selectOption("192x128");
  await page.getByTestId("scheduler").selectOption("dpm++2m");
  await page.getByTestId("seed").fill("1234");
  await paint(page, "a cat");
  expect(await asked(page)).toMatchObject([
    { prompt: "a cat", negativePrompt: "blue", steps: 3, guidance: 7.5, seed: 1234, width: 192, height: 128, scheduler: "dpm++2m" },
  ]);
  // They are still there after a reload.
  await page.reload();
  await reaches(page, "ready");
  await expect.poll(() => page.getByTestId("seed").inputValue()).toBe("1234");
  expect(await page.getByTestId("prompt").inputValue()).toBe("a cat");
  expect(await page.getByTestId("steps").inputValue()).toBe("3");
});

test("a seed is another one each time, unless it is kept", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  for (let i = 0; i < 2; i++) await paint(page, `a red circle ${i}`);
  await page.getByTestId("lock-seed").click();
  for (let i = 2; i < 4; i++) await paint(page, `a red circle ${i}`);
  const seeds = (await asked(page)).map(({ seed }) => seed);
  expect(seeds[0]).not.toBe(seeds[1]);
  expect(seeds.slice(1)).toEqual([seeds[1], seeds[1], seeds[1]]);
  await page.getByTestId("dice").click();
  expect(await page.getByTestId("seed").inputValue()).not.toBe(String(seeds[1]));
});

test("steps are shown with previews; Ctrl+Enter paints, Esc stops at once", async () => {
  const { page } = await open({ mock: "hanging" });
  await page.getByTestId("prompt").fill("a red circle");
  await page.getByTestId("negative").press("Control+Enter");
  await reaches(page, "generating");
  await page.getByText("Step 2 of 6", { exact: true }).waitFor();
  await page.getByTestId("preview").waitFor();
  expect(await page.getByTestId("progress").evaluate((bar) => (bar as HTMLProgressElement).value)).toBe(2);
  expect(await page.getByTestId("status").innerText()).toBe("Drawing… step 2 of 6");
  expect(await page.getByTestId("image").count()).toBe(0);
  await page.keyboard.press("Escape");
  await reaches(page, "ready");
  expect(await page.getByTestId("generate").count()).toBe(1);
  expect(await page.getByTestId("announcement").innerText()).toBe("Stopped.");
});

test("a picture that is asked for early waits for the model", async () => {
  const { page } = await open({ mock: "" });
  await page.getByTestId("prompt").fill("a green square");
  await page.getByTestId("prompt").press("Enter");
  await page.getByTestId("image").waitFor();
  expect(await middle(page)).toEqual([66, 170, 78]);
});

test("the gallery survives a reload; pictures are shown, deleted and brought back", async () => {
  const { page, context } = await open();
  await reaches(page, "ready");
  await paint(page, "a red circle");
  await paint(page, "a blue circle");
  await page.getByTestId("picture").nth(1).waitFor();
  await page.reload();
  await page.getByTestId("picture").nth(1).waitFor();
  await page.locator('[data-testid="image"][alt="a blue circle"]').waitFor(); // the newest is shown
  await page.getByTestId("picture").nth(1).click();
  await page.locator('[data-testid="image"][alt="a red circle"]').waitFor();
  await page.getByTestId("delete").click();
  await expect.poll(() => page.getByTestId("picture").count()).toBe(1);
  await page.getByTestId("undo").click();
  await expect.poll(() => page.getByTestId("picture").count()).toBe(2);
  // Those of all tabs are the same.
  const other = await context.newPage();
  await other.goto(page.url());
  await other.getByTestId("picture").nth(1).waitFor();
  await other.getByTestId("delete").click();
  await expect.poll(() => page.getByTestId("picture").count()).toBe(1);
});

test("a download brings its settings along, and gives them back when it is dropped", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  await page.getByTestId("steps").fill("4");
  await page.getByTestId("negative").fill("日本");
  await paint(page, "a purple circle");
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByTestId("download").click()]);
  expect(download.suggestedFilename()).toMatch(/^a-purple-circle-\d+\.png$/u);
  const bytes = await buffer(await download.createReadStream());
  const recipe = readRecipe(bytes);
  expect(recipe).toMatchObject({ prompt: "a purple circle", negativePrompt: "日本", steps: 4, model: "tinysd", strength: null });

  await page.getByTestId("prompt").fill("something else");
  await page.getByTestId("steps").fill("6");
  await page.getByTestId("file").setInputFiles({ name: "old.png", mimeType: "image/png", buffer: bytes });
  await expect.poll(() => page.getByTestId("prompt").inputValue()).toBe("a purple circle");
  expect(await page.getByTestId("steps").inputValue()).toBe("4");
  expect(await page.getByTestId("seed").inputValue()).toBe(String(recipe?.seed));
  expect(await page.getByTestId("lock-seed").getAttribute("aria-pressed")).toBe("true");
  // It can also be begun from.
  await page.getByTestId("begin-from-it").click();
  await page.getByTestId("start-picture").waitFor();
});

test("image to image: from a file, with a strength", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  const picture = await page.evaluate(() => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 40;
    return canvas.toDataURL("image/png").split(",")[1] as string;
  });
  await page.getByTestId("file").setInputFiles({ name: "own.png", mimeType: "image/png", buffer: Buffer.from(picture, "base64") });
  await page.getByTestId("strength").fill("0.4");
  await paint(page, "a red circle");
  const [first] = await asked(page);
  expect(first?.strength).toBe(0.4);
  expect(first?.image).toBeGreaterThan(50);
  await page.getByTestId("drop-start").click();
  await paint(page, "a blue circle");
  expect((await asked(page))[1]?.image).toBeUndefined();
  await page.getByTestId("file").setInputFiles({ name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("hello") });
  expect(await page.getByTestId("error").innerText()).toContain("notes.txt is no picture");
});

test("on a phone a picture to begin from is shown where it is to be seen", async () => {
  const { page } = await open({ mock: "fast", device: PHONE });
  await paint(page, "a red circle");
  await page.getByTestId("vary").click();
  await page.waitForFunction(() => {
    const { top, bottom } = document.querySelector("[data-testid=start-picture]")?.getBoundingClientRect() ?? { top: 0, bottom: Infinity };
    return top > 0 && bottom < (document.querySelector(".dock") as Element).getBoundingClientRect().top;
  });
});

test("a file that is dropped or pasted is taken", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  for (const kind of ["drop", "paste"]) {
    await page.evaluate((event) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([new Uint8Array(8)], `${event}.jpg`, { type: "image/jpeg" }));
      const init = { bubbles: true, cancelable: true };
      document.body.dispatchEvent(
        event === "drop"
          ? new DragEvent("drop", { ...init, dataTransfer: transfer })
          : new ClipboardEvent("paste", { ...init, clipboardData: transfer }),
      );
    }, kind);
    await page.getByText(`${kind}.jpg`, { exact: true }).waitFor();
  }
});

test("examples fill the prompt; a model without guidance shows no fields for it", async () => {
  const { page } = await open({ mock: "fast,plain" });
  await reaches(page, "ready");
  await page.getByTestId("example").first().click();
  expect(await page.getByTestId("prompt").inputValue()).toBe("a red circle");
  for (const field of ["negative", "guidance", "choose-file"]) expect(await page.getByTestId(field).count()).toBe(0);
  await page.getByTestId("generate").click();
  await page.getByTestId("image").waitFor();
  expect(await asked(page)).toMatchObject([{ guidance: 1, negativePrompt: "" }]);
});

test("the part of a prompt that was not read is told", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  await page.getByTestId("prompt").fill(`${"a red circle and ".repeat(12)}the very end`);
  await page.getByTestId("generate").click();
  expect(await page.getByTestId("cut").innerText()).toContain("the very end");
});
