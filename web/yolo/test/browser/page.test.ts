/** What the page does: pictures by every way, settings, classes, the snapshot, faults. */

import { expect, test } from "vitest";
import { mockOf, open, reaches } from "tinyweb-shell/testing";
import { boxes, choose, picture, useBrowser } from "./using";

useBrowser();

test("a picture is searched, and again when the settings change", async () => {
  const { page } = await open();
  await choose(page);
  expect(await boxes(page)).toEqual([
    { label: "cat", score: 0.93, box: [48, 64, 192, 256] },
    { label: "dog", score: 0.81, box: [240, 32, 432, 192] },
    { label: "dog", score: 0.55, box: [264, 208, 336, 304] },
    { label: "teapot", score: 0.31, box: [360, 224, 456, 288] },
  ]);
  expect(await page.getByTestId("result").textContent()).toBe("4 found: cat, 2 × dog, teapot");
  await page.getByTestId("confidence").fill("0.6");
  await page.getByText("2 found: cat, dog").first().waitFor();
  const asked = (await mockOf<{ confidence: number; iou: number }>(page)).asked;
  expect(asked.at(-1)).toEqual({ confidence: 0.6, iou: 0.5 });
  expect(asked.length).toBeLessThan(5); // a picture that stands still is not looked at over and over
  await page.reload();
  expect(await page.getByTestId("confidence").inputValue()).toBe("0.6");
});

test("classes are hidden and shown without another look", async () => {
  const { page } = await open();
  await choose(page);
  await boxes(page);
  const looks = (await mockOf(page)).asked.length;
  await page.getByText("Look for").click();
  await page.getByRole("button", { name: "dog" }).click();
  expect((await boxes(page)).map(({ label }) => label)).toEqual(["cat", "teapot"]);
  expect(await page.getByRole("button", { name: "dog" }).getAttribute("aria-pressed")).toBe("false");
  await page.getByTestId("no-classes").click();
  await page.getByText("Nothing found").first().waitFor();
  await page.getByTestId("all-classes").click();
  expect(await boxes(page)).toHaveLength(4);
  expect((await mockOf(page)).asked).toHaveLength(looks);
});

test("pictures may be dropped and pasted; Esc closes them", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  const { buffer } = await picture(page);
  for (const name of ["drop", "paste"] as const) {
    await page.evaluate(
      ([bytes, kind]) => {
        const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], "given.png", { type: "image/png" }));
        const options = { bubbles: true, cancelable: true };
        document.body.dispatchEvent(
          kind === "drop"
            ? new DragEvent("drop", { ...options, dataTransfer: data })
            : new ClipboardEvent("paste", { ...options, clipboardData: data }),
        );
      },
      [buffer.toString("base64"), name] as const,
    );
    expect(await boxes(page)).toHaveLength(4);
    await page.keyboard.press("Escape");
    await page.getByText("What is there to see?").waitFor();
  }
});

test("the snapshot is the picture with its boxes", async () => {
  const { page } = await open();
  await choose(page);
  await boxes(page);
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByTestId("snapshot").click()]);
  expect(download.suggestedFilename()).toMatch(/^TinyYOLO \d{4}-\d\d-\d\d .*\.png$/u);
});

test("a look that fails is told, and the next picture works", async () => {
  const { page } = await open({ mock: "broken" });
  await choose(page);
  await page.getByTestId("error").waitFor();
  expect(await page.getByTestId("error").getAttribute("data-code")).toBe("internal");
  await choose(page);
  await page.getByTestId("error").waitFor({ state: "detached" });
  expect(await boxes(page)).toHaveLength(4);
});

test("a camera that is refused or missing is explained", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  await page.getByTestId("camera").click();
  await page.getByTestId("error").waitFor();
  expect(await page.getByTestId("error").textContent()).toMatch(/camera/u);
});
