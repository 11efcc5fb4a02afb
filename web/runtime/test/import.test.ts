import { expect, it } from "vitest";
import { BUILT } from "./build.js";

it("can be imported where there is no browser, and says so when used", async () => {
  const library = (await import(/* @vite-ignore */ new URL("tinyweb.js", BUILT).href)) as typeof import("../src/index.js");
  expect(Object.keys(library).sort()).toEqual(["TinywebError", "loadChat", "loadFunction"]);
  await expect(library.loadChat("http://localhost/model/")).rejects.toMatchObject({ code: "worker-failed", name: "TinywebError" });
});
