import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** Of test/, such as "store hash": all by default. */
const chosen = process.env["TINYWEB_TESTS"]?.split(" ") ?? ["**/*"];

/** What a mutant can be found by: the tests that run web/runtime/src in their own process. The built library is not mutated. */
export default defineConfig({
  root: fileURLToPath(new URL("..", import.meta.url)),
  test: {
    include: chosen.map((name) => `test/${name}.test.ts`),
    exclude: ["browser", "docs", "import", "node", "package", "shrink"].map((name) => `test/${name}.test.ts`),
    environment: "node",
    testTimeout: 20_000,
  },
});
