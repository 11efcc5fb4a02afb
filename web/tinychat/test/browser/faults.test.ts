/** What goes wrong, and what the page makes of it. The model is a pretended one; see test/mock/model.js. */

import { describe, expect, test } from "vitest";
import { goOn, open, reaches } from "tinyweb-shell/testing";
import { ask, mockOf, say, using, useBrowser } from "./using";

useBrowser();

describe("faults", () => {
  test("a failed download can be tried again, with a message waiting", async () => {
    await using({ mock: "download,fast" }, async ({ page }) => {
      await reaches(page, "error");
      const error = page.getByTestId("error");
      expect(await error.getAttribute("role")).toBe("alert");
      expect(await error.getAttribute("data-code")).toBe("download-failed");
      expect(await page.getByTestId("status").textContent()).toBe("Error: The download did not finish");
      await page.getByTestId("retry").click();
      await reaches(page, "ready");
      expect(await page.getByTestId("error").count()).toBe(0);
    });
  });

  test("without network the page says so, and goes on when it is back", async () => {
    const { page } = await open({ mock: "fast", alone: true });
    await reaches(page, "ready");
    await page.route("**/model/model.js*", (route) => route.abort());
    await page.addInitScript(() => {
      let online = false;
      Object.defineProperty(navigator, "onLine", { get: () => online });
      addEventListener("online", () => (online = true));
    });
    await page.reload();
    await reaches(page, "error");
    await page.getByRole("heading", { name: "You are offline" }).waitFor();
    await say(page, "What is 7 plus 5?");
    await page.getByTestId("queued").waitFor();
    await reaches(page, "error");
    await page.unroute("**/model/model.js*");
    await page.evaluate(() => dispatchEvent(new Event("online")));
    await reaches(page, "ready");
    await page.getByText("7 + 5 = 12.").first().waitFor();
  });

  test("a site without a model says what is missing", async () => {
    const { page } = await open({ alone: true });
    await page.route("**/model/model.js*", (route) => route.fulfill({ contentType: "text/javascript", body: "export const a = 1;" }));
    await page.reload();
    await reaches(page, "error");
    expect(await page.getByTestId("error").getAttribute("data-code")).toBe("bad-manifest");
    await page.getByText("Details").click();
    await page.getByText('/model/model.js has no function "load".').waitFor();
  });

  test("what does not fit on the GPU may fit in memory", async () => {
    await using({ mock: "memory-gpu,fast" }, async ({ page }) => {
      await reaches(page, "error");
      expect(await page.getByTestId("error").getAttribute("data-code")).toBe("out-of-memory");
      await page.getByTestId("use-wasm").click();
      await reaches(page, "ready");
      expect(await page.getByTestId("backend").getAttribute("data-backend")).toBe("wasm");
      expect(await page.getByTestId("backend").textContent()).toBe("WASM, 4 threads");
    });
  });

  test("after it was ended while loading the page asks first, and offers less", async () => {
    await using({ mock: "interrupted,fast" }, async ({ page }) => {
      await reaches(page, "error");
      expect(await page.getByTestId("error").getAttribute("data-code")).toBe("interrupted");
      await page.getByTestId("smaller").click();
      await reaches(page, "ready");
      expect((await mockOf(page)).loadOptions[1]).toMatchObject({ context: 128 });
      await page.getByTestId("whole").click();
      await reaches(page, "ready");
      expect((await mockOf(page)).loadOptions[2]).not.toHaveProperty("context");
      expect(await page.getByText("to spare this device").count()).toBe(0);
    });
  });

  test("why it is not WebGPU is told until it is closed, for good", async () => {
    await using({ mock: "no-webgpu,fast" }, async ({ page }) => {
      await reaches(page, "ready");
      expect(await page.getByTestId("note").textContent()).toContain("Using WASM instead of WebGPU");
      await page.getByTestId("dismiss").click();
      expect(await page.getByTestId("note").count()).toBe(0);
      await page.reload();
      await reaches(page, "ready");
      expect(await page.getByTestId("note").count()).toBe(0);
    });
  });

  test("a lost GPU interrupts an answer, and nothing is lost", async () => {
    await using({ mock: "lost-fallback" }, async ({ page }) => {
      await reaches(page, "ready");
      await say(page, "Tell me a story");
      await page.getByText("Bringing the model back").waitFor();
      await goOn(page);
      await page.getByText("The model goes on with WASM").waitFor();
      await reaches(page, "ready");
      expect(await page.getByTestId("message-assistant").textContent()).toContain("just for her.");
      expect(await page.getByTestId("backend").getAttribute("data-backend")).toBe("wasm");
    });
  });

  test("a GPU that the runtime gives up on is loaded anew", async () => {
    await using({ mock: "lost-hard,fast" }, async ({ page }) => {
      await reaches(page, "ready");
      expect(await ask(page, "What is 7 plus 5?")).toBe("7 + 5 = 12.");
      await page.getByText("The model is back").waitFor();
      expect((await mockOf(page)).loads).toBe(2);
    });
  });

  test("a broken answer keeps its text, and can be asked for again", async () => {
    await using({ mock: "broken,fast" }, async ({ page }) => {
      await reaches(page, "ready");
      expect((await ask(page, "Tell me a story")).trim()).toBe("Once upon a time");
      expect(await page.getByTestId("error").textContent()).toContain("The GPU reported an error");
      expect(await page.getByTestId("regenerate").count()).toBe(1);
    });
  });
});
