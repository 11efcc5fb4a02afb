/** Draws the PNG icons beside each icons/TASK/icon.svg, with an installed Chromium. Run after changing an SVG. */

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const icons = fileURLToPath(new URL("../icons/", import.meta.url));
const browser = await chromium.launch({ executablePath: process.env["CHROME"] ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await browser.newPage();
for (const task of readdirSync(icons)) {
  const svg = readFileSync(`${icons}${task}/icon.svg`, "utf8");
  for (const size of [180, 192, 512]) {
    await page.setViewportSize({ width: size, height: size });
    // Systems cut their own corners, so the PNGs are square to the edge.
    await page.setContent(
      `<body style="margin:0">${svg.replace("<svg", `<svg width="${size}" height="${size}" style="display:block"`).replace(' rx="15"', "")}</body>`,
    );
    writeFileSync(`${icons}${task}/icon-${size}.png`, await page.screenshot());
  }
}
await browser.close();
