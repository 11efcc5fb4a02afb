/** Draws the PNG icons in public/ from icon.svg, with an installed Chromium. Run after changing the SVG. */

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const folder = fileURLToPath(new URL("../public/", import.meta.url));
const svg = readFileSync(`${folder}icon.svg`, "utf8");
const browser = await chromium.launch({ executablePath: process.env["CHROME"] ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await browser.newPage();
for (const size of [180, 512]) {
  await page.setViewportSize({ width: size, height: size });
  // Systems cut their own corners, so the PNGs are square to the edge.
  await page.setContent(
    `<body style="margin:0">${svg.replace("<svg", `<svg width="${size}" height="${size}" style="display:block"`).replace(' rx="15"', "")}</body>`,
  );
  writeFileSync(`${folder}icon-${size}.png`, await page.screenshot());
}
await browser.close();
