/** Using the page: talking, keyboard, settings, conversations. The model is a pretended one; see test/mock/model.js. */

import { describe, expect, test } from "vitest";
import type { Page } from "playwright-core";
import { focusedTestId, open, reaches, violations, type Mock } from "tinyweb-shell/testing";
import { ask, mockOf, say, using, useBrowser } from "./using";

useBrowser();

describe("talking", () => {
  test("an answer streams in, and the page remembers over a reload", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      expect(await ask(page, "Hello, my name is Ada!")).toBe("Nice to meet you, Ada!");
      expect(await ask(page, "What is 7 plus 5?")).toBe("7 + 5 = 12.");
      await page.reload();
      await reaches(page, "ready");
      expect(await page.getByTestId("message-user").allTextContents()).toEqual(["Hello, my name is Ada!", "What is 7 plus 5?"]);
      expect(await ask(page, "What is my name?")).toBe("Your name is Ada.");
    });
  });

  test("what is written while the model loads is answered when it is ready", async () => {
    await using({ mock: "slow,fast" }, async ({ page }) => {
      await page.getByText("3.1 of 7.8 MB").waitFor();
      expect(await page.getByTestId("status").textContent()).toBe("Loading… 39 %");
      expect(await page.getByTestId("progress").getAttribute("max")).toBe("7803456");
      await say(page, "What is 7 plus 5?");
      await page.getByTestId("queued").waitFor();
      await page.evaluate(() => (window as unknown as { mock: Mock }).mock.continue());
      await reaches(page, "ready");
      await page.getByText("7 + 5 = 12.").first().waitFor();
      expect(await page.getByTestId("progress").count()).toBe(0);
    });
  });

  test("suggestions are sent, or completed by the reader", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      await page.getByRole("button", { name: "My name is" }).click();
      expect(await focusedTestId(page)).toBe("prompt");
      await page.keyboard.type("Ada");
      await page.keyboard.press("Enter");
      await page.getByText("Nice to meet you, Ada!").first().waitFor();
      await page.getByTestId("new-chat").click();
      await page.getByRole("button", { name: "What is 7 plus 5?" }).first().click();
      await page.getByTestId("message-user").waitFor();
    });
  });

  test("stop keeps what there is; again replaces it", async () => {
    await using({ mock: "" }, async ({ page }) => {
      await reaches(page, "ready");
      await say(page, "Tell me a long story"); // which is not over before it is stopped
      await page.getByTestId("message-assistant").getByText("Once upon").waitFor();
      expect(await page.getByTestId("status").textContent()).toBe("Answering…");
      await page.getByTestId("stop").click();
      await reaches(page, "ready");
      const stopped = (await page.getByTestId("message-assistant").textContent()) ?? "";
      await page.getByText("Stopped", { exact: true }).waitFor();
      expect(await focusedTestId(page)).toBe("prompt");
      await page.getByTestId("regenerate").click();
      await reaches(page, "ready");
      const whole = (await page.getByTestId("message-assistant").textContent()) ?? "";
      expect(await page.getByTestId("message-assistant").count()).toBe(1);
      expect(whole.startsWith(stopped.trim())).toBe(true);
      expect(whole.length).toBeGreaterThan(stopped.length + 50);
    });
  });

  test("copying takes the Markdown of an answer, and the text of a code block", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      const text = await ask(page, "Show me some Markdown");
      expect(text).not.toContain("Copy");
      await page.getByTestId("copy").click();
      await page.getByText("Copied").waitFor({ state: "attached" });
      expect(await page.evaluate(() => navigator.clipboard.readText())).toMatch(/^## Sorting in Python\n[\s\S]*```python\n/u);
      await page.getByTestId("copy-code").click();
      await page.getByLabel("Copied").waitFor();
      expect(await page.evaluate(() => navigator.clipboard.readText())).toMatch(/^def smallest_first[\s\S]*14\]\)\)$/u);
    });
  });

  test("copying works without the clipboard API, as on a plain http address", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      await ask(page, "What is 7 plus 5?");
      await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
      await page.getByTestId("copy").click();
      await page.getByText("Copied").waitFor({ state: "attached" });
      await page.getByTestId("prompt").focus();
      await page.keyboard.press("Control+V");
      expect(await page.getByTestId("prompt").inputValue()).toBe("7 + 5 = 12.");
    });
  });

  test("what has nothing to see cannot be sent; an answer of that kind is told", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      for (const text of ["\u200b\u2060", "\u3164", "\u00ad \ufeff"]) {
        await page.getByTestId("prompt").fill(text);
        expect(await page.getByTestId("send").isDisabled()).toBe(true);
        await page.keyboard.press("Enter");
      }
      expect(await page.getByTestId("message-user").count()).toBe(0);
      await ask(page, "Say nothing");
      expect(await page.getByTestId("empty-answer").innerText()).toBe("The answer is empty.");
      expect(await page.getByTestId("announcement").textContent()).toBe("TinyChat: The answer is empty.");
      expect(await page.getByTestId("copy").count()).toBe(0);
      expect(await page.getByTestId("regenerate").count()).toBe(1);
      expect(await violations(page)).toEqual([]);
      await ask(page, "Show me some Markdown");
      await ask(page, "Say nothing that is Markdown");
      expect(await page.getByTestId("empty-answer").count()).toBe(2);
    });
  });

  test("hostile Markdown does nothing and loads nothing", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      expect(await ask(page, "Be evil")).toContain("<script>window.hacked=1</script>");
      expect(await page.evaluate(() => "hacked" in window)).toBe(false);
      expect(await page.getByTestId("message-assistant").locator("img, script").count()).toBe(0);
    });
  });

  test("what is written from right to left begins there, also in the list and while it is written", async () => {
    const text = "שלום, how are you?";
    await using({}, async ({ page }) => {
      /** Whether the first word stands right of what follows it. */
      const fromRight = (selector: string): Promise<boolean> =>
        page.locator(selector).evaluate((element) => {
          const words = document.createTreeWalker(element, NodeFilter.SHOW_TEXT).nextNode() as Text;
          const left = (start: number, end: number): number => {
            const range = document.createRange();
            range.setStart(words, start);
            range.setEnd(words, end);
            return range.getBoundingClientRect().left;
          };
          return left(0, 4) > left(6, words.length);
        });
      await reaches(page, "ready");
      await page.getByTestId("prompt").fill(text);
      expect(await page.getByTestId("prompt").evaluate((field) => getComputedStyle(field).unicodeBidi)).toBe("plaintext");
      await ask(page, text);
      expect(await fromRight(".bubble")).toBe(true);
      expect(await fromRight(".history-open")).toBe(true);
      expect(await fromRight(".prose p")).toBe(false);
    });
  });

  test("what the model no longer sees is told", async () => {
    await using({ mock: "small,fast" }, async ({ page }) => {
      await reaches(page, "ready");
      await ask(page, "Tell me a story");
      expect(await page.getByTestId("forgotten").count()).toBe(0);
      await ask(page, "What is 7 plus 5?");
      const above = await page.getByTestId("forgotten").evaluate((line) => line.nextElementSibling?.textContent);
      expect(above).toContain("What is 7 plus 5?");
      await ask(page, "long ".repeat(60));
      expect(await page.getByTestId("error").textContent()).toContain("This message is too long by about 104 tokens");
    });
  });
});

