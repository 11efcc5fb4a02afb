/** Fetching with patience: progress per chunk, retries with backoff, resuming by Range, no endless waits. */

import { aborted, describe, isAbort, linkedAbort, throwIfAborted, TinywebError } from "./errors.js";

export type Fetch = (url: string, init?: RequestInit) => Promise<Response>;

export interface DownloadSettings {
  fetch: Fetch;
  signal?: AbortSignal | undefined;
  /** Attempts in a row that bring nothing before giving up. */
  attempts?: number;
  /** Wait before the second attempt in milliseconds; doubles with each further one. */
  backoffMs?: number;
  /** An attempt that brings no byte for this long is given up. */
  stallMs?: number;
}

const ATTEMPTS = 4;
const BACKOFF_MS = 500;
const STALL_MS = 30_000;

/** The server's answer makes another attempt pointless. */
class Refused extends TinywebError {}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(aborted());
    const timer = setTimeout(done, ms);
    function done(): void {
      signal?.removeEventListener("abort", stop);
      resolve();
    }
    function stop(): void {
      clearTimeout(timer);
      reject(aborted());
    }
    signal?.addEventListener("abort", stop);
  });
}

/**
 * Repeats `attempt` until it succeeds. An attempt that reports progress starts the count anew.
 * @param attempt gets a signal that fires on the caller's abort or on a stall; calls `alive` with all bytes that come, and says
 *   whether they are new: a server that sends the same again and again must not be asked for ever
 * @throws TinywebError "download-failed" | "aborted"
 */
async function persist<T>(
  url: string,
  settings: DownloadSettings,
  attempt: (signal: AbortSignal, alive: (fresh: boolean) => void) => Promise<T>,
): Promise<T> {
  const { signal, attempts = ATTEMPTS, backoffMs = BACKOFF_MS, stallMs = STALL_MS } = settings;
  for (let failures = 0; ; ) {
    throwIfAborted(signal);
    const { controller, unlink } = linkedAbort(signal);
    const stalled = (): void => controller.abort();
    let timer = setTimeout(stalled, stallMs);
    const alive = (fresh: boolean): void => {
      if (fresh) failures = 0;
      clearTimeout(timer);
      timer = setTimeout(stalled, stallMs);
    };
    try {
      return await attempt(controller.signal, alive);
    } catch (error) {
      if (signal?.aborted) throw aborted();
      if (error instanceof TinywebError && error.code !== "download-failed" && !isAbort(error)) throw error;
      const reason = isAbort(error) ? `no data for ${stallMs / 1000} s` : describe(error);
      failures += 1;
      const refused = error instanceof Refused;
      if (refused || failures >= attempts) {
        const advice = refused ? "Is the address right?" : "Check the connection and try again.";
        throw new TinywebError("download-failed", `Could not download ${url}: ${reason}. ${advice}`, error);
      }
    } finally {
      clearTimeout(timer);
      unlink();
    }
    await sleep(backoffMs * 2 ** (failures - 1), signal);
  }
}

/** No file of a bundle is HTML, but many hosts send a page where they have no file, and call that a success. */
function checkAnswer(response: Response, url: string): void {
  const { status } = response;
  if (response.ok) {
    const type = response.headers.get("content-type") ?? "";
    if (!type.startsWith("text/html")) return;
    const length = response.headers.get("content-length");
    throw new TinywebError(
      "hash-mismatch",
      `${url}: text/html came${length ? `, ${length} bytes` : ""}, most likely the host's page for missing files. Was all of the site uploaded?`,
    );
  }
  const said = `the server answered ${status}${response.statusText ? ` ${response.statusText}` : ""}`;
  const passing = status >= 500 || status === 408 || status === 425 || status === 429;
  throw passing ? new TinywebError("download-failed", said) : new Refused("download-failed", said);
}

/**
 * A whole small file. Revalidated with the server, so that files of two exports never mix; offline, what is cached serves.
 * @param expected how many bytes it most likely has: it comes into memory of that size, without a copy
 */
