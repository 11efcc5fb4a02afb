/** Every state of the page on all kinds of screens. */

import { Buffer } from "node:buffer";
import { testLooks } from "tinyweb-shell/testing/looks";
import { reaches } from "tinyweb-shell/testing";
import { addPictures, ask, settled } from "./using";

testLooks([
  { name: "welcome", options: {}, act: settled },
  {
    name: "results",
    options: {},
    async act(page) {
      await settled(page);
      await ask(page, "how do plants make their food");
    },
  },
  {
    name: "passage",
    options: {},
    async act(page) {
      await settled(page);
      await ask(page, "overnight trip by rail");
      await page.getByTestId("open-result").first().click();
      await page.getByTestId("passage").waitFor();
    },
  },
  {
    name: "similar",
    options: {},
    async act(page) {
      await settled(page);
      await ask(page, "bread");
      await page.getByTestId("similar").first().click();
      await page.getByTestId("like").waitFor();
    },
  },
  {
    name: "reading",
    passing: true,
    options: { mock: "fast,crawling" },
    async act(page) {
      await page
        .getByTestId("documents")
        .getByText(/[1-9]\d* of 14/u)
        .waitFor();
    },
  },
  {
    name: "pictures welcome",
    options: { mock: "fast,pictures" },
    act: (page) => reaches(page, "ready"),
  },
  {
    name: "pictures",
    options: { mock: "fast,pictures" },
    async act(page) {
      await reaches(page, "ready");
      await addPictures(page, ["red", "green", "blue", "red too", "gold", "teal"]);
      await page.getByTestId("text").fill("The sea is blue.");
      await page.getByTestId("add").click();
      await page.getByTestId("documents").getByText("1 passage", { exact: true }).waitFor();
      await ask(page, "sea");
    },
  },
  {
    name: "picture",
    options: { mock: "fast,pictures" },
    async act(page) {
      await reaches(page, "ready");
      await addPictures(page, ["green"]);
      await page.getByTestId("open-picture").first().click();
      await page.getByTestId("picture-dialog").getByRole("img").waitFor();
    },
  },
  {
    name: "refused",
    options: {},
    async act(page) {
      await settled(page);
      await page
        .getByTestId("file")
        .setInputFiles({ name: "a long name of a paper.pdf", mimeType: "application/pdf", buffer: Buffer.from("%PDF") });
      await page.getByTestId("error").waitFor();
    },
  },
]);
