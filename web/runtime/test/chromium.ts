/** The browser of the tests. */

import { existsSync, realpathSync } from "node:fs";
import { chromium } from "playwright-core";

export function findBrowser(): string {
  const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].map((name) => `/usr/bin/${name}`);
  const places = [process.env.CHROME ?? "", ...names, chromium.executablePath()];
  const found = places.find((place) => place !== "" && existsSync(place));
  if (!found) throw new Error("No Chromium was found: set CHROME to its path.");
  return realpathSync(found);
}

export const FLAGS = [
  "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-quic", "--no-first-run",
  "--host-resolver-rules=MAP phone.test 127.0.0.1",
];
