/** Vitest's global set-up: builds the library as it is shipped, for the tests that start workers and browsers. */

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

export const BUILT = new URL("../test-results/assets/", import.meta.url);

export function setup(): void {
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  for (const entry of ["page", "worker"]) {
    execFileSync("npx", ["vite", "build", "--logLevel", "error", "--outDir", fileURLToPath(BUILT)], {
      cwd, env: { ...process.env, TINYWEB_ENTRY: entry, NODE_ENV: "production" }, stdio: ["ignore", "ignore", "pipe"],
    });
  }
}
