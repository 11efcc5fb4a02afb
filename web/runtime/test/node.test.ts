/** The built library in Node: a program of its own, as a user would write it, on each backend. */

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { addressOf } from "../src/node.js";
import { findBrowser } from "../../shell/testing/browser.js";
import { BUILT } from "./build.js";
import { expected, fakeBundle, promptIds } from "./fake-bundle.js";
import { fakeFunction } from "./fake-function.js";
import { Site } from "./site.js";

const run = promisify(execFile);
let folder: string;
const site = new Site();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tinyweb-node-"));
  const bundles = {
    chat: fakeBundle(),
    function: fakeFunction(),
    newer: fakeFunction((m) => (m.version = 3)),
    unknown: fakeFunction((m) => (m.task = "telepathy")),
    broken: fakeFunction((m) => (m.format = "zip")),
    picture: fakeFunction((m) => (m.task = "image")),
  };
  for (const [name, bundle] of Object.entries(bundles)) {
    site.bundles.set(name, bundle);
    for (const [path, bytes] of bundle.files) {
      await mkdir(dirname(join(folder, name, path)), { recursive: true });
      await writeFile(join(folder, name, path), bytes);
    }
  }
  await site.start();
});
afterAll(async () => {
  site.stop();
  await rm(folder, { recursive: true });
});

/** What a program prints, as JSON; it runs in the folder of the bundles. */
async function node(program: string, env: NodeJS.ProcessEnv = {}, built = BUILT): Promise<unknown> {
  const names = { tinyweb: "tinyweb.js", any: "tinyweb-load.js", talk: "tinyweb-openai.js" };
  const imports = Object.entries(names).map(([name, file]) => `import * as ${name} from ${JSON.stringify(new URL(file, built).href)};`);
  const source = [...imports, program].join("\n");
  await writeFile(join(folder, "program.mjs"), source);
  const { stdout } = await run(process.execPath, ["program.mjs"], { cwd: folder, env: { ...process.env, ...env }, timeout: 50_000 });
  return JSON.parse(stdout);
}

const CHAT = (at: string, options: object): string => `
  const chat = await tinyweb.loadChat(${JSON.stringify(at)}, ${JSON.stringify(options)});
  const tokens = [];
  for await (const { token } of chat.generate([{ role: "user", content: "hi" }], { maxTokens: 12, temperature: 0 })) tokens.push(token);
  const { backend, fallbacks } = chat.info;
  await chat.dispose();
  console.log(JSON.stringify({ backend, tokens, fallbacks }));
`;
const tokens = expected(promptIds([{ role: "user", content: "hi" }]), 12).filter((id) => id !== 257);

/** Dawn finds its adapter through Vulkan; the one that Chromium brings is there wherever the browser tests run. */
function software(): NodeJS.ProcessEnv {
  const places = [dirname(findBrowser()), "/usr/lib/chromium", "/opt/google/chrome"]; // Debian's /usr/bin/chromium is a script
  const driver = places.map((place) => join(place, "vk_swiftshader_icd.json")).find((file) => existsSync(file));
  return driver ? { VK_ICD_FILENAMES: driver } : {};
}

describe("addresses", () => {
  it.each([
    ["C:\\models\\a b#c%20d", "file:///C:/models/a%20b%23c%2520d"],
    ["c:/models/x/", "file:///c:/models/x/"],
    ["\\\\server\\share\\x", "file://server/share/x"],
    ["https://site.test/a%20b/#c", "https://site.test/a%20b/#c"],
    ["file:///C:/a%20b", "file:///C:/a%20b"],
  ])("on Windows, %s", (text, address) => {
    expect(addressOf(text, { windows: true }).href).toBe(address);
  });

  it.each([
    ["/a b#c%20d?e", "file:///a%20b%23c%2520d%3Fe"],
    ["/x/", "file:///x/"],
    ["./x", `${pathToFileURL(process.cwd()).href}/x`],
    ["../x", pathToFileURL(join(process.cwd(), "../x")).href],
    ["http://site.test/x", "http://site.test/x"],
    ["file:///a%20b/", "file:///a%20b/"],
  ])("elsewhere, %s", (text, address) => {
    expect(addressOf(text, { windows: false }).href).toBe(address);
  });
});

