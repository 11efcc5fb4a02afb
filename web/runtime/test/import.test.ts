import { readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";
// @ts-expect-error a script without types
import { FILES } from "../scripts/files.mjs";
import { BUILT } from "./build.js";

const names = Object.keys(FILES as object).filter((name) => !name.endsWith("worker.js"));
const open = (name: string): Promise<Record<string, unknown>> =>
  import(/* @vite-ignore */ new URL(name, BUILT).href) as Promise<Record<string, unknown>>;

describe("the built files", () => {
  it("are those of the list", () => {
    expect(
      readdirSync(BUILT)
        .filter((name) => name.endsWith(".js"))
        .sort(),
    ).toEqual(Object.keys(FILES as object).sort());
  });

  it.each(names)("%s can be imported where there is no browser", async (name) => {
    expect(await open(name)).toBeTypeOf("object");
  });

  it("has the public names, and says why it cannot begin", async () => {
    const library = (await open("tinyweb.js")) as typeof import("../src/index.js");
    const names = Object.keys(await import("../src/index.js"));
    expect(names).toEqual(expect.arrayContaining(["TinywebError", "loadChat", "loadFunction"]));
    for (const name of names) expect(library).toHaveProperty(name);
    await expect(library.loadChat("http://")).rejects.toMatchObject({ code: "bad-argument", name: "TinywebError" });
  });
});
