/** Every state of the page on all kinds of screens. */

import { reaches } from "tinyweb-shell/testing";
import { testLooks } from "tinyweb-shell/testing/looks";
import { picture, run } from "./using";

testLooks([
  { name: "empty", options: {}, act: (page) => reaches(page, "ready") },
  {
    name: "looked",
    options: {},
    async act(page) {
      await reaches(page, "ready");
      await page.locator('input[type="file"][accept="image/*"]').setInputFiles(await picture(page, "teal"));
      await page.getByTestId("classes").waitFor();
      await reaches(page, "ready");
    },
  },
  {
    name: "numbers",
    options: { mock: "numbers" },
    async act(page) {
      await run(page);
      await page.getByTestId("plot").waitFor();
    },
  },
  {
    name: "refused",
    options: { mock: "numbers" },
    async act(page) {
      await reaches(page, "ready");
      await page.getByTestId("input-1-json").fill("many");
      await page.getByTestId("run").click();
      await page.getByTestId("error").waitFor();
    },
  },
]);
