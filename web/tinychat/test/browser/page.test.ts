/** The page on a phone, and what it is allowed to do. The model is a pretended one; see test/mock/model.js. */

import { describe, expect, inject, test } from "vitest";
import { focusedTestId, open, PHONE, reaches, tooSmallToTouch } from "tinyweb-shell/testing";
import { ask, say, using, useBrowser } from "./using";

useBrowser();

describe("on a phone", () => {
  const phone = { device: PHONE };

  test("everything that can be touched is large enough", async () => {
    await using(phone, async ({ page }) => {
      await reaches(page, "ready");
      await ask(page, "Show me some Markdown");
      expect(await tooSmallToTouch(page)).toEqual([]);
      await page.getByTestId("settings").tap();
      await page.getByTestId("settings-dialog").waitFor();
      await page.waitForTimeout(400);
      expect(await tooSmallToTouch(page)).toEqual([]);
    });
  });

  test("nothing that is typed in makes it zoom, and no keyboard pops up by itself", async () => {
    await using(phone, async ({ page }) => {
      await reaches(page, "ready");
      expect(await focusedTestId(page)).toBeNull();
      const sizes = await page.evaluate(() =>
        [...document.querySelectorAll("textarea, input")].map((field) => Number.parseFloat(getComputedStyle(field).fontSize)),
      );
      expect(sizes.length).toBeGreaterThan(0);
      expect(Math.min(...sizes)).toBeGreaterThanOrEqual(16);
      await page.getByTestId("prompt").tap();
      await page.keyboard.type("What is 7 plus 5?");
      await page.getByTestId("send").tap();
      expect(await focusedTestId(page)).not.toBe("prompt");
    });
  });

  test("a window that becomes as narrow as one keeps the prompt at one line", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      const height = (): Promise<number> => page.getByTestId("prompt").evaluate((prompt) => prompt.clientHeight);
      const before = await height();
      for (const size of [PHONE.viewport, { width: 844, height: 390 }, PHONE.viewport]) {
        await page.setViewportSize(size);
        await page.waitForTimeout(400);
        expect(await height()).toBe(before);
      }
    });
  });

  test("a keyboard that covers the page leaves the prompt above it", async () => {
    // Chromium resizes the page; phones that cover it instead say so by the visual viewport alone.
    const { page } = await open(phone);
    const prompt = page.getByTestId("prompt");
    const show = (height: number, scale = 1): Promise<void> =>
      page.evaluate(
        ([visible, zoom]) => {
          const viewport = window.visualViewport as VisualViewport;
          Object.defineProperties(viewport, { height: { value: visible, configurable: true }, scale: { value: zoom, configurable: true } });
          viewport.dispatchEvent(new Event("resize"));
        },
        [height, scale] as const,
      );
    const bottom = async (): Promise<number> => {
      const box = await prompt.boundingBox();
      return box === null ? Infinity : box.y + box.height;
    };
    await reaches(page, "ready");
    const whole = await bottom();
    await show(420);
    expect(await bottom()).toBeLessThan(420);
    expect(await page.getByRole("main").evaluate((main) => main.clientHeight)).toBeGreaterThan(96);
    await show(PHONE.viewport.height);
    expect(await bottom()).toBe(whole);
    await show(420, 2); // zoomed in, which is no keyboard
    expect(await bottom()).toBe(whole);
  });

  test("the list opens as a drawer and closes when one is chosen, or beside it", async () => {
    await using(phone, async ({ page }) => {
      await reaches(page, "ready");
      await ask(page, "What is 7 plus 5?");
      await page.getByTestId("new-chat").tap();
      await page.getByTestId("conversations").tap();
      await page.getByTestId("drawer").getByText("What is 7 plus 5?").tap();
      await page.getByTestId("drawer").waitFor({ state: "detached" });
      await page.getByText("7 + 5 = 12.").first().waitFor();
      await page.getByTestId("conversations").tap();
      await page.getByTestId("drawer").waitFor();
      await page.touchscreen.tap(370, 400);
      await page.getByTestId("drawer").waitFor({ state: "detached" });
    });
  });

  test("a keyboard that covers the page makes it shorter", async () => {
    await using(phone, async ({ page }) => {
      await reaches(page, "ready");
      await page.evaluate(() => {
        const viewport = window.visualViewport as VisualViewport;
        Object.defineProperty(viewport, "height", { value: 500, configurable: true });
        viewport.dispatchEvent(new Event("resize"));
      });
      const bottom = (): Promise<number> => page.getByTestId("app").evaluate((app) => Math.round(app.getBoundingClientRect().bottom));
      expect(await bottom()).toBe(500);
      const prompt = await page.getByTestId("prompt").boundingBox();
      expect((prompt?.y ?? 999) + (prompt?.height ?? 999)).toBeLessThan(500);
      await page.evaluate(() => {
        const viewport = window.visualViewport as VisualViewport;
        Object.defineProperty(viewport, "height", { value: innerHeight, configurable: true });
        viewport.dispatchEvent(new Event("resize"));
      });
      expect(await bottom()).toBe(844);
    });
  });
});

