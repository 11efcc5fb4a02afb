/** Vitest's global set-up: builds the library as it is shipped, for the tests that start workers and browsers. */

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

export const BUILT = new URL("../test-results/assets/", import.meta.url);

export function setup(): void {
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  execFileSync("node", ["scripts/build.mjs", fileURLToPath(BUILT)], { cwd, env: { ...process.env, NODE_ENV: "production" }, stdio: ["ignore", "ignore", "inherit"] });
}