describe("reading along", () => {
  test("the page follows the answer, but not against a reader who scrolls up", async () => {
    await using({ mock: "" }, async ({ page }) => {
      await reaches(page, "ready");
      await page.setViewportSize({ width: 1000, height: 400 });
      const main = page.getByRole("main");
      const distance = (): Promise<number> => main.evaluate((node) => node.scrollHeight - node.clientHeight - node.scrollTop);
      await say(page, "Tell me a long story");
      await page.getByTestId("message-assistant").getByText("Part 3.").first().waitFor();
      expect(await distance()).toBeLessThan(40);
      expect(await page.getByTestId("jump").count()).toBe(0);
      await main.hover();
      await page.mouse.wheel(0, -300);
      await page.getByTestId("jump").waitFor();
      const top = await main.evaluate((node) => node.scrollTop);
      await page.getByTestId("message-assistant").getByText("Part 4.").first().waitFor();
      expect(await main.evaluate((node) => node.scrollTop)).toBe(top);
      await page.getByTestId("jump").click();
      expect(await distance()).toBeLessThan(40);
      await page.getByTestId("message-assistant").getByText("Part 5.").first().waitFor();
      expect(await distance()).toBeLessThan(40);
      await page.keyboard.press("Escape");
      await reaches(page, "ready");
    });
  });

  test("text that is selected while the answer grows stays selected", async () => {
    await using({ mock: "" }, async ({ page }) => {
      await reaches(page, "ready");
      await say(page, "Tell me a long story");
      await page.getByTestId("message-assistant").getByText("Part 2.").first().waitFor();
      await page.evaluate(() => {
        const first = document.querySelector("[data-testid=message-assistant] p");
        if (first) getSelection()?.selectAllChildren(first);
      });
      await page.getByTestId("message-assistant").getByText("Part 3.").first().waitFor();
      expect(await page.evaluate(() => getSelection()?.toString().startsWith("Part 1."))).toBe(true);
      await page.getByTestId("stop").click();
    });
  });

  test("a finished answer is read out once", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      const region = page.getByTestId("announcement");
      expect(await region.getAttribute("aria-live")).toBe("polite");
      expect(await region.textContent()).toBe("TinyChat is ready.");
      await ask(page, "What is 7 plus 5?");
      expect(await region.textContent()).toBe("TinyChat: 7 + 5 = 12.");
    });
  });
});

