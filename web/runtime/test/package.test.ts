/** The package as others install it: what is in it, types, tree shaking, a page built by Vite, a model inside a page's own worker. */

import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";
import { build } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newContext, useBrowser } from "../../shell/testing/browser.js";
import { within } from "../../shell/testing/programs.js";
// @ts-expect-error a script without types
import { FILES } from "../scripts/files.mjs";
import { expected, fakeBundle, promptIds } from "./fake-bundle.js";
import { Site } from "./site.js";
import { stage, type Staged } from "./stage.js";

let staged: Staged;
const site = new Site();
useBrowser();
beforeAll(async () => {
  staged = stage();
  await site.start();
  site.bundles.set("model", fakeBundle());
});
afterAll(() => {
  site.stop();
  rmSync(dirname(staged.project), { recursive: true });
});

const write = (name: string, text: string): string => {
  const path = join(staged.project, name);
  writeFileSync(path, text);
  return path;
};

const MESSAGES = [{ role: "user", content: "hi" }];
const ANSWER = new TextDecoder("utf-8", { ignoreBOM: true }).decode(
  Uint8Array.from(expected(promptIds(MESSAGES), 8).filter((id) => id < 256)),
);

describe("the package", () => {
  it("holds the library, its types, a licence and a README, and nothing else", () => {
    const { files, bytes } = staged;
    const scripts = files.filter((file) => file.endsWith(".js")).sort();
    expect(scripts).toEqual(
      Object.keys(FILES as object)
        .map((name) => `dist/${name}`)
        .sort(),
    );
    const others = files.filter((file) => !file.endsWith(".js") && !file.endsWith(".d.ts"));
    expect(others.sort()).toEqual(["LICENSE", "README.md", "dist/licenses.txt", "package.json"]);
    expect(bytes).toBeLessThan(200_000);
    const { exports } = JSON.parse(readFileSync(join(staged.project, "node_modules/tinyweb/package.json"), "utf8")) as {
      exports: Record<string, unknown>;
    };
    const named = Object.values(exports).flatMap((target) =>
      typeof target === "string" ? [target] : Object.values(target as object),
    ) as string[];
    for (const path of named) expect(files).toContain(path.slice(2));
    expect(Object.keys(exports)).toEqual([".", "./detect", "./image", "./embed", "./openai", "./load", "./worker", "./chat-worker"]);
  });

  it("has types, also for Node's way to find modules", () => {
    write(
      "types.ts",
      `
      import { loadChat, loadFunction, TinywebError, type Chat, type LoadOptions } from "tinyweb";
      import { load } from "tinyweb/load";
      import { loadImageGenerator } from "tinyweb/image";
      import * as detect from "tinyweb/detect";
      import * as embed from "tinyweb/embed";
      import { ChatSession, OpenAI } from "tinyweb/openai";
      export async function main(options: LoadOptions): Promise<string> {
        const chat: Chat = await loadChat("./model", options);
        const session = new ChatSession(chat, { system: "Be brief." });
        for await (const { text } of session.send("Hello")) console.log(text.length);
        const stream = await new OpenAI({ chat }).chat.completions.create({ messages: [{ role: "user", content: "x" }], stream: true });
        for await (const chunk of stream) console.log(chunk.choices[0]?.delta.content);
        const f = await load("./f", { task: "function" });
        const { y } = await f.run({ x: new Float32Array(4) });
        // @ts-expect-error a parameter that is not known
        await new OpenAI({ chat }).chat.completions.create({ messages: [], tools: [] });
        console.log(y?.length, loadFunction.name, loadImageGenerator.name, detect, embed);
        return chat.info.backend satisfies "webgpu" | "wasm" | "wasm-single";
      }
      export const failed = (error: unknown): boolean => error instanceof TinywebError && error.code === "aborted";
    `,
    );
    write(
      "tsconfig.json",
      JSON.stringify({
        compilerOptions: {
          strict: true,
          noEmit: true,
          target: "es2022",
          lib: ["es2023", "dom", "dom.iterable", "dom.asynciterable"],
          module: "nodenext",
          moduleResolution: "nodenext",
          types: [],
        },
        files: ["types.ts"],
      }),
    );
    write("package.json", JSON.stringify({ type: "module", private: true }));
    const root = fileURLToPath(new URL("..", import.meta.url));
    const { stdout, status } = spawnSync("npx", ["tsc", "-p", staged.project, "--pretty", "false", "--listFiles"], {
      cwd: root,
      encoding: "utf8",
      timeout: 60_000,
    });
    const lines = stdout.split("\n");
    expect(lines.filter((line) => /error TS/.test(line))).toEqual([]);
    expect(status).toBe(0);
    // The compilers that most have know no types of WebGPU: what a project reads of the package must not name them.
    const own = lines.filter((file) => file.includes("node_modules/tinyweb/dist/"));
    expect(own.length).toBeGreaterThan(10);
    for (const file of own) expect(readFileSync(file, "utf8").replaceAll(/\/\*.*?\*\/|\/\/.*$/gms, ""), file).not.toMatch(/\bGPU/);
  });

  /** Bytes of a program that a bundler makes of these imports. */
  async function shaken(program: string): Promise<string> {
    const bundle = await rolldown({ input: write("shaken.js", program), platform: "browser", logLevel: "silent" });
    const { output } = await bundle.generate({ format: "es", minify: true });
    return output.map((part) => (part.type === "chunk" ? part.code : "")).join("");
  }

  it("leaves out what is not used", async () => {
    expect(await shaken('import { loadChat } from "tinyweb"; import { load } from "tinyweb/load"; import "tinyweb/openai";')).toBe("");
    const error = await shaken('import { TinywebError } from "tinyweb"; console.log(TinywebError);');
    expect(error.length).toBeLessThan(400);
    const session = await shaken('import { ChatSession } from "tinyweb/openai"; console.log(ChatSession);');
    expect(session.length).toBeLessThan(4500);
    expect(session).not.toMatch(/chat\.completion|embedding|tinyweb-(chat-)?worker/);
    const image = await shaken('import { loadImageGenerator } from "tinyweb/image"; console.log(loadImageGenerator);');
    expect(image).not.toContain("chat.completion");
    const embed = await shaken('import { loadEmbedder } from "tinyweb/embed"; console.log(loadEmbedder);');
    expect(embed).not.toMatch(/euler-ancestral|vae_decoder|chat\.completion|detect\(\)/);
    expect(embed.length).toBeLessThan(75_000);
    expect((await shaken('import { splitText } from "tinyweb/embed"; console.log(splitText);')).length).toBeLessThan(4200);
  });
});

