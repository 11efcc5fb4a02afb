// @ts-check
/**
 * Notices of what a build contains: whose code the modules in its output are, as the bundler knows it, with the texts that come
 * with these packages. For Rolldown and Vite.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** @typedef {{ name: string, version: string, license: string, text: string }} Notice */
/** @typedef {Record<string, { type: string, modules?: Record<string, { renderedLength: number }> }>} Output what `generateBundle` is given */

/** Stands between notices; `tinyweb/export/site.py` parts them there. */
const RULE = "=".repeat(80);
const OWN = fileURLToPath(new URL("../runtime", import.meta.url));

/** @param {string} folder @returns {Notice} */
function noticeOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const files = readdirSync(folder)
    .filter((file) => /^(licen[cs]e|copying|notice)/iu.test(file))
    .sort();
  if (files.length === 0) throw new Error(`${name} is part of the build, but ${folder} has no file with its licence.`);
  const text = files.map((file) => readFileSync(join(folder, file), "utf8").trim()).join(`\n\n${"-".repeat(80)}\n\n`);
  return { name, version, license, text: text.replaceAll("\r\n", "\n") };
}

/** The folder of the package that a module belongs to. @param {string} id */
export function packageOf(id) {
  const path = id.replace(/[?#][^\\/]*$/u, ""); // a folder's name may have these too
  if (!/[\\/]node_modules[\\/]/u.test(path)) {
    // Bundlers have modules without a file, for what the output needs to run.
    if (!existsSync(path)) throw new Error(`${JSON.stringify(id)} is part of the build, and it is not known whose it is.`);
    return OWN;
  }
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    const about = join(folder, "package.json");
    // Packages have more of these files inside, without a name.
    if (existsSync(about) && JSON.parse(readFileSync(about, "utf8")).version !== undefined) return folder;
    if (folder === dirname(folder)) throw new Error(`${path} belongs to no package.`);
  }
}

/** Notes the packages of a build's output. */
export class Notices {
  /** @type {Map<string, Notice>} */
  #notices = new Map();

  /** @param {Output} output */
  add(output) {
    for (const { modules = {} } of Object.values(output)) {
      for (const [id, { renderedLength }] of Object.entries(modules)) {
        // Of styles the bundler does not say how much is left.
        if (renderedLength === 0 && !/\.css($|\?)/u.test(id)) continue;
        const folder = packageOf(id);
        if (!this.#notices.has(folder)) this.#notices.set(folder, noticeOf(folder));
      }
    }
  }

  /** licenses.txt: tinyweb's own licence, then the others by name. */
  text() {
    const others = [...this.#notices].filter(([folder]) => folder !== OWN).map(([, notice]) => notice);
    return [noticeOf(OWN), ...others.sort((a, b) => (a.name < b.name ? -1 : 1))]
      .map(({ name, version, license, text }) => `${name} ${version}, ${license}\n\n${text}\n`)
      .join(`\n${RULE}\n\n`);
  }
}
