/** The built library in Node: a program of its own, as a user would write it, on each backend. */

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { BUILT } from "./build.js";
import { findBrowser } from "./chromium.js";
import { expected, fakeBundle, promptIds } from "./fake-bundle.js";
import { fakeFunction } from "./fake-function.js";
import { Site } from "./site.js";

const run = promisify(execFile);
let folder: string;
const site = new Site();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tinyweb-node-"));
  for (const [name, bundle] of [["chat", fakeBundle()], ["function", fakeFunction()]] as const) {
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
async function node(program: string, env: NodeJS.ProcessEnv = {}): Promise<unknown> {
  const source = `import * as tinyweb from ${JSON.stringify(new URL("tinyweb.js", BUILT).href)};\n${program}`;
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

describe("in Node", () => {
  it.each(["wasm", "wasm-single"] as const)("a chat from a folder says what the model says: %s", async (backend) => {
    expect(await node(CHAT("./chat", { backend, threads: 2 }))).toMatchObject({ backend, tokens });
  });

  it("a chat from a site, with a full address", async () => {
    expect(await node(CHAT(`http://127.0.0.1:${site.port}/chat/`, { backend: "wasm-single" }))).toMatchObject({ tokens });
    expect(await node(CHAT(pathToFileURL(join(folder, "chat")).href, { backend: "wasm-single" }))).toMatchObject({ tokens });
  });

  it("a chat on WebGPU, through Dawn", async () => {
    expect(await node(CHAT("./chat", { backend: "webgpu" }), software())).toMatchObject({ backend: "webgpu", tokens });
  });

  it("a function", async () => {
    expect(await node(`
      const f = await tinyweb.loadFunction("./function", { backend: "wasm-single" });
      const { y } = await f.run({ x: Float32Array.of(1, -2, 3, 4), n: Int32Array.of(10) });
      await f.dispose();
      console.log(JSON.stringify([...y]));
    `)).toEqual([11, 6, 19, 26]);
  });

  it("what is not there is told, and the program ends", async () => {
    expect(await node(`
      const error = await tinyweb.loadChat("./nothing").catch((e) => e);
      console.log(JSON.stringify([error instanceof tinyweb.TinywebError, error.code, error.message]));
    `)).toEqual([true, "download-failed", expect.stringMatching(/nothing\/manifest\.json.*no such file/)]);
  });
});
