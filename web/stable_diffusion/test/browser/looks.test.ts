/** Every state of the page on all kinds of screens. */

import { reaches } from "tinyweb-shell/testing";
import { testLooks } from "tinyweb-shell/testing/looks";
import { paint } from "./using";

testLooks([
  { name: "empty", options: {}, act: (page) => reaches(page, "ready") },
  {
    name: "gallery",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      for (const prompt of [
        "a red circle",
        "a blue square on a yellow background",
        "a green circle on a black background",
        "a pink square on a cyan background",
      ])
        await paint(page, prompt);
      await page.getByTestId("picture").nth(3).waitFor();
    },
  },
  {
    name: "painting",
    options: { mock: "hanging" },
    async act(page) {
      await page.getByTestId("prompt").fill("a blue square on a yellow background");
      await page.getByTestId("generate").click();
      await page.getByText("Step 2 of 6", { exact: true }).waitFor();
    },
  },
  {
    name: "start-picture",
    options: { mock: "fast,large" },
    async act(page) {
      await reaches(page, "ready");
      await paint(page, "an orange circle on a purple background");
      await page.getByTestId("vary").click();
      await page.getByTestId("start-picture").waitFor();
    },
  },
  {
    name: "broken",
    options: { mock: "fast,full" },
    async act(page) {
      await page.getByTestId("prompt").fill("a red circle");
      await page.getByTestId("generate").click();
      await page.getByTestId("error").waitFor();
    },
  },
]);
