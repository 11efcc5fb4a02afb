/** The package as `npm pack` makes it, unpacked into a folder of its own, for tests that use it as others do. */

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { BUILT } from "./build.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

export interface Staged {
  /** A project's folder: `node_modules/tinyweb` is the package. */
  project: string;
  /** Paths inside the package. */
  files: string[];
  bytes: number;
}

export function stage(): Staged {
  const folder = mkdtempSync(join(tmpdir(), "tinyweb-package-"));
  const made = join(folder, "made");
  mkdirSync(made);
  for (const name of ["package.json", "README.md", "LICENSE"]) cpSync(join(ROOT, name), join(made, name));
  cpSync(fileURLToPath(BUILT), join(made, "dist"), { recursive: true });
  execFileSync("npx", ["tsc", "-p", "tsconfig.build.json", "--outDir", join(made, "dist")], { cwd: ROOT, stdio: ["ignore", "ignore", "pipe"] });
  const packed = execFileSync("npm", ["pack", "--json", "--pack-destination", folder], { cwd: made, stdio: ["ignore", "pipe", "ignore"] });
  const [{ filename, files, size }] = JSON.parse(packed.toString()) as [{ filename: string; files: { path: string }[]; size: number }];
  const project = join(folder, "project");
  const target = join(project, "node_modules", "tinyweb");
  mkdirSync(target, { recursive: true });
  execFileSync("tar", ["-xzf", join(folder, filename), "--strip-components", "1", "-C", target]);
  return { project, files: files.map(({ path }) => path), bytes: size };
}
