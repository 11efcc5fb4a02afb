// Prints the sizes of the library's files; tools/page_size.py has the budgets.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { FILES } from "./files.mjs";

for (const file of Object.keys(FILES)) {
  const bytes = readFileSync(new URL(`../dist/${file}`, import.meta.url));
  const zipped = gzipSync(bytes, { level: 9 }).length;
  console.log(`${file.padEnd(22)} ${(bytes.length / 1000).toFixed(1).padStart(6)} KB ${(zipped / 1000).toFixed(1).padStart(6)} KB gzipped`);
}
