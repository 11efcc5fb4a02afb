/** The examples of the documentation and of examples/web: type-checked, those that need no real model run in Node, the chat page in Chromium. */

import { execFile, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newContext, useBrowser } from "../../shell/testing/browser.js";
import { BUILT } from "./build.js";
import { expected, fakeBundle, promptIds, type FakeBundle } from "./fake-bundle.js";
import { fakeFunction } from "./fake-function.js";
import { Site } from "./site.js";
import { stage, type Staged } from "./stage.js";

const at = (path: string): string => fileURLToPath(new URL(`../../../${path}`, import.meta.url));
const EXAMPLES = at("examples/web");

interface Block {
  name: string;
  /** To be run: marked `js run`. */
  run: boolean;
  code: string;
}

const blocks = ["web/runtime/README.md", "docs/javascript.md"].flatMap((file) => {
  const found = [...readFileSync(at(file), "utf8").matchAll(/^```js( run)?\n(.*?)^```$/gms)];
  return found.map(
    ([, run, code], i): Block => ({ name: `${file.replaceAll(/\W/g, "-")}-${i}`, run: run !== undefined, code: code as string }),
  );
});

/** The bundles that the examples name, and the loader that an export writes beside a chat's. */
const BUNDLES: Record<string, FakeBundle> = { model: fakeBundle(), function: fakeFunction() };
const LOADER =
  'import { loadChat } from "../assets/tinyweb.js";\nexport const load = (options) => loadChat(new URL("./", import.meta.url), options);\n';

let staged: Staged;
useBrowser();
beforeAll(() => {
  staged = stage();
  for (const [name, { files }] of Object.entries(BUNDLES)) {
    for (const [path, bytes] of files) {
      const file = join(staged.project, name, path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, bytes);
    }
  }
});
afterAll(() => rmSync(dirname(staged.project), { recursive: true }));

async function node(file: string, ...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [file, ...args], { cwd: staged.project, timeout: 50_000 });
  return stdout;
}

describe("the examples of the documentation", () => {
  it("run, where they need no real model", async () => {
    const run = blocks.filter((block) => block.run);
    for (const { name, code } of run) writeFileSync(join(staged.project, `${name}.mjs`), code);
    const all = run.map(({ name }) => `await import("./${name}.mjs");\nconsole.log("ran ${name}");`);
    writeFileSync(join(staged.project, "all.mjs"), all.join("\n"));
    const said = (await node("all.mjs")).split("\n");
    expect(said.filter((line) => line.startsWith("ran "))).toEqual(run.map(({ name }) => `ran ${name}`));
    expect(run.length).toBeGreaterThan(5);
  });

  it("have the right names and types, and those of examples/web", () => {
    const folder = join(staged.project, "checked");
    mkdirSync(folder);
    const page =
      'declare const blob: Blob;\ndeclare function loadChat(url: string, options: import("tinyweb").LoadOptions): Promise<import("tinyweb").Chat>;\n';
    writeFileSync(join(folder, "globals.d.ts"), page);
    for (const { name, code } of blocks) writeFileSync(join(folder, `${name}.js`), `${code}\nexport {};\n`);
    const kinds = {
      chat: ["", "Chat"],
      detect: ["/detect", "Detector"],
      image: ["/image", "ImageGenerator"],
      embed: ["/embed", "Embedder"],
    };
    for (const [kind, [path, model]] of Object.entries(kinds)) {
      const own = join(folder, kind);
      mkdirSync(join(own, "model"), { recursive: true });
      writeFileSync(
        join(own, "model", "model.d.ts"),
        `
        export function load(options?: import("tinyweb").LoadOptions): Promise<import("tinyweb${path}").${model}>;
      `,
      );
      for (const file of [`${kind}.js`, "common.js"]) writeFileSync(join(own, file), readFileSync(join(EXAMPLES, file)));
    }
    writeFileSync(join(folder, "node.mjs"), readFileSync(join(EXAMPLES, "node.mjs")));
    writeFileSync(
      join(folder, "tsconfig.json"),
      JSON.stringify({
        compilerOptions: {
          allowJs: true,
          checkJs: true,
          noEmit: true,
          strict: true,
          noImplicitAny: false,
          strictNullChecks: false,
          target: "es2022",
          module: "esnext",
          moduleResolution: "bundler",
          lib: ["es2023", "dom", "dom.iterable", "dom.asynciterable"],
          types: ["node"],
          typeRoots: [at("node_modules/@types")],
          skipLibCheck: true,
        },
        include: ["**/*"],
      }),
    );
    const { stdout, status } = spawnSync("npx", ["tsc", "-p", folder, "--pretty", "false"], {
      cwd: at("web/runtime"),
      encoding: "utf8",
      timeout: 60_000,
    });
    expect(stdout).toBe("");
    expect(status).toBe(0);
  });

  it("node.mjs answers, and says how it is used", async () => {
    writeFileSync(join(staged.project, "node.mjs"), readFileSync(join(EXAMPLES, "node.mjs")));
    const answer = expected(promptIds([{ role: "user", content: "hi" }]), 200).filter((id) => id < 256);
    expect(await node("node.mjs", "model", "hi")).toBe(
      `${new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(answer))}\n`,
    );
    await expect(node("node.mjs")).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining("usage") });
  });
});

describe("the pages to copy", () => {
  it("have no inline scripts or styles, and a policy that forbids them", () => {
    const pages = readdirSync(EXAMPLES).filter((name) => name.endsWith(".html"));
    expect(pages).toContain("chat.html");
    for (const file of pages) {
      const text = readFileSync(join(EXAMPLES, file), "utf8");
      expect(text).toContain("default-src 'none'; script-src 'self' 'wasm-unsafe-eval'");
      expect(text).not.toMatch(/<script(?![^>]*\ssrc=)|<style|\son\w+=|https?:/);
    }
  });

  it("chat.html answers", async () => {
    const site = new Site();
    await site.start();
    const files = new Map<string, Uint8Array>();
    for (const name of ["chat.html", "chat.js", "common.js", "example.css"])
      files.set(name, new Uint8Array(readFileSync(join(EXAMPLES, name))));
    for (const name of ["tinyweb.js", "tinyweb-chat-worker.js"])
      files.set(`assets/${name}`, new Uint8Array(readFileSync(new URL(name, BUILT))));
    for (const [path, bytes] of fakeBundle().files) files.set(`model/${path}`, bytes);
    files.set("model/model.js", new TextEncoder().encode(LOADER));
    site.bundles.set("site", { files, manifest: {} });
    try {
      const page = await (await newContext()).newPage();
      const errors: string[] = [];
      page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
      await page.goto(`http://localhost:${site.port}/site/chat.html`);
      const status = page.locator("#status");
      await expect.poll(() => status.textContent()).toMatch(/^Ready: fake on wasm/);
      await page.fill("#question", "hi");
      await page.keyboard.press("Enter");
      await expect.poll(() => status.textContent()).toMatch(/tokens per second/);
      const system = { role: "system", content: "You are a helpful assistant." };
      const ids = promptIds([system, { role: "user", content: "hi" }]);
      const said = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(expected(ids, 20).filter((id) => id < 256)));
      expect(await page.locator("#conversation p").allTextContents()).toEqual(["hi", said]);
      expect(errors).toEqual([]);
    } finally {
      site.stop();
    }
  });
});