/** Builds a page with Vite, puts it at /app/, visits it, and returns the text it ends with. */
async function visit(main: string, extra: Record<string, string> = {}): Promise<{ text: string; scripts: string[] }> {
  for (const [name, text] of Object.entries({ "main.js": main, "index.html": PAGE, ...extra })) write(name, text);
  const out = join(staged.project, "out");
  await within(
    60_000,
    "Vite to build the page",
    build({
      root: staged.project,
      base: "./",
      configFile: false,
      logLevel: "error",
      mode: "production",
      build: { outDir: out, emptyOutDir: true },
      worker: { format: "es" },
    }),
  );
  const found = readdirSync(out, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const files = new Map(
    found.map((entry) => {
      const path = join(entry.parentPath, entry.name);
      return [path.slice(out.length + 1), new Uint8Array(readFileSync(path))] as const;
    }),
  );
  site.bundles.set("app", { files, manifest: {} });
  const page = await (await newContext()).newPage();
  const errors: string[] = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(error.message));
  await page.goto(`http://localhost:${site.port}/app/index.html`);
  await page.waitForFunction(() => document.title !== "");
  expect(errors.filter((text) => !/favicon/.test(text))).toEqual([]);
  return { text: await page.title(), scripts: [...files.keys()].filter((name) => name.endsWith(".js")) };
}

const PAGE = '<!doctype html><html lang="en"><title></title><script type="module" src="./main.js"></script></html>';
const ASK = `
  const chat = await loadChat("/model", { backend: "wasm" });
  let text = "";
  for await (const part of chat.generate(${JSON.stringify(MESSAGES)}, { maxTokens: 8, temperature: 0 })) text += part.text;
  const answer = JSON.stringify({ text, backend: chat.info.backend });
  await chat.dispose();
`;

describe("in a page", () => {
  it("that Vite builds, with the worker and its threads", async () => {
    const { text, scripts } = await visit(`import { loadChat } from "tinyweb"; ${ASK} document.title = answer;`);
    expect(JSON.parse(text)).toEqual({ text: ANSWER, backend: "wasm" });
    expect(scripts.some((name) => /worker/.test(name))).toBe(true);
  });

  it("inside a worker of the page's own, built by Vite", async () => {
    const { text } = await visit(
      'const worker = new Worker(new URL("./own.js", import.meta.url), { type: "module" }); worker.onmessage = ({ data }) => (document.title = data);',
      { "own.js": `import { loadChat } from "tinyweb"; ${ASK} self.postMessage(answer);` },
    );
    expect(JSON.parse(text)).toEqual({ text: ANSWER, backend: "wasm" });
  });

  it("inside a worker of the page's own, without a bundler", async () => {
    const page = await (await newContext()).newPage();
    site.bundles.set("own", {
      files: new Map([
        ["worker.js", new TextEncoder().encode(`import { loadChat } from "/assets/tinyweb.js"; ${ASK} self.postMessage(answer);`)],
      ]),
      manifest: {},
    });
    await page.goto(`http://localhost:${site.port}/`);
    const text = await within(
      40_000,
      "the worker's answer",
      page.evaluate(
        () =>
          new Promise<string>((resolve, reject) => {
            const worker = new Worker("/own/worker.js", { type: "module" });
            worker.onmessage = ({ data }) => resolve(data as string);
            worker.onerror = (event) => reject(new Error((event as ErrorEvent).message));
          }),
      ),
    );
    expect(JSON.parse(text)).toEqual({ text: ANSWER, backend: "wasm" });
  });
});
