/** How every page is tested: logic in Node, and the built page in a browser with a pretended model beside it. */

import type { ViteUserConfig } from "vitest/config";

/** The Vitest configuration of a page: test/unit/*.test.ts, and test/browser/*.test.ts on the site that test/browser/site.ts serves. */
export function pageTests(): ViteUserConfig {
  return {
    test: {
      projects: [
        { test: { name: "unit", include: ["test/unit/**/*.test.{ts,tsx}"], environment: "node" } },
        {
          test: {
            name: "browser",
            include: ["test/browser/**/*.test.ts"],
            globalSetup: ["test/browser/site.ts"],
            testTimeout: 60_000, // a busy machine is not a failure
            retry: 1, // nor is one that stands still for seconds; the report says "retry x1"
            expect: { poll: { timeout: 20_000 } },
            hookTimeout: 60_000,
            // One browser at a time: timing matters to some checks, and machines are small.
            fileParallelism: false,
          },
        },
      ],
    },
  };
}
