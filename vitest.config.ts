/** All tests of web/, in one run: `npm test`, or of a workspace `npm test -w tinyweb`. */

import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig, type TestProjectInlineConfiguration } from "vitest/config";

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/** Starts the tests' browser, which all files share. */
const BROWSER = at("web/shell/testing/browser.ts");

/** Tests of the workspace web/`folder`. @param globalSetup files, from that folder, that prepare what the tests need */
function tests(
  name: string,
  folder: string,
  include: string[],
  globalSetup: string[] = [],
  exclude: string[] = [],
): TestProjectInlineConfiguration {
  return { extends: true, test: { name, root: at(`web/${folder}`), include, exclude, globalSetup } };
}

/** Logic in Node: test/unit/*.test.ts. The built page, with a pretended model beside it, in a browser: test/browser/*.test.ts. */
function pageTests(folder: string): TestProjectInlineConfiguration[] {
  return [
    tests(`${folder} unit`, folder, ["test/unit/**/*.test.{ts,tsx}"]),
    tests(`${folder} browser`, folder, ["test/browser/**/*.test.ts"], [BROWSER, "test/browser/site.ts"]),
  ];
}

/** Those that use the library as it is built: in a browser, in Node, as a package. */
const BUILT = ["browser", "docs", "import", "node", "package"].map((name) => `test/${name}.test.ts`);

export default defineConfig({
  test: {
    environment: "node",
    pool: "threads",
    isolate: false, // what files of tests share is loaded once for a worker; what a test puts elsewhere is put back
    unstubGlobals: true,
    unstubEnvs: true,
    restoreMocks: true,
    allowOnly: false, // one left behind would hide the others
    maxWorkers: availableParallelism() + 1, // those that wait for a browser compute little
    // Limits that only what hangs exceeds: a busy machine is not a failure. Nothing is tried twice but the start of the browser.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 30_000,
    expect: { poll: { timeout: 20_000 } },
    projects: [
      tests("tinyweb unit", "runtime", ["test/**/*.test.ts"], ["test/build.ts"], BUILT),
      tests("tinyweb built", "runtime", BUILT, [BROWSER, "test/build.ts", "test/stage.ts"]),
      tests("shell", "shell", ["test/unit/**/*.test.{ts,tsx}"]),
      ...["tinychat", "yolo", "stable_diffusion", "search", "function"].flatMap(pageTests),
    ],
  },
});