export async function fetchSmall(
  url: string,
  maxBytes: number,
  settings: DownloadSettings,
  mode: RequestCache = "no-cache",
  expected = 1 << 16,
): Promise<Uint8Array<ArrayBuffer>> {
  let cache = mode;
  let most = 0;
  return persist(url, settings, async (signal, alive) => {
    let response: Response;
    try {
      response = await settings.fetch(url, { signal, cache });
    } catch (error) {
      if (mode === "no-cache") cache = cache === mode ? "force-cache" : mode;
      throw error;
    }
    checkAnswer(response, url);
    let content = new Uint8Array(expected);
    let size = 0;
    await readChunks(response, signal, (chunk) => {
      size += chunk.length;
      alive(size > most);
      most = Math.max(most, size);
      if (size > maxBytes) throw new Refused("download-failed", `the file is larger than ${maxBytes} bytes`);
      if (size > content.length) {
        const longer = new Uint8Array(2 * size);
        longer.set(content);
        content = longer;
      }
      content.set(chunk, size - chunk.length);
    });
    return size === content.length ? content : content.slice(0, size);
  });
}

/** Where a download's bytes go. `received` counts from the start of the file. */
export interface Sink {
  /** Bytes that are there already; the download goes on behind them. */
  start: number;
  /** @param at offset of the chunk in the file */
  chunk(bytes: Uint8Array, at: number): void;
}

/**
 * A file of known size, chunk by chunk. A broken transfer goes on where it stopped if the server knows ranges.
 * @throws TinywebError "download-failed" | "hash-mismatch" (the server sends more bytes than `size`) | "aborted"
 */
export async function fetchSized(
  url: string,
  size: number,
  sink: Sink,
  settings: DownloadSettings,
  cache: RequestCache = "default",
): Promise<void> {
  let received = sink.start;
  let most = received;
  await persist(url, settings, async (signal, alive) => {
    if (received >= size) return;
    const headers: Record<string, string> = received > 0 ? { Range: `bytes=${received}-` } : {};
    // A cached whole answer must not stand in for the rest that is asked for.
    const response = await settings.fetch(url, { signal, headers, cache: received > 0 && cache === "default" ? "no-store" : cache });
    if (response.status === 416) {
      received = 0;
      throw new TinywebError("download-failed", "the server refused to resume");
    }
    checkAnswer(response, url);
    if (!resumesAt(response, received)) received = 0;
    if (received === 0 && response.status === 206 && !resumesAt(response, 0)) {
      throw new TinywebError("download-failed", "the server sent another part than asked for");
    }
    await readChunks(response, signal, (chunk) => {
      if (received + chunk.length > size)
        throw new TinywebError("hash-mismatch", `${url} is longer than the ${size} bytes the manifest names.`);
      sink.chunk(chunk, received);
      received += chunk.length;
      alive(received > most);
      most = Math.max(most, received);
    });
    if (received >= size) return;
    if (cache === "default") cache = "reload"; // the browser's cache may hold a file that was cut
    throw new TinywebError("download-failed", `the transfer ended after ${received} of ${size} bytes`);
  });
}

function resumesAt(response: Response, offset: number): boolean {
  return response.status === 206 && (response.headers.get("content-range") ?? "").startsWith(`bytes ${offset}-`);
}

/** Bytes that are read at a time. */
const CHUNK = 1 << 18;

interface ChunkReader {
  /** A chunk is what it is until the next is read. */
  read(): Promise<{ done: boolean; value?: Uint8Array<ArrayBuffer> | undefined }>;
  cancel(): Promise<void>;
}

/** Reads into the same memory again and again, where the body can: chunks that are only let go are collected too late. */
function chunkReader(body: ReadableStream<Uint8Array<ArrayBuffer>>): ChunkReader {
  let reader: ReadableStreamBYOBReader;
  try {
    reader = body.getReader({ mode: "byob" });
  } catch {
    return body.getReader();
  }
  let memory = new ArrayBuffer(CHUNK);
  return {
    async read() {
      const { done, value } = await reader.read(new Uint8Array(memory));
      if (value) memory = value.buffer; // the one that was handed in is gone
      return { done, value };
    },
    cancel: () => reader.cancel(),
  };
}

/** What is read of a response, or of a stored file (`new Response(file)`), a chunk at a time. */
export async function readChunks(response: Response, signal: AbortSignal, take: (chunk: Uint8Array<ArrayBuffer>) => void): Promise<void> {
  if (!response.body) return take(new Uint8Array(await response.arrayBuffer()));
  const reader = chunkReader(response.body);
  const cancel = (): void => void reader.cancel().catch(() => undefined);
  signal.addEventListener("abort", cancel); // the attempt's own: it goes with it
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (signal.aborted) throw aborted();
      if (done || !value) return;
      take(value);
    }
  } finally {
    cancel();
  }
}
