/** Vitest's global set-up: builds the library as it is shipped, for the tests that start workers and browsers. */

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { shared } from "../../shell/testing/programs.js";

export const BUILT = new URL("../test-results/assets/", import.meta.url);

export default async function setup(): Promise<() => Promise<void>> {
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const env = { ...process.env, NODE_ENV: "production" };
  const build = (): Promise<unknown> =>
    promisify(execFile)("node", ["scripts/build.mjs", fileURLToPath(BUILT)], { cwd, env, timeout: 120_000 });
  const [, release] = await shared("library", build, async () => undefined);
  return release;
}