describe("in Node", () => {
  it.each(["wasm", "wasm-single"] as const)("a chat from a folder says what the model says: %s", async (backend) => {
    expect(await node(CHAT("./chat", { backend, threads: 2 }))).toMatchObject({ backend, tokens });
  });

  it("a chat from a folder whose name would mean something in an address", async () => {
    const name = "a b#c%20d?e é";
    await cp(join(folder, "chat"), join(folder, name), { recursive: true });
    for (const at of [`./${name}`, `${name}/`, join(folder, name)]) {
      expect(await node(CHAT(at, { backend: "wasm-single" }))).toMatchObject({ tokens });
    }
  });

  it("a chat from a site, with a full address", async () => {
    expect(await node(CHAT(`http://127.0.0.1:${site.port}/chat/`, { backend: "wasm-single" }))).toMatchObject({ tokens });
    expect(await node(CHAT(pathToFileURL(join(folder, "chat")).href, { backend: "wasm-single" }))).toMatchObject({ tokens });
  });

  it("a chat on WebGPU, through Dawn", async () => {
    expect(await node(CHAT("./chat", { backend: "webgpu" }), software())).toMatchObject({ backend: "webgpu", tokens });
  });

  it("a function", async () => {
    expect(
      await node(`
      const f = await tinyweb.loadFunction("./function", { backend: "wasm-single" });
      const { y } = await f.run({ x: Float32Array.of(1, -2, 3, 4), n: Int32Array.of(10) });
      await f.dispose();
      console.log(JSON.stringify([...y]));
    `),
    ).toEqual([11, 6, 19, 26]);
  });

  it("any bundle, by what its manifest says", async () => {
    expect(
      await node(`
      const chat = await any.load("./chat", { backend: "wasm-single" });
      const { choices } = await new talk.OpenAI({ chat }).chat.completions.create({ messages: [{ role: "user", content: "hi" }], max_tokens: 3, temperature: 0 });
      const f = await any.load("./function", { backend: "wasm-single", task: "function" });
      const { positive } = await f.run({ x: Float32Array.of(1, -2, 3, 4), n: Int32Array.of(10) });
      const errors = [];
      for (const [name, options] of [["newer"], ["unknown"], ["broken"], ["picture"], ["chat", { task: "function" }]]) {
        const error = await any.load("./" + name, options).catch((e) => e);
        errors.push([error instanceof tinyweb.TinywebError, error.code, error.message]);
      }
      await Promise.all([chat.dispose(), f.dispose()]);
      console.log(JSON.stringify([choices[0].message.content.length > 0, [...positive], errors]));
    `),
    ).toEqual([
      true,
      [1, 0, 1],
      [
        [true, "bad-manifest", "manifest.json: version: is 3, this library reads version 2: update tinyweb"],
        [true, "bad-manifest", expect.stringMatching(/task: "telepathy" is not one of chat, .*update tinyweb/)],
        [true, "bad-manifest", expect.stringContaining("format")],
        [true, "bad-manifest", expect.stringContaining("manifest.json")],
        [true, "bad-argument", "This bundle's task is chat, not function."],
      ],
    ]);
  });

  it("a site's files, which are for browsers: what is missing, and what to do", async () => {
    const assets = join(folder, "assets");
    await cp(BUILT, assets, { recursive: true });
    await rm(join(assets, "tinyweb-node.js"));
    const program = `
      const error = await tinyweb.loadChat("./chat").catch((e) => e);
      console.log(JSON.stringify([error instanceof tinyweb.TinywebError, error.code, error.message]));
    `;
    expect(await node(program, {}, pathToFileURL(`${assets}/`))).toEqual([
      true,
      "worker-failed",
      expect.stringMatching(/^tinyweb-node\.js is not beside tinyweb\.js.*in Node, import the npm package tinyweb, or/),
    ]);
  });

  it("what is not there is told, and the program ends", async () => {
    expect(
      await node(`
      const error = await tinyweb.loadChat("./nothing").catch((e) => e);
      console.log(JSON.stringify([error instanceof tinyweb.TinywebError, error.code, error.message]));
    `),
    ).toEqual([true, "download-failed", expect.stringMatching(/nothing\/manifest\.json.*no such file/)]);
  });
});
