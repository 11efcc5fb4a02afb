/** How the workspaces are tested: projects of the one run that vitest.config.ts describes. */

import { fileURLToPath } from "node:url";
import type { TestProjectInlineConfiguration } from "vitest/config";

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const BROWSER = at("testing/browser.ts");

/** Tests of a workspace, web/`folder`. @param needs set-up files, from that folder; `"browser"` is the tests' browser */
export function tests(name: string, folder: string, include: string[], needs: string[] = [], exclude: string[] = []): TestProjectInlineConfiguration {
  const globalSetup = needs.map((file) => (file === "browser" ? BROWSER : file));
  return { extends: true, test: { name, root: at(`../${folder}`), include, exclude, globalSetup } };
}

/** Logic in Node: test/unit/*.test.ts. The built page, with a pretended model beside it, in a browser: test/browser/*.test.ts. */
export function pageTests(folder: string): TestProjectInlineConfiguration[] {
  return [
    tests(`${folder} unit`, folder, ["test/unit/**/*.test.{ts,tsx}"]),
    tests(`${folder} browser`, folder, ["test/browser/**/*.test.ts"], ["browser", "test/browser/site.ts"]),
  ];
}
