/** A web server on the loopback for the browser tests: the built library, hand-made bundles, headers and faults on demand. */

import { readFileSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { BUILT } from "./build.js";
import { within } from "../../shell/testing/programs.js";
import type { FakeBundle } from "./fake-bundle.js";

export const CSP = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; style-src 'self'";

const TYPES: Record<string, string> = { html: "text/html", js: "text/javascript", css: "text/css", json: "application/json" };

export class Site {
  readonly bundles = new Map<string, FakeBundle>();
  readonly asked: { path: string; range: string | undefined }[] = [];
  /** Changes or replaces a file before it is sent. */
  fault: (path: string, bytes: Uint8Array) => Uint8Array | undefined = () => undefined;
  /** Keeps an answer back. */
  hold: (path: string) => Promise<unknown> | undefined = () => undefined;
  port = 0;
  private server: Server | undefined;

  async start(): Promise<void> {
    this.server = createServer((request, response) => void this.answer(request.url ?? "/", request.headers.range, response));
    await within(20_000, "the server to listen", new Promise<void>((resolve) => this.server?.listen(0, "127.0.0.1", resolve)));
    this.port = (this.server.address() as AddressInfo).port;
  }

  stop(): void {
    this.server?.close();
    this.server?.closeAllConnections();
  }

  weights(): number {
    return this.asked.filter(({ path }) => path.includes("/weights/")).length;
  }

  /** Paths below /isolated/ and /open/ differ only in the headers of cross-origin isolation, which the host's name chooses. */
  private async answer(url: string, range: string | undefined, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(url, "http://x");
    const host = response.req.headers.host ?? "";
    this.asked.push({ path: pathname, range });
    await this.hold(pathname);
    const found = this.find(pathname, searchParams);
    const bytes = found && (this.fault(pathname, found) ?? found);
    const isolated = host.startsWith("localhost");
    const headers: Record<string, string> = {
      "content-type": TYPES[pathname === "/" ? "html" : (pathname.split(".").at(-1) ?? "")] ?? "application/octet-stream",
      "content-security-policy": CSP,
      "cache-control": "no-store",
      ...(isolated ? { "cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp" } : {}),
    };
    if (!bytes) return void response.writeHead(404, headers).end();
    const start = range ? Number(/bytes=(\d+)-/.exec(range)?.[1]) : 0;
    if (range) headers["content-range"] = `bytes ${start}-${bytes.length - 1}/${bytes.length}`;
    response.writeHead(range ? 206 : 200, headers).end(bytes.slice(start));
  }

  private find(path: string, search: URLSearchParams): Uint8Array | undefined {
    const text = (content: string): Uint8Array => new TextEncoder().encode(content);
    if (path === "/") return text('<!doctype html><title>test</title><script type="module" src="/page.js"></script>');
    if (path === "/page.js") return new Uint8Array(readFileSync(new URL("page.js", import.meta.url)));
    if (path === "/favicon.ico") return new Uint8Array();
    if (path.startsWith("/assets/")) {
      const code = readFileSync(new URL(path.slice("/assets/".length), BUILT), "utf8");
      // A browser without some kind of storage, as far as the worker can see.
      const without = search.get("without") ?? "";
      const opfs = without.includes("opfs") ? "navigator.storage.getDirectory = undefined;" : "";
      const refuse = "() => Promise.reject(new DOMException('refused', 'SecurityError'))";
      const refused = without.includes("leave") ? `navigator.storage.getDirectory = ${refuse};` : "";
      return text(opfs + refused + code);
    }
    const [, name = "", ...rest] = path.split("/");
    return this.bundles.get(name)?.files.get(rest.join("/"));
  }
}
