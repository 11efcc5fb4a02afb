/** What the page does: feeds inputs in every way, runs, shows what comes out, says what is wrong. */

import { Buffer } from "node:buffer";
import { expect, test } from "vitest";
import { mockOf, open, reaches } from "tinyweb-shell/testing";
import { writeNpy } from "../../src/data/npy";
import { picture, run, useBrowser } from "./using";

useBrowser();

test("a picture is classified and masked; its settings count", async () => {
  const { page } = await open();
  await run(page);
  await page.locator('input[type="file"][accept="image/*"]').setInputFiles(await picture(page, "blue"));
  await page.getByTestId("classes").locator("li").first().getByText("blue").waitFor();
  expect(await page.getByTestId("output").evaluateAll((cards) => cards.map((card) => (card as HTMLElement).dataset["view"]))).toEqual([
    "classes",
    "mask",
    "table",
  ]);
  await page.getByTestId("input-0-numbers").selectOption("bytes");
  await page.getByTestId("input-0-order").selectOption("bgr");
  await page.getByTestId("run").click();
  await page.getByTestId("classes").locator("li").first().getByText("red").waitFor();
  const { asked } = await mockOf<{ image: Record<string, number> }>(page);
  expect(asked.at(-1)?.image[0]).toBe(255);
});

test("screen readers hear that outputs came, and the camera goes off where nothing takes its pictures", async () => {
  const { page } = await open();
  await page.evaluate(() => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 40, height: 30 });
    canvas.getContext("2d")?.fillRect(0, 0, 40, 30);
    const stream = canvas.captureStream(10);
    navigator.mediaDevices.getUserMedia = () => Promise.resolve(stream);
    Object.assign(window, { track: stream.getVideoTracks()[0] });
  });
  await run(page);
  await page
    .getByTestId("announcement")
    .getByText(/^3 outputs after \d+ ms\.$/u)
    .waitFor({ state: "attached" });
  const state = (): Promise<string> => page.evaluate(() => (window as unknown as { track: MediaStreamTrack }).track.readyState);
  await page.getByTestId("input-0-kind").selectOption("camera");
  await page.getByTestId("camera-stop").and(page.locator(":enabled")).waitFor();
  expect(await state()).toBe("live");
  await page.locator("select").filter({ hasText: "add" }).selectOption("add");
  await expect.poll(state).toBe("ended");
});

test("numbers go in as JSON and .npy files, and come out so", async () => {
  const { page } = await open({ mock: "numbers" });
  await reaches(page, "ready");
  await page.getByTestId("input-0-kind").selectOption("npy");
  const file = Buffer.from(
    writeNpy(
      Float32Array.from({ length: 64 }, (_, i) => i),
      "f32",
      [64],
    ),
  );
  await page.locator('input[type="file"][accept=".npy"]').setInputFiles({ name: "x.npy", mimeType: "", buffer: file });
  await page.getByTestId("numbers").getByText("2016", { exact: true }).waitFor();
  await page.getByTestId("input-1-json").fill("four");
  await page.getByTestId("run").click();
  await page.getByTestId("error").waitFor();
  expect(await page.getByTestId("error").textContent()).toMatch(/“n”: “four” is no number/u);
  await page.getByTestId("input-1-json").fill("4");
  await run(page);
  await page.getByTestId("numbers").getByText("2020", { exact: true }).waitFor();
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByTestId("save").first().click()]);
  expect(download.suggestedFilename()).toBe("sum.npy");
});

test("another function has other inputs", async () => {
  const { page } = await open();
  await reaches(page, "ready");
  await page.getByTestId("function").selectOption("add");
  expect(await page.getByTestId("input").count()).toBe(2);
  await run(page);
  expect(await page.getByTestId("plot").count()).toBe(1);
  expect(await page.getByTestId("code").textContent()).toContain('{ function: "add" }');
});

test("a size that varies is chosen", async () => {
  const { page } = await open({ mock: "numbers" });
  await reaches(page, "ready");
  await page.getByTestId("size-0").fill("16");
  await page.getByTestId("size-0").press("Tab");
  await run(page);
  const shape = await page.evaluate(
    () => (window as unknown as { mock: { asked: { x: { shape: number[] } }[] } }).mock.asked.at(-1)?.x.shape,
  );
  expect(shape).toEqual([16]);
  expect(await page.getByTestId("code").textContent()).toContain("x: { data: new Float32Array(16), shape: [16] }, // 16, float32");
});

test("what came out goes in again", async () => {
  const { page } = await open({ mock: "numbers" });
  await reaches(page, "ready");
  await page.getByTestId("input-1-kind").selectOption("output");
  const given = (): Promise<number[]> =>
    page.evaluate(() => (window as unknown as { mock: { asked: { n: BigInt64Array }[] } }).mock.asked.map(({ n }) => Number(n[0])));
  await run(page);
  await run(page);
  await run(page);
  expect(await given()).toEqual([0, 1, 2]);
  await page.getByTestId("input-1-forget").click();
  await run(page);
  expect(await given()).toEqual([0, 1, 2, 0]);
});

test("labels are dropped, times are taken", async () => {
  const { page } = await open();
  await run(page);
  await page
    .locator('input[type="file"][accept=".txt,.json"]')
    .first()
    .setInputFiles({
      name: "labels.txt",
      mimeType: "text/plain",
      buffer: Buffer.from("rot\ngrün\nblau\nandere\n"),
    });
  await page.getByTestId("classes").getByText("blau").first().waitFor();
  await page.getByTestId("measure").click();
  await page.getByText("median of 21").waitFor();
});

test("files that are dropped go where they fit, or the page says what it takes", async () => {
  const { page } = await open({ mock: "numbers" });
  await reaches(page, "ready");
  const drop = (name: string, type: string, text: string): Promise<void> =>
    page.evaluate(
      ([called, kind, content]) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([content], called, { type: kind }));
        for (const event of ["dragenter", "dragover", "drop"])
          document.body.dispatchEvent(new DragEvent(event, { dataTransfer, bubbles: true, cancelable: true }));
      },
      [name, type, text] as const,
    );
  for (const [name, type] of [
    ["a.png", "image/png"],
    ["a.pdf", "application/pdf"],
  ] as const) {
    await drop(name, type, "nothing");
    await page.getByTestId("error").getByText(`“${name}” cannot go in: The model takes sounds, .npy files, JSON.`).waitFor();
    expect(await page.getByTestId("input-0-kind").inputValue()).not.toBe("");
  }
  await drop("X.JSON", "", "2");
  await page.getByTestId("numbers").getByText("128", { exact: true }).waitFor();
});

test("a run that fails is told, and the next works", async () => {
  const { page } = await open({ mock: "broken" });
  await reaches(page, "ready");
  await page.getByTestId("run").click();
  await page.getByTestId("error").waitFor();
  expect(await page.getByTestId("error").getAttribute("data-code")).toBe("internal");
  await run(page);
  expect(await page.getByTestId("error").count()).toBe(0);
});
