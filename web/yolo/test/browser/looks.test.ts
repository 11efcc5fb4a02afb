/** Every state of the page on all kinds of screens. */

import { Buffer } from "node:buffer";
import { reaches } from "tinyweb-shell/testing";
import { testLooks } from "tinyweb-shell/testing/looks";
import { boxes, choose } from "./using";

testLooks([
  { name: "empty", options: {}, act: (page) => reaches(page, "ready") },
  {
    name: "found",
    options: {},
    async act(page) {
      await choose(page);
      await boxes(page);
      await page.waitForTimeout(100); // they are drawn with the next frame
    },
  },
  {
    name: "classes",
    options: { mock: "many" },
    async act(page) {
      await reaches(page, "ready");
      await page.getByText("Look for").click();
      await page.getByTestId("search-classes").fill("1");
    },
  },
  {
    name: "bad-file",
    options: { mock: "nothing" },
    async act(page) {
      await choose(page);
      await page.getByText("Nothing found").first().waitFor();
      await page.getByTestId("file").setInputFiles({ name: "letter.txt", mimeType: "text/plain", buffer: Buffer.from("no picture") });
      await page.getByTestId("error").waitFor();
    },
  },
]);