describe("keyboard", () => {
  test("Enter sends, Shift+Enter makes a line, Escape stops", async () => {
    await using({ mock: "" }, async ({ page }) => {
      await reaches(page, "ready");
      expect(await focusedTestId(page)).toBe("prompt");
      await page.keyboard.type("Tell me");
      await page.keyboard.press("Shift+Enter");
      await page.keyboard.type("a long story");
      await page.keyboard.press("Enter");
      expect(await page.getByTestId("message-user").textContent()).toBe("Tell me\na long story");
      expect(await page.getByTestId("prompt").inputValue()).toBe("");
      expect(await focusedTestId(page)).toBe("prompt");
      await page.getByTestId("message-assistant").getByText("Part 1.").first().waitFor();
      // The next message may be written meanwhile, but is not sent.
      await page.keyboard.type("next");
      await page.keyboard.press("Enter");
      expect(await page.getByTestId("prompt").inputValue()).toBe("next");
      await page.keyboard.press("Escape");
      await reaches(page, "ready");
      expect(await page.getByTestId("message-user").count()).toBe(1);
    });
  });

  test("Enter that ends a composition does not send", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      await page.keyboard.type("にほん");
      await page.getByTestId("prompt").dispatchEvent("keydown", { key: "Enter", isComposing: true });
      await page.getByTestId("prompt").dispatchEvent("keydown", { key: "Enter", keyCode: 229 });
      expect(await page.getByTestId("message-user").count()).toBe(0);
    });
  });

  test("everything can be reached with Tab, and focus is always seen", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      await ask(page, "Show me some Markdown");
      await page.evaluate(() => (document.activeElement as HTMLElement).blur());
      const reached = new Set<string>();
      for (let i = 0; i < 40; i++) {
        await page.keyboard.press("Tab");
        const seen = await page.evaluate(() => {
          const element = document.activeElement;
          if (element === null || element === document.body) return null;
          const { outlineStyle, outlineWidth } = getComputedStyle(element);
          const name = element.getAttribute("data-testid") ?? element.className;
          // The prompt shows focus by the border of its box.
          return { name, visible: (outlineStyle !== "none" && outlineWidth !== "0px") || name === "prompt" };
        });
        if (seen === null) continue;
        expect(seen).toMatchObject({ visible: true });
        reached.add(seen.name);
      }
      for (const name of ["conversations", "theme", "settings", "new-chat", "copy", "regenerate", "copy-code", "prompt", "history-open"]) {
        expect([...reached]).toContain(name);
      }
    });
  });

  test("settings keep focus inside, close with Escape and give focus back", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      await page.getByTestId("settings").focus();
      await page.keyboard.press("Enter");
      await page.getByTestId("settings-dialog").waitFor();
      for (let i = 0; i < 30; i++) {
        await page.keyboard.press("Tab");
        const where = await page.evaluate(() => {
          const element = document.activeElement;
          return element === document.body || element?.closest("dialog") ? "inside" : (element?.outerHTML ?? "");
        });
        expect(where).toBe("inside");
      }
      await page.keyboard.press("Escape");
      await page.getByTestId("settings-dialog").waitFor({ state: "detached" });
      expect(await focusedTestId(page)).toBe("settings");
    });
  });
});

