// Prints the sizes of the library's files, and fails when what every page loads of it is more than promised.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { FILES } from "./files.mjs";

const LIMIT = 47_000; // "47 KB", a KB being 1000 bytes
const EVERY_PAGE = ["tinyweb.js", "tinyweb-worker.js"];
let total = 0;
for (const file of Object.keys(FILES)) {
  const bytes = readFileSync(new URL(`../dist/${file}`, import.meta.url));
  const zipped = gzipSync(bytes, { level: 9 }).length;
  if (EVERY_PAGE.includes(file)) total += zipped;
  console.log(`${file.padEnd(18)} ${(bytes.length / 1000).toFixed(1).padStart(6)} KB ${(zipped / 1000).toFixed(1).padStart(6)} KB gzipped`);
}
console.log(`web/runtime: ${EVERY_PAGE.join(" and ")} are ${(total / 1000).toFixed(1)} KB gzipped of ${LIMIT / 1000} KB`);
if (total > LIMIT) {
  console.error("web/runtime is larger than it may be.");
  process.exit(1);
}
