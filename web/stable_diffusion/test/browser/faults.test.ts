/** What goes wrong: nothing is lost, a clear message, and it goes on. */

import { expect, test } from "vitest";
import { goOn, mockOf, open, reaches } from "tinyweb-shell/testing";
import { paint, useBrowser } from "./using";

useBrowser();

test("not enough memory: a message, the gallery stays, the next picture works", async () => {
  const { page } = await open({ mock: "fast,full" });
  await page.getByTestId("prompt").fill("a red circle");
  await page.getByTestId("generate").click();
  await page.getByTestId("error").waitFor();
  expect(await page.getByTestId("error").getAttribute("data-code")).toBe("out-of-memory");
  await reaches(page, "ready");
  await paint(page, "a blue circle");
  expect(await page.getByTestId("error").count()).toBe(0);
});

test("a lost device in the middle: the picture is made all the same", async () => {
  for (const mock of ["fast,lost", "fast,lost-hard"]) {
    const { page } = await open({ mock });
    await reaches(page, "ready");
    await paint(page, "a red circle");
    await page.getByTestId("note").getByText("The model is back").waitFor(); // the note may come after the picture
  }
});

test("a part that is downloaded meanwhile shows how far it is", async () => {
  const { page } = await open({ mock: "fast,parts" });
  await page.getByTestId("prompt").fill("a red circle");
  await page.getByTestId("generate").click();
  await page.getByText("5.0 of 9.0 MB").waitFor();
  await goOn(page);
  await page.getByTestId("image").waitFor();
});

test("a failed load can be tried again, and a picture that waits is painted then", async () => {
  const { page } = await open({ mock: "fast,download" });
  await reaches(page, "error");
  expect(await page.getByTestId("error").getAttribute("data-code")).toBe("download-failed");
  await page.getByTestId("retry").click();
  await reaches(page, "ready");
  await paint(page, "a red circle");
});

test("storage that is refused: pictures stay until the page is closed, and it says so", async () => {
  const { page } = await open({ mock: "slow", alone: true });
  await page.addInitScript(() => {
    Object.defineProperty(window, "indexedDB", {
      value: {
        open: () => {
          throw new DOMException("no", "SecurityError");
        },
      },
    });
    Object.defineProperty(window, "localStorage", {
      get: () => {
        throw new DOMException("no", "SecurityError");
      },
    });
  });
  await page.goto(page.url().replace("slow", "fast"));
  await reaches(page, "ready");
  await page.getByText("does not let the page store anything").waitFor();
  await paint(page, "a red circle");
  await paint(page, "a blue circle");
  await page.getByTestId("picture").nth(1).click();
  await page.locator('[data-testid="image"][alt="a red circle"]').waitFor();
});

test("storage that is full: the picture is kept in memory, older ones stay stored", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  await paint(page, "a red circle");
  await page.getByTestId("picture").waitFor();
  await page.evaluate(() => {
    const { put } = IDBObjectStore.prototype;
    Object.assign(window, { restore: () => (IDBObjectStore.prototype.put = put) });
    IDBObjectStore.prototype.put = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
  });
  await paint(page, "a blue circle");
  await page.getByText("storage is full").waitFor();
  expect(await page.getByTestId("picture").count()).toBe(2);
  // With room again it is stored with the next one.
  await page.evaluate(() => (window as unknown as { restore(): void }).restore());
  await paint(page, "a green circle");
  await page.getByTestId("picture").nth(2).waitFor();
  await expect.poll(() => page.getByText("storage is full").count()).toBe(0);
  await page.reload();
  await reaches(page, "ready");
  await expect.poll(() => page.getByTestId("picture").count()).toBe(3);
});

test("another backend in the middle of a picture stops it and loads the model anew", async () => {
  const { page } = await open({ mock: "hanging" });
  await page.getByTestId("prompt").fill("a red circle");
  await page.getByTestId("generate").click();
  await page.getByText("Step 2 of 6", { exact: true }).waitFor();
  await page.getByTestId("settings").click();
  await page.locator('input[name="backend"][value="wasm"]').check();
  await page.keyboard.press("Escape");
  await reaches(page, "ready");
  await expect.poll(() => page.getByTestId("backend").getAttribute("data-backend")).toBe("wasm");
});

test("a page that was ended in the middle asks first, and can take less memory", async () => {
  const { page } = await open({ mock: "fast,interrupted" });
  await reaches(page, "error");
  expect(await page.getByTestId("error").getAttribute("data-code")).toBe("interrupted");
  await page.getByTestId("smaller").click();
  await paint(page, "a red circle");
  expect((await mockOf(page)).loadOptions[1]).toMatchObject({ oneAtATime: true });
});