describe("settings", () => {
  test("change what the model is asked with, survive a reload, and can be reset", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      await page.getByTestId("settings").click();
      await page.getByTestId("temperature").fill("0");
      await page.getByTestId("top-p").fill("0.5");
      await page.getByTestId("max-tokens").fill("32");
      await page.getByTestId("system-prompt").fill("The user's name is Ada.");
      await page.getByRole("radio", { name: "Dark" }).check({ force: true });
      await page.getByTestId("close-settings").click();
      expect(await page.evaluate(() => document.documentElement.dataset["theme"])).toBe("dark");
      await page.reload();
      expect(await page.evaluate(() => document.documentElement.dataset["theme"])).toBe("dark");
      await reaches(page, "ready");
      await ask(page, "Hello");
      const { asked } = await mockOf(page);
      expect(asked[0]).toMatchObject({
        messages: [
          { role: "system", content: "The user's name is Ada." },
          { role: "user", content: "Hello" },
        ],
        options: { temperature: 0, topP: 0.5, maxTokens: 32 },
      });
      expect(asked[0]?.options["seed"]).toEqual(expect.any(Number));
      await page.getByTestId("settings").click();
      await page.getByTestId("reset").click();
      expect(await page.getByTestId("temperature").inputValue()).toBe("0.7");
      expect(await page.getByTestId("max-tokens").inputValue()).toBe("256");
      expect(await page.getByTestId("system-prompt").inputValue()).toBe("");
    });
  });

  test("another backend loads the model anew and keeps the conversation; the address gives way", async () => {
    await using({ query: "backend=wasm-single" }, async ({ page }) => {
      await reaches(page, "ready");
      expect(await page.getByTestId("backend").getAttribute("data-backend")).toBe("wasm-single");
      await ask(page, "What is 7 plus 5?");
      await page.getByTestId("settings").click();
      await page.getByRole("radio", { name: "GPU" }).check();
      await page.keyboard.press("Escape");
      await page.locator("[data-testid=backend][data-backend=webgpu]").waitFor();
      expect(await page.getByTestId("message-assistant").count()).toBe(1);
      const { loadOptions, disposed } = await mockOf(page);
      expect(loadOptions.map(({ backend }) => backend)).toEqual(["wasm-single", "webgpu"]);
      expect(disposed).toBe(1);
      expect(page.url()).not.toContain("backend=");
    });
  });

  test("an unknown backend in the address is no backend", async () => {
    await using({ query: "backend=cuda" }, async ({ page }) => {
      await reaches(page, "ready");
      expect((await mockOf(page)).loadOptions[0]?.backend).toBe("auto");
    });
  });

  test("the theme follows the system until one is chosen", async () => {
    await using({ dark: true }, async ({ page }) => {
      await reaches(page, "ready");
      const theme = (): Promise<string | undefined> => page.evaluate(() => document.documentElement.dataset["theme"]);
      const themeColor = (): Promise<string | null> => page.locator("meta[name=theme-color]").getAttribute("content");
      expect(await theme()).toBe("dark");
      expect(await themeColor()).toBe("#121413");
      await page.emulateMedia({ colorScheme: "light" });
      await page.locator("html[data-theme=light]").waitFor();
      await page.getByTestId("theme").click();
      expect(await theme()).toBe("dark");
      await page.emulateMedia({ colorScheme: "dark" });
      await page.getByTestId("theme").click();
      expect(await theme()).toBe("light");
      expect(await themeColor()).toBe("#f8f8f5");
    });
  });

  test("diagnostics are copied without what was said", async () => {
    await using({ mock: "no-webgpu,fast" }, async ({ page }) => {
      await reaches(page, "ready");
      await ask(page, "Hello, my name is Ada!");
      await page.getByTestId("settings").click();
      expect(await page.getByTestId("stored-all").textContent()).toMatch(/^1 conversation, \d+ KB$/u);
      await page.getByTestId("about-open").click();
      await page.getByTestId("copy-diagnostics").click();
      await page.getByText("Copied").waitFor();
      const text = await page.evaluate(() => navigator.clipboard.readText());
      for (const line of [
        "TinyChat\n",
        "Model: tinychat-7m\n",
        "Runs on: WASM, 4 threads\n",
        "Not WebGPU: this browser has no WebGPU\n",
        "Browser: Mozilla/5.0",
      ]) {
        expect(text).toContain(line);
      }
      expect(text).not.toContain("Ada");
      await page.keyboard.press("Escape");
      await page.getByTestId("about-dialog").waitFor({ state: "detached" });
    });
  });

  test("deleting everything asks first", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      await ask(page, "What is 7 plus 5?");
      await page.getByTestId("settings").click();
      await page.getByTestId("delete-all").click();
      expect(await page.getByTestId("message-user").count()).toBe(1);
      await page.getByTestId("delete-all").click();
      await page.getByTestId("stored-all").getByText("none").waitFor();
      expect(await page.getByTestId("message-user").count()).toBe(0);
      expect(await page.evaluate(() => Object.keys(localStorage).filter((key) => key.includes(":chat:")))).toEqual([]);
    });
  });
});

