/** A fetch over a bundle in memory, with faults on demand and a record of what was asked for. */

import type { Fetch } from "../src/download.js";

export interface Asked {
  path: string;
  range: string | null;
  cache: string | undefined;
}

/** What to answer instead of the file; undefined for the file itself. */
export type Fault = (asked: Asked, count: number, bytes: Uint8Array) => Response | Promise<Response> | undefined;

export const BASE = new URL("http://bundle.test/model/");

export class FakeServer {
  readonly asked: Asked[] = [];
  fault: Fault = () => undefined;
  ranges = true;
  /** Requests being answered at this moment, and the most there ever were. */
  open = 0;
  mostOpen = 0;

  constructor(private readonly files: Map<string, Uint8Array>) {}

  count(path: string): number {
    return this.asked.filter((asked) => asked.path === path).length;
  }

  readonly fetch: Fetch = async (url, init = {}) => {
    init.signal?.throwIfAborted();
    const path = url.slice(BASE.href.length);
    const range = new Headers(init.headers).get("range");
    const asked = { path, range, cache: init.cache };
    this.asked.push(asked);
    const bytes = this.files.get(path);
    if (!bytes) return new Response("", { status: 404, statusText: "Not Found" });
    const special = await this.fault(asked, this.count(path), bytes);
    if (special) return special;
    const start = range && this.ranges ? Number(/bytes=(\d+)-/.exec(range)?.[1]) : 0;
    const headers: HeadersInit = range && this.ranges ? { "content-range": `bytes ${start}-${bytes.length - 1}/${bytes.length}` } : {};
    return new Response(this.body(bytes.slice(start)), { status: range && this.ranges ? 206 : 200, headers });
  };

  /** In two chunks, with a pause, so that transfers overlap. */
  private body(bytes: Uint8Array): ReadableStream<Uint8Array> {
    this.open += 1;
    this.mostOpen = Math.max(this.mostOpen, this.open);
    const half = bytes.length >> 1;
    const parts = [bytes.slice(0, half), bytes.slice(half)];
    return new ReadableStream({
      pull: async (controller) => {
        await new Promise((resolve) => setTimeout(resolve, 1));
        const part = parts.shift();
        if (part) return controller.enqueue(part);
        this.open -= 1;
        controller.close();
      },
    });
  }
}

/** The first `bytes`, then a broken connection. */
export function broken(bytes: Uint8Array): Response {
  let sent = false;
  return new Response(
    new ReadableStream({
      pull(controller) {
        if (sent) return controller.error(new TypeError("connection reset"));
        sent = true;
        controller.enqueue(bytes);
      },
    }),
  );
}
