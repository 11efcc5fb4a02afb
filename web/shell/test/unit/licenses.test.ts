/** Whose code a page holds, by another way than the notices are made: by the sources that its source maps name. */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type Rolldown } from "vite";
import { afterAll, describe, expect, test } from "vitest";
import { Notices } from "../../licenses.mjs";

const WEB = fileURLToPath(new URL("../../..", import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), "tinyweb-licenses-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** "preact" of "…/node_modules/preact/src/x.js". */
function packagesIn(sources: readonly string[]): string[] {
  return [...new Set(sources.flatMap((source) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/u.exec(source)?.[1] ?? []))].sort();
}

/** Names of the packages that licenses.txt has, after tinyweb's own. */
function told(text: string): string[] {
  const notices = text.split(`\n${"=".repeat(80)}\n\n`);
  for (const notice of notices) {
    expect(notice).toMatch(/^\S+ \d+\.\d+\.\d+, \S.*\n\n/u);
    expect(notice).toMatch(/copyright/iu);
    expect(notice.length).toBeGreaterThan(500);
  }
  const names = notices.map((notice) => notice.split(" ", 1)[0] ?? "");
  expect(names[0]).toBe("tinyweb");
  return names.slice(1);
}

describe("licenses.txt names every package that is in", () => {
  test.each(["tinychat", "yolo", "stable_diffusion", "search"])("the page of web/%s", async (workspace) => {
    const root = join(WEB, workspace);
    const made = (await build({
      root,
      configFile: join(root, "vite.config.ts"),
      logLevel: "error",
      build: { write: false, sourcemap: "hidden" },
    })) as Rolldown.RolldownOutput;
    const sources = made.output.flatMap((part) => (part.type === "chunk" ? (part.map?.sources ?? []) : []));
    const packages = packagesIn(sources);
    expect(packages).toContain("preact");
    const notices = made.output.find(({ fileName }) => fileName === "licenses.txt");
    expect(notices?.type === "asset" && told(String(notices.source))).toEqual(packages);
  });

  test("the library", () => {
    execFileSync("node", [join(WEB, "runtime/scripts/build.mjs"), scratch, "--sourcemap"], { stdio: "pipe", timeout: 60_000 });
    const maps = readdirSync(scratch).filter((file) => file.endsWith(".map"));
    const packages = packagesIn(
      maps.flatMap((file) => (JSON.parse(readFileSync(join(scratch, file), "utf8")) as { sources: string[] }).sources),
    );
    expect(packages).toEqual(["@huggingface/jinja", "@huggingface/tokenizers"]);
    expect(told(readFileSync(join(scratch, "licenses.txt"), "utf8"))).toEqual(packages);
  });
});

describe("a package", () => {
  const folder = join(scratch, "project/node_modules/thing");
  const output = (path: string, renderedLength = 1) => ({
    "page.js": { type: "chunk", modules: { [join(folder, path)]: { renderedLength } } },
  });
  const add = (path: string, renderedLength?: number): string => {
    const notices = new Notices();
    notices.add(output(path, renderedLength));
    return notices.text();
  };

  test("without a licence is refused; what is not used of it needs none", () => {
    mkdirSync(join(folder, "dist"), { recursive: true });
    writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "thing", version: "1.2.3", license: "MIT" }));
    writeFileSync(join(folder, "dist/package.json"), JSON.stringify({ type: "module" }));
    expect(() => add("dist/index.js")).toThrow("thing is part of the build, but");
    expect(add("dist/index.js", 0)).not.toContain("thing");
  });

  test("has all its notices, also for styles", () => {
    writeFileSync(join(folder, "LICENSE.md"), "Copyright of Thing");
    writeFileSync(join(folder, "NOTICE"), "Thing contains a stone");
    for (const text of [add("dist/index.js"), add("dist/thing.css?inline", 0)]) {
      expect(text).toContain("thing 1.2.3, MIT\n\nCopyright of Thing\n");
      expect(text).toContain("Thing contains a stone");
    }
  });

  test("that nobody knows stops the build", () => {
    expect(() => new Notices().add({ "page.js": { type: "chunk", modules: { "\0helper.js": { renderedLength: 9 } } } })).toThrow(
      "it is not known whose it is",
    );
  });
});
