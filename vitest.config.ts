/** All tests of web/, in one run: `npm test`, or of a workspace `npm test -w tinyweb`. */

import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { pageTests, tests } from "./web/shell/vitest";

/** Those that use the library as it is built: in a browser, in Node, as a package. */
const BUILT = ["browser", "docs", "import", "node", "package"].map((name) => `test/${name}.test.ts`);

export default defineConfig({
  test: {
    environment: "node",
    pool: "threads",
    maxWorkers: availableParallelism() + 1, // those that wait for a browser compute little
    // Limits that only what hangs exceeds: a busy machine is not a failure. Nothing is tried twice but the start of the browser.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 30_000,
    expect: { poll: { timeout: 20_000 } },
    projects: [
      tests("tinyweb unit", "runtime", ["test/**/*.test.ts"], ["test/build.ts"], BUILT),
      tests("tinyweb built", "runtime", BUILT, ["browser", "test/build.ts", "test/stage.ts"]),
      tests("shell", "shell", ["test/unit/**/*.test.{ts,tsx}"]),
      ...["tinychat", "yolo", "stable_diffusion", "search"].flatMap(pageTests),
    ],
  },
});
