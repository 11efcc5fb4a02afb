/** Builds the page and serves it with the pretended model beside it, for all tests in this folder. */

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  export interface ProvidedContext {
    siteUrl: string;
  }
}

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
};

function serve(folder: string, model: string): Server {
  return createServer((request, response) => {
    const path = normalize(new URL(request.url ?? "/", "http://localhost").pathname);
    const file = path === "/model/model.js" ? model : join(folder, path === "/" ? "index.html" : path);
    readFile(file).then(
      (content) => {
        response.writeHead(200, {
          "Content-Type": TYPES[extname(file)] ?? "application/octet-stream",
          "Cache-Control": "no-store",
          "Cross-Origin-Opener-Policy": "same-origin",
          "Cross-Origin-Embedder-Policy": "require-corp",
        });
        response.end(content);
      },
      () => response.writeHead(404).end("not found"),
    );
  });
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  const folder = await mkdtemp(join(tmpdir(), "tinychat-"));
  await build({ root, logLevel: "error", build: { outDir: folder, emptyOutDir: true } });
  const server = serve(folder, join(root, "test/mock/model.js"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  project.provide("siteUrl", `http://localhost:${(server.address() as AddressInfo).port}/`);
  return async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await rm(folder, { recursive: true, force: true });
  };
}
