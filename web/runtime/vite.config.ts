import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

// Two builds into one folder, because each file must be complete: the page's side and the worker.
const worker = process.env.TINYWEB_ENTRY === "worker";
const source = fileURLToPath(new URL(worker ? "src/worker.ts" : "src/index.ts", import.meta.url));
const file = worker ? "tinyweb-worker.js" : "tinyweb.js";

export default defineConfig({
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: !worker,
    modulePreload: false,
    reportCompressedSize: false,
    // Not Vite's library mode: it leaves the white space in.
    rolldownOptions: {
      input: source,
      preserveEntrySignatures: "strict",
      treeshake: { manualPureFunctions: ["Object.freeze"] }, // frozen tables that nobody reads are left out
      output: { format: "es", entryFileNames: file, codeSplitting: false },
    },
  },
  test: {
    include: ["test/**/*.test.ts"],
    environment: "node",
    globalSetup: "test/build.ts",
    testTimeout: 60_000, // a busy machine is not a failure
    expect: { poll: { timeout: 20_000 } },
  },
});
