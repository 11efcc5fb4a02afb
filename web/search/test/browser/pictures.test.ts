/** The built page with a pretended model that also reads pictures: of what colour they are. */

import { Buffer } from "node:buffer";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { focusedTestId, mockOf, open, reaches } from "tinyweb-shell/testing";
import { addPictures, ask, useBrowser } from "./using";

useBrowser();

const MOCK = { mock: "fast,pictures" };

async function names(page: Page): Promise<(string | null)[]> {
  const shown = page.getByTestId("pictures-found").getByTestId("open-picture");
  return Promise.all((await shown.all()).map((one) => one.getAttribute("title")));
}

test("pictures are found by words, kept, and deleted", async () => {
  const { page, problems, foreign } = await open(MOCK);
  await reaches(page, "ready");
  expect(await page.getByTestId("document").count()).toBe(0); // no example of texts
  expect(await page.getByTestId("welcome").innerText()).toContain("Finds pictures by what they show");
  await addPictures(page, ["red", "green", "blue", "red too"]);
  await ask(page, "a rose");
  expect((await names(page)).slice(0, 2).sort()).toEqual(["red too.png", "red.png"]);
  await ask(page, "the sea");
  expect((await names(page))[0]).toBe("blue.png");
  await page.reload();
  await reaches(page, "ready");
  await ask(page, "grass");
  expect((await names(page))[0]).toBe("green.png");
  const { asked } = await mockOf<{ kind: string }>(page);
  expect(asked.filter(({ kind }) => kind === "picture")).toEqual([]); // the vectors were kept
  const image = page.getByTestId("pictures-found").locator("img").first();
  expect(await image.evaluate((img: HTMLImageElement) => img.decode().then(() => img.naturalWidth))).toBe(40);
  await page.getByTestId("pictures-found").getByTestId("open-picture").first().click();
  await page.getByTestId("picture-dialog").getByRole("img", { name: "green.png" }).waitFor();
  await page.getByTestId("delete-picture").click();
  await page.getByTestId("picture-dialog").waitFor({ state: "detached" });
  expect(await names(page)).not.toContain("green.png");
  expect(await page.getByTestId("pictures").getByTestId("picture").count()).toBe(3);
  expect(problems).toEqual([]);
  expect(foreign).toEqual([]);
});

test("a picture finds pictures that look like it, and texts are found beside them", async () => {
  const { page } = await open(MOCK);
  await reaches(page, "ready");
  await addPictures(page, ["red", "blue", "red too"]);
  await page.getByTestId("text").fill("The sea is blue.");
  await page.getByTestId("add").click();
  await page.getByTestId("documents").getByText("1 passage", { exact: true }).waitFor();
  await ask(page, "sea");
  expect((await names(page))[0]).toBe("blue.png");
  expect(await page.getByTestId("result-item").innerText()).toContain("The sea is blue.");
  await page.getByTestId("pictures").getByRole("button", { name: "red.png" }).click();
  await page.getByTestId("similar-picture").click();
  expect(await page.getByTestId("like").innerText()).toContain("red.png");
  expect((await names(page))[0]).toBe("red too.png");
  expect(await names(page)).not.toContain("red.png");
});

test("everything works by keyboard", async () => {
  const { page } = await open(MOCK);
  await reaches(page, "ready");
  await addPictures(page, ["red", "green"]);
  await page.getByTestId("settings").focus();
  await page.keyboard.press("/");
  await page.keyboard.type("rose");
  await page.locator('[data-testid="results"][aria-busy="false"][data-query="rose"]').waitFor();
  await page.keyboard.press("ArrowDown");
  expect(await focusedTestId(page)).toBe("open-picture");
  await page.keyboard.press("Enter");
  await page.getByTestId("picture-dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByTestId("picture-dialog").waitFor({ state: "detached" });
  expect(await focusedTestId(page)).toBe("open-picture");
});

test("reading many pictures shows how far it is, stops, and goes on", async () => {
  const { page } = await open({ mock: "fast,pictures,crawling" });
  await reaches(page, "ready");
  const before = addPictures(
    page,
    Array.from({ length: 12 }, (_, i) => `red ${i}`),
  );
  await page
    .getByTestId("indexing")
    .getByText(/[1-9]\d* of 12/u)
    .waitFor();
  await page.getByTestId("stop").click();
  await page.getByTestId("paused").waitFor();
  expect(await page.getByTestId("pictures").getByLabel("not read yet").count()).toBeGreaterThan(0);
  await page.getByTestId("go-on").click();
  await before;
  await reaches(page, "ready");
  expect(await page.getByTestId("pictures").getByLabel("not read yet").count()).toBe(0);
});

test("what is no picture is refused in words, and one that the model cannot read stops no other", async () => {
  const { page } = await open(MOCK);
  await reaches(page, "ready");
  await page
    .locator('input[accept^="image/"]')
    .setInputFiles({ name: "broken.png", mimeType: "image/png", buffer: Buffer.from("no picture") });
  await page.getByTestId("error").getByText("“broken.png” is no picture that this browser can read").waitFor();
  await page.getByTestId("close-error").click();
  await addPictures(page, ["unreadable red", "red"]);
  await ask(page, "rose");
  expect(await names(page)).toEqual(["red.png"]); // nothing finds what could not be read
});

test("of many pictures some are shown until all are asked for", async () => {
  const { page } = await open(MOCK);
  await reaches(page, "ready");
  await addPictures(
    page,
    Array.from({ length: 14 }, (_, i) => `blue ${i}`),
  );
  await page.getByTestId("all-pictures").getByText("Show all 14").waitFor();
  await page.getByTestId("all-pictures").click();
  expect(await page.getByTestId("pictures").getByTestId("picture").count()).toBe(14);
  expect(await page.getByTestId("all-pictures").count()).toBe(0);
});

test("a model of texts takes no pictures", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  expect(await page.getByTestId("choose-pictures").count()).toBe(0);
  await page.getByTestId("file").setInputFiles({ name: "a.png", mimeType: "image/png", buffer: Buffer.from([137, 80, 78, 71, 0, 0]) });
  await page.getByTestId("error").getByText("is no text").waitFor();
});
