/** The built page with the pretended model: documents in, passages out, everything kept. */

import { Buffer } from "node:buffer";
import { expect, test } from "vitest";
import { focusedTestId, mockOf, open, reaches } from "tinyweb-shell/testing";
import { ask, first, settled, useBrowser } from "./using";

useBrowser();

test("the first visit finds something in the example", async () => {
  const { page, problems, foreign } = await open();
  await settled(page);
  await page.getByTestId("example").first().click();
  await page.getByTestId("result-item").first().getByText("router").first().waitFor();
  expect(await page.getByTestId("result-item").first().locator("progress").getAttribute("value")).not.toBe("0");
  expect(problems).toEqual([]);
  expect(foreign).toEqual([]);
});

test("a pasted text is found in other words, survives a reload, and can be deleted", async () => {
  const { page } = await open();
  await settled(page);
  await page.getByTestId("text").fill("The lease ends in May.\n\nNobody has fed the goldfish.");
  await page.getByTestId("add").click();
  await page.getByTestId("documents").getByText("2 passages").waitFor();
  await ask(page, "rental contract of the flat");
  expect(await page.getByTestId("results").innerText()).toContain("The lease ends in May.");
  await page.reload();
  await settled(page);
  expect(await page.getByTestId("document").count()).toBe(2);
  const { asked } = await mockOf<{ kind: string }>(page);
  expect(asked.filter(({ kind }) => kind === "passage")).toEqual([]); // the vectors were kept
  await page.getByTestId("document").first().getByTestId("delete").click();
  await ask(page, "rental contract of the flat");
  expect(await page.getByTestId("results").innerText()).not.toContain("The lease ends in May.");
  await page.reload();
  await settled(page);
  expect(await page.getByTestId("document").count()).toBe(1);
});

test("files are read as text, and what is none is refused in words", async () => {
  const { page } = await open();
  await settled(page);
  const html =
    "<title>Recipes</title><script>document.title = 'run'</script><p>Flour &amp; water</p><p onclick='x()'>The baker sleeps.</p>";
  await page.getByTestId("file").setInputFiles([
    { name: "recipes.html", mimeType: "text/html", buffer: Buffer.from(html) },
    { name: "rows.csv", mimeType: "text/csv", buffer: Buffer.from("animal,name\ncat,Tom\n") },
  ]);
  await page.getByTestId("document").nth(2).waitFor();
  await page.getByTestId("documents").getByText("1 passage", { exact: true }).waitFor();
  await ask(page, "bread");
  const found = await page.getByTestId("results").innerText();
  expect(found).toContain("Flour & water");
  expect(found).not.toContain("document.title");
  await page.getByTestId("file").setInputFiles({ name: "paper.pdf", mimeType: "application/pdf", buffer: Buffer.from("%PDF-1.7") });
  await page.getByTestId("error").getByText("PDF files cannot be read here").waitFor();
  await page.getByTestId("close-error").click();
  await page.getByTestId("file").setInputFiles({ name: "photo.bin", mimeType: "", buffer: Buffer.from([0, 1, 2, 3]) });
  await page.getByTestId("error").getByText("is no text").waitFor();
  expect(await page.getByTestId("document").count()).toBe(3);
});

test("a passage opens where it stands, and finds what is similar", async () => {
  const { page } = await open();
  await settled(page);
  await ask(page, "wasp sting");
  expect(await page.locator("mark").first().innerText()).toMatch(/wasp/iu);
  await page.getByTestId("open-result").first().click();
  await page.getByTestId("passage-dialog").waitFor();
  expect(await page.getByTestId("passage").innerText()).toContain("wasp");
  expect(await page.getByTestId("passage-dialog").innerText()).toContain("The night train");
  await page.getByTestId("similar-here").click();
  await page.getByTestId("like").waitFor();
  expect(await page.getByTestId("query").inputValue()).toBe("");
  expect(await page.getByTestId("results").innerText()).not.toContain("A wasp sting hurts");
  await page.getByTestId("close-like").click();
  await page.getByTestId("welcome").waitFor();
});

test("everything works by keyboard", async () => {
  const { page } = await open();
  await settled(page);
  await page.getByTestId("settings").focus();
  await page.keyboard.press("/");
  expect(await focusedTestId(page)).toBe("query");
  await page.keyboard.type("overnight rail trip");
  await page.locator('[data-testid="results"][aria-busy="false"][data-query="overnight rail trip"]').waitFor();
  await page.keyboard.press("ArrowDown");
  expect(await focusedTestId(page)).toBe("open-result");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Enter");
  expect(await page.getByTestId("passage").innerText()).toContain("night train");
  await page.keyboard.press("Escape");
  await page.getByTestId("passage-dialog").waitFor({ state: "detached" });
  expect(await focusedTestId(page)).toBe("open-result");
  await page.keyboard.press("ArrowUp");
  expect(await focusedTestId(page)).toBe("query");
  await page.keyboard.press("Escape");
  expect(await page.getByTestId("query").inputValue()).toBe("");
});

test("reading is stopped, and goes on where it was after a reload", async () => {
  const { page } = await open({ mock: "fast,crawling" });
  await page.getByTestId("indexing").waitFor();
  await page
    .getByTestId("documents")
    .getByText(/[1-9]\d* of 14/u)
    .waitFor();
  expect(await page.getByTestId("app").getAttribute("data-state")).toBe("generating");
  await page.getByTestId("stop").click();
  await page.getByTestId("paused").waitFor();
  await reaches(page, "ready");
  await page.getByTestId("go-on").click();
  await page.getByTestId("indexing").waitFor();
  await settled(page);
  expect(await page.getByTestId("documents").innerText()).toContain("14 passages");
});

test("storage that is refused is no obstacle", async () => {
  const { page, context } = await open({ mock: "slow", alone: true });
  await context.addInitScript(() => {
    localStorage.clear(); // a first visit
    Object.defineProperty(globalThis, "indexedDB", { get: () => undefined });
  });
  await page.goto(page.url().replace("slow", "fast"));
  await settled(page);
  expect(await page.getByTestId("note").innerText()).toContain("until you close the page");
  await ask(page, "bike chain");
  expect(await first(page)).toContain("bicycle");
});

test("a lost GPU and a lack of memory are told, and nothing is lost", async () => {
  const lost = await open({ mock: "fast,lost-hard" });
  await settled(lost.page);
  expect((await mockOf(lost.page)).loads).toBe(2);
  const full = await open({ mock: "fast,full" });
  await full.page.getByTestId("error").waitFor();
  expect(await full.page.getByTestId("document").count()).toBe(1);
  await full.page.getByTestId("go-on").click();
  await settled(full.page);
});

test("a download that fails is told once, and everything goes on after it", async () => {
  const { page } = await open({ mock: "fast,download" });
  await page.getByTestId("error").waitFor();
  expect(await page.getByTestId("error").count()).toBe(1);
  await page.getByTestId("error").getByRole("button").first().click();
  await settled(page);
});

test("another tab sees the documents", async () => {
  const { page, context } = await open();
  await settled(page);
  const other = await context.newPage();
  await other.goto(page.url());
  await settled(other);
  await other.getByTestId("text").fill("My bike needs oil.");
  await other.getByTestId("add").click();
  await page.getByTestId("document").nth(1).waitFor();
});
