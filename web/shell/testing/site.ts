/** Builds a page and serves it with its pretended model beside it, for the tests in its test/browser/. */

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import type { TestProject } from "vitest/node";
import { within } from "./programs";

declare module "vitest" {
  export interface ProvidedContext {
    siteUrl: string;
  }
}

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
};

const BUILD_MS = 120_000;
const START_MS = 20_000;

const PRETEND = fileURLToPath(new URL("./pretend.js", import.meta.url));

const HEADERS = {
  "Cache-Control": "no-store",
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

function serve(folder: string, models: string): Server {
  const find = (path: string): string => {
    if (path === "/model/pretend.js") return PRETEND;
    if (path.startsWith("/model/")) return join(models, path.slice("/model/".length));
    return join(folder, path === "/" ? "index.html" : path);
  };
  return createServer((request, response) => {
    if (request.url === "/blank")
      return void response
        .writeHead(200, { ...HEADERS, "Content-Type": "text/html" })
        .end("<!doctype html><title>blank</title><link rel=icon href='data:,'>");
    const file = find(normalize(new URL(request.url ?? "/", "http://localhost").pathname));
    readFile(file).then(
      (content) => {
        response.writeHead(200, {
          "Content-Type": TYPES[extname(file)] ?? "application/octet-stream",
          ...HEADERS,
        });
        response.end(content);
      },
      () => response.writeHead(404).end("not found"),
    );
  });
}

/**
 * Vitest's global set-up of a page: `export default pageSite(new URL("../..", import.meta.url))` in test/browser/site.ts.
 * @param page the page's folder; what lies in its test/mock/ is served as model/
 */
export function pageSite(page: URL): (project: TestProject) => Promise<() => Promise<void>> {
  return async (project) => {
    const root = fileURLToPath(page);
    const folder = await mkdtemp(join(tmpdir(), "tinyweb-page-"));
    await within(
      BUILD_MS,
      `the build of ${root}`,
      build({ root, configFile: join(root, "vite.config.ts"), logLevel: "error", build: { outDir: folder, emptyOutDir: true } }),
    );
    const server = serve(folder, join(root, "test/mock"));
    await within(START_MS, `the server of ${root}`, new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)));
    project.provide("siteUrl", `http://localhost:${(server.address() as AddressInfo).port}/`);
    return async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(folder, { recursive: true, force: true });
    };
  };
}