describe("conversations", () => {
  test("are listed, opened, deleted and brought back", async () => {
    await using({}, async ({ page }) => {
      await reaches(page, "ready");
      await ask(page, "What is 7 plus 5?");
      await page.getByTestId("new-chat").click();
      expect(await page.getByTestId("message-user").count()).toBe(0);
      await ask(page, "What is the capital of France?");
      const list = page.getByTestId("history");
      expect(await list.locator(".history-open").allTextContents()).toEqual(["What is the capital of France?", "What is 7 plus 5?"]);
      await list.getByText("What is 7 plus 5?").click();
      await page.getByText("7 + 5 = 12.").first().waitFor();
      await page.getByLabel("Delete “What is 7 plus 5?”").click();
      expect(await list.locator("li").count()).toBe(1);
      expect(await page.getByTestId("message-user").count()).toBe(0);
      await page.getByTestId("undo").click();
      await page.getByTestId("message-user").waitFor();
      expect(await list.locator("li").count()).toBe(2);
      await page.getByTestId("conversations").click();
      await list.waitFor({ state: "detached" });
    });
  });

  test("appear in another tab", async () => {
    await using({}, async ({ page, context }) => {
      await reaches(page, "ready");
      const other = await context.newPage();
      await other.goto(page.url());
      await reaches(other, "ready");
      await ask(page, "What is 7 plus 5?");
      await other.getByTestId("history").getByText("What is 7 plus 5?").waitFor();
    });
  });

  test("that two tabs talk in at once show both turns in both, and after a reload", async () => {
    await using({ mock: "" }, async ({ page, context }) => {
      await reaches(page, "ready");
      await ask(page, "What is the capital of France?");
      const other = await context.newPage();
      await other.goto(page.url());
      await reaches(other, "ready");
      await Promise.all([say(page, "Tell me a long story"), say(other, "What is 7 plus 5?")]);
      for (const tab of [page, other]) {
        await tab.getByTestId("message-user").getByText("Tell me a long story").waitFor();
        await tab.getByTestId("message-assistant").getByText("7 + 5 = 12.").waitFor();
        await tab.getByTestId("message-assistant").getByText("Part 2.").waitFor();
      }
      await page.getByTestId("stop").click();
      const texts = (tab: Page): Promise<string[]> =>
        tab.locator("[data-testid=message-user], [data-testid=message-assistant]").allTextContents();
      const said = await texts(page);
      expect(said).toHaveLength(6);
      expect(said[said.indexOf("What is 7 plus 5?") + 1]).toBe("7 + 5 = 12.");
      await expect.poll(() => texts(other)).toEqual(said);
      await other.reload();
      await reaches(other, "ready");
      expect(await texts(other)).toEqual(said);
    });
  });

  test("deleted in one tab end in the other, and come back into its list", async () => {
    await using({ mock: "" }, async ({ page, context }) => {
      await reaches(page, "ready");
      await say(page, "Tell me a long story");
      await page.getByTestId("message-assistant").getByText("Part 1.").waitFor();
      const other = await context.newPage();
      await other.goto(page.url());
      await reaches(other, "ready");
      await other.getByLabel("Delete “Tell me a long story”").click();
      await page.getByText("has been deleted in another tab").waitFor();
      await reaches(page, "ready");
      expect(await page.getByTestId("message-user").count()).toBe(0);
      expect(await page.getByTestId("history").count()).toBe(0);
      await other.getByTestId("undo").click();
      await page.getByTestId("history").getByText("Tell me a long story").click();
      await page.getByTestId("message-assistant").getByText("Part 1.").waitFor();
    });
  });

  test("of an earlier page open, and go on", async () => {
    const { page } = await open({ alone: true });
    await reaches(page, "ready");
    await page.evaluate(() => {
      const messages = [
        { id: "q", role: "user", text: "Hello, my name is Ada!", ending: "done" },
        { id: "a", role: "assistant", text: "Nice to meet you, Ada!", ending: "done" },
      ];
      localStorage.setItem("tinychat:/:chat:old", JSON.stringify({ id: "old", title: "Hello", createdAt: 1, updatedAt: 2, messages }));
      localStorage.setItem("tinychat:/:current", JSON.stringify("old"));
    });
    await page.reload();
    await reaches(page, "ready");
    expect(await ask(page, "What is my name?")).toBe("Your name is Ada.");
    await page.reload();
    await reaches(page, "ready");
    expect(await page.getByTestId("message-user").allTextContents()).toEqual(["Hello, my name is Ada!", "What is my name?"]);
  });

  test("work where storage is blocked", async () => {
    const { page, context, problems } = await open({ alone: true });
    await context.addInitScript(() => {
      Object.defineProperty(window, "localStorage", {
        get() {
          throw new DOMException("denied", "SecurityError");
        },
      });
    });
    await page.reload();
    await reaches(page, "ready");
    await ask(page, "What is 7 plus 5?");
    await page.getByText("This browser blocks storage").waitFor();
    expect(problems).toEqual([]);
  });
});
