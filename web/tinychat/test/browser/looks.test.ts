/** Every state of the page on all kinds of screens. */

import { reaches } from "tinyweb-shell/testing";
import { testLooks } from "tinyweb-shell/testing/looks";
import { ask, say } from "./using";

testLooks([
  { name: "empty", options: {}, act: (page) => reaches(page, "ready") },
  {
    name: "conversation",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "My name is Ada and I like prime numbers.");
      await ask(page, "What is my name?");
      await ask(page, "Tell me a story about a little fox");
    },
  },
  {
    name: "queued",
    options: { mock: "slow" },
    async act(page) {
      await page.getByText("3.1 of 7.8 MB").waitFor();
      await say(page, "What is 7 plus 5?");
      await page.getByTestId("queued").waitFor();
    },
  },
  {
    name: "markdown",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "How do I sort a list in Python? Please answer in Markdown.");
    },
  },
  {
    name: "answering",
    passing: true,
    options: { mock: "" },
    async act(page) {
      await reaches(page, "ready");
      await say(page, "Tell me a long story");
      await page.getByTestId("message-assistant").getByText("Part 2").first().waitFor();
    },
  },
  {
    name: "thinking",
    options: { mock: "thinking" },
    async act(page) {
      await reaches(page, "ready");
      await say(page, "Tell me a story about a little fox");
      await page.getByLabel("Thinking").waitFor();
    },
  },
  {
    name: "conversations",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      for (const text of ["What is 7 plus 5?", "Tell me a story about a little fox who wants to see the sea", "Sort 49, 93, 3, 14"]) {
        await ask(page, text);
        await page.getByTestId("new-chat").click();
      }
      await ask(page, "What is the capital of France?");
    },
    async reveal(page) {
      const history = page.getByTestId("history");
      if (!(await history.isVisible())) await page.getByTestId("conversations").click();
      await history.waitFor();
    },
  },
  {
    name: "settings-end",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "What is 7 plus 5?");
      await page.getByTestId("settings").click();
      await page.getByTestId("delete-all").scrollIntoViewIfNeeded();
    },
  },
  {
    name: "interrupted",
    options: { mock: "interrupted,fast" },
    act: (page) => reaches(page, "error"),
  },
  { name: "out-of-memory", options: { mock: "memory,fast" }, act: (page) => reaches(page, "error") },
  { name: "no-backend", options: { mock: "no-backend,fast" }, act: (page) => reaches(page, "error") },
  {
    name: "no-webgpu",
    options: { mock: "one-thread,fast" },
    act: (page) => page.getByTestId("note").waitFor(),
  },
  {
    name: "device-lost",
    options: { mock: "lost,fast" },
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "Tell me a story about a little fox");
      await page.getByText("The model is back").waitFor();
    },
  },
  {
    name: "broken-answer",
    options: { mock: "broken,fast" },
    async act(page) {
      await reaches(page, "ready");
      await ask(page, "Tell me a story about a little fox");
    },
  },
]);
