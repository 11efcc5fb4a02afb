// Alters src/ in small ways, one at a time, and runs the tests that run it: what no test notices is listed.
// usage: npm run mutate -w tinyweb [-- MODULE[=TEST,TEST...] ...]
// MODULE is a file of src/ such as "store" or "image/noise", TEST a file of test/ (default: those that belong to it, else all).
// Without arguments: everything, many hours.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const run = (command, args, options) => execFileSync(command, args, { stdio: "inherit", ...options });
const root = at("../../..");

if (!existsSync(at("node_modules"))) run("npm", ["ci", "--no-audit", "--no-fund", "--ignore-scripts"], { cwd: at(".") });
// threads of tests run the library as it is built, which stays as it is
run("node", ["scripts/build.mjs", "test-results/assets"], { cwd: at("..") });

/** Tests that belong to a module by another name than its own ("openai/stops": openai-stops) or its folder's ("detect/section": detect). */
const BELONG = {
  arguments: ["options"],
  tasks: ["manifest"],
  "image/clip-tokenizer": ["image-tokenizer"],
  "image/noise": ["image-schedulers"],
};
const belonging = (name) =>
  BELONG[name] ?? [name.replace("/", "-"), name.split("/")[0]].filter((test) => existsSync(at(`../test/${test}.test.ts`))).slice(0, 1);

const stryker = (args, tests) =>
  run("node", [at("node_modules/@stryker-mutator/core/bin/stryker.js"), "run", "web/runtime/mutation/stryker.config.json", ...args], {
    cwd: root,
    env: { ...process.env, ...(tests && { TINYWEB_TESTS: tests.join(" ") }) },
  });

const asked = process.argv.slice(2);
if (asked.length === 0) stryker([]);
for (const one of asked) {
  const [name, list] = one.split("=");
  const tests = list?.split(",") ?? belonging(name);
  stryker(["--mutate", `web/runtime/src/${name}.ts`], tests.length > 0 ? tests : undefined);
}
