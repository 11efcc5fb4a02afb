/** The package as `npm pack` makes it: packed once for a run, unpacked into a folder of its own for tests that use it as others do. */

import { execFile, execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { inject } from "vitest";
import type { TestProject } from "vitest/node";
import { BUILT } from "./build.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PROGRAM_MS = 60_000;

interface Packed {
  archive: string;
  /** Paths inside the package. */
  files: string[];
  bytes: number;
}

declare module "vitest" {
  export interface ProvidedContext {
    packed: Packed;
  }
}

/** Vitest's global set-up, after that of build.ts. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = mkdtempSync(join(tmpdir(), "tinyweb-package-"));
  const made = join(folder, "made");
  mkdirSync(made);
  for (const name of ["package.json", "README.md", "LICENSE"]) cpSync(join(ROOT, name), join(made, name));
  cpSync(fileURLToPath(BUILT), join(made, "dist"), { recursive: true });
  const run = promisify(execFile);
  await run("npx", ["tsc", "-p", "tsconfig.build.json", "--outDir", join(made, "dist/types")], { cwd: ROOT, timeout: PROGRAM_MS });
  const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: made, timeout: PROGRAM_MS });
  const [{ filename, files, size }] = JSON.parse(stdout) as [{ filename: string; files: { path: string }[]; size: number }];
  project.provide("packed", { archive: join(folder, filename), files: files.map(({ path }) => path), bytes: size });
  return () => rm(folder, { recursive: true });
}

export interface Staged extends Packed {
  /** A project's folder: `node_modules/tinyweb` is the package. */
  project: string;
}

export function stage(): Staged {
  const packed = inject("packed");
  const project = join(mkdtempSync(join(tmpdir(), "tinyweb-project-")), "project");
  const target = join(project, "node_modules", "tinyweb");
  mkdirSync(target, { recursive: true });
  execFileSync("tar", ["-xzf", packed.archive, "--strip-components", "1", "-C", target], { timeout: PROGRAM_MS });
  return { ...packed, project };
}
