import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    projects: [
      { test: { name: "unit", include: ["test/unit/**/*.test.ts"], environment: "node" } },
      {
        test: {
          name: "browser",
          include: ["test/browser/**/*.test.ts"],
          globalSetup: ["test/browser/site.ts"],
          testTimeout: 30_000,
          hookTimeout: 60_000,
          // One browser at a time: timing matters to some checks, and machines are small.
          fileParallelism: false,
        },
      },
    ],
  },
});
