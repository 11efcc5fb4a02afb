import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    environment: "node",
    globalSetup: "test/build.ts",
    testTimeout: 60_000, // a busy machine is not a failure
    retry: 1, // nor is one that stands still for seconds; the report says "retry x1"
    expect: { poll: { timeout: 20_000 } },
  },
});
