/** Prints what the page built in the current folder weighs and fails when it grows over its budget. */

import { readdirSync, readFileSync, statSync } from "node:fs";
import { extname, join, relative } from "node:path";
import { gzipSync } from "node:zlib";

/** Gzipped bytes of HTML, CSS and JavaScript together. */
const BUDGET = 66 * 1024;
const dist = join(process.cwd(), "dist");

/** @param {string} folder @returns {string[]} */
function filesIn(folder) {
  return readdirSync(folder)
    .sort()
    .flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? filesIn(path) : [path];
    });
}

let total = 0;
for (const path of filesIn(dist)) {
  const content = readFileSync(path);
  const zipped = gzipSync(content, { level: 9 }).length;
  const counts = [".html", ".js", ".css"].includes(extname(path));
  if (counts) total += zipped;
  const note = counts ? "" : "  (not counted: fetched for icons and installing only)";
  console.log(
    `${relative(dist, path).padEnd(28)} ${content.length.toString().padStart(7)} B  gzip ${zipped.toString().padStart(6)} B${note}`,
  );
}
console.log(`page without runtime and model: ${(total / 1024).toFixed(1)} KiB gzipped, budget ${BUDGET / 1024} KiB`);
if (total > BUDGET) {
  console.error("The page is over its budget.");
  process.exit(1);
}