describe("the page itself", () => {
  test("forbids what it does not need", async () => {
    const { page, problems } = await open();
    await reaches(page, "ready");
    const policy = await page.locator("meta[http-equiv=Content-Security-Policy]").getAttribute("content");
    for (const rule of [
      "default-src 'self'",
      "script-src 'self' 'wasm-unsafe-eval'",
      "style-src 'self'",
      "object-src 'none'",
      "base-uri 'none'",
      "form-action 'none'",
    ]) {
      expect(policy).toContain(rule);
    }
    expect(policy).not.toContain("unsafe-inline");
    expect(problems).toEqual([]);
    const refused = await page.evaluate(async () => {
      const script = document.createElement("script");
      script.textContent = "window.inlineRan = true";
      document.head.append(script);
      const answer = await fetch("https://example.com/").then(
        () => "allowed",
        () => "refused",
      );
      return { inline: !("inlineRan" in window), fetch: answer };
    });
    expect(refused).toEqual({ inline: true, fetch: "refused" });
  });

  test("can be put on the home screen", async () => {
    const site = inject("siteUrl");
    const { page } = await open();
    const href = await page.locator("link[rel=manifest]").getAttribute("href");
    const manifest = (await (await page.request.get(new URL(href ?? "", site).href)).json()) as {
      icons: { src: string }[];
      start_url: string;
    };
    const icons = [...manifest.icons.map(({ src }) => src), await page.locator("link[rel=apple-touch-icon]").getAttribute("href")];
    expect(icons.length).toBeGreaterThan(2);
    for (const icon of icons) {
      const response = await page.request.get(new URL(icon ?? "no icon", site).href);
      expect(response.status(), String(icon)).toBe(200);
      expect(response.headers()["content-type"], String(icon)).toMatch(/^image\//u);
    }
  });

  test("stands still for those who want no motion", async () => {
    await using({ mock: "thinking", reducedMotion: true }, async ({ page }) => {
      await reaches(page, "ready");
      await say(page, "Hello");
      await page.getByLabel("Thinking").waitFor();
      await page.waitForTimeout(100);
      expect(await page.evaluate(() => document.getAnimations().filter(({ playState }) => playState === "running").length)).toBe(0);
    });
  });
});

test("the settings show what models are kept, and delete this page's only", async () => {
  const { page } = await open({ alone: true });
  const bundles = [{ manifest: "model/manifest.json", sha256: "own", bytes: 250_000 }];
  await page.route("**/site.json", (route) => route.fulfill({ json: { hash: "0", tinyweb: "0", format: 1, bundles } }));
  await page.reload();
  await reaches(page, "ready");
  await page.evaluate(async () => {
    const weights = await (await navigator.storage.getDirectory()).getDirectoryHandle("tinyweb-weights", { create: true });
    for (const [name, bytes] of [
      ["own", 250_000],
      ["another", 40_000],
    ] as const) {
      const folder = await weights.getDirectoryHandle(name, { create: true });
      const file = await (await folder.getFileHandle("0.bin", { create: true })).createWritable();
      await file.write(new Uint8Array(bytes));
      await file.close();
    }
  });
  await page.getByTestId("settings").click();
  const kept = page.getByTestId("stored-model");
  await kept.filter({ hasText: "250 KB" }).waitFor();
  await page.getByTestId("delete-model").click();
  await page.getByText("Really delete 250 KB?").click();
  await kept.filter({ hasText: "not kept; the next visit downloads it again" }).waitFor();
  expect(await page.getByTestId("stored-others").innerText()).toContain("40 KB");
  expect(await page.getByTestId("delete-model").count()).toBe(0);
});
