/**
 * Everything that can go wrong, as one error class with a machine-readable `code` and a sentence for people.
 * Errors cross the worker boundary as plain records (`toWire`, `fromWire`).
 */

export type ErrorCode =
  | "bad-argument" // the caller passed something this library cannot use
  | "bad-manifest" // manifest.json, or a file that it names, is not what it must be
  | "download-failed" // a file could not be fetched, also after retries
  | "hash-mismatch" // a file's content is not what the manifest promises, also after fetching it anew
  | "storage" // browser storage failed in a way that could not be worked around
  | "out-of-memory" // the device or the browser has not enough memory for this model
  | "no-backend" // neither WebGPU nor WASM can run this model here
  | "compile-failed" // a kernel or a WASM module was refused by the browser
  | "gpu-error" // the GPU reported an error while running
  | "device-lost" // the GPU device went away and could not be brought back
  | "wasm-trap" // the WASM module stopped, and an engine made anew could not go on
  | "context-full" // the prompt is longer than the model's context
  | "aborted" // stopped by an AbortSignal
  | "disposed" // used after dispose()
  | "worker-failed" // the worker script could not start or crashed
  | "internal"; // a defect of this library

/** What must be shorter so that a conversation fits the context, and by how many tokens (about). */
export interface Excess {
  of: "system" | "message" | "both";
  tokens: number;
}

export class TinywebError extends Error {
  /** "AbortError" where a signal stopped the call, as everywhere in the platform. */
  override readonly name: "TinywebError" | "AbortError";
  readonly code: ErrorCode;
  /** Of "context-full", where it is not the whole conversation that counts. */
  readonly excess?: Excess;

  constructor(code: ErrorCode, message: string, cause?: unknown, excess?: Excess) {
    super(message, cause === undefined ? undefined : { cause });
    if (excess) this.excess = excess;
    this.code = code;
    this.name = code === "aborted" ? "AbortError" : "TinywebError";
  }
}

/** Whether an engine made anew may do what failed; anything else is the caller's to know. */
export function brokeEngine(error: unknown): boolean {
  return ["device-lost", "gpu-error", "wasm-trap"].includes((Object(error) as Partial<TinywebError>).code ?? "");
}

/** A structured-clonable picture of an error. */
export interface WireError {
  code: ErrorCode;
  message: string;
  stack: string | undefined;
  excess?: Excess;
}

/** The browser's own words for any thrown value. */
export function describe(error: unknown): string {
  const { message, name } = Object(error) as Partial<Error>; // GPUError has a message and is no Error
  return String(message || name || error);
}

/** Any thrown value as a TinywebError; what nobody foresaw becomes "internal". */
export function asTinywebError(error: unknown): TinywebError {
  if (error instanceof TinywebError) return error;
  return isAbort(error) ? aborted() : new TinywebError("internal", describe(error), error);
}

export function toWire(error: unknown): WireError {
  const { code, message, stack, excess } = asTinywebError(error);
  return { code, message, stack, ...(excess && { excess }) };
}

export function fromWire(wire: WireError): TinywebError {
  return Object.assign(new TinywebError(wire.code, wire.message, undefined, wire.excess), { stack: wire.stack });
}

export function aborted(): TinywebError {
  return new TinywebError("aborted", "Stopped.");
}

export function isAbort(error: unknown): boolean {
  const { code, name } = Object(error) as Partial<TinywebError>;
  return code === "aborted" || (name as string) === "AbortError";
}

export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw aborted();
}

/** A controller that also fires when `signal` does; call `unlink` when done with it. */
export function linkedAbort(signal: AbortSignal | undefined): { controller: AbortController; unlink: () => void } {
  const controller = new AbortController();
  const forward = (): void => controller.abort();
  if (signal?.aborted) forward();
  signal?.addEventListener("abort", forward);
  return { controller, unlink: () => signal?.removeEventListener("abort", forward) };
}

/**
 * Begins parts that run side by side and waits for all of them. The first failure stops the others, through the signal
 * that `begin` gets, and is the one that is thrown.
 */
export async function together(
  signal: AbortSignal | undefined,
  begin: (stop: AbortSignal) => Promise<void>[] | Promise<Promise<void>[]>,
): Promise<void> {
  const { controller, unlink } = linkedAbort(signal);
  let failure: { error: unknown } | undefined;
  try {
    const parts = await begin(controller.signal);
    await Promise.all(
      parts.map((part) =>
        part.catch((error: unknown) => {
          failure ??= { error };
          controller.abort();
        }),
      ),
    );
  } finally {
    unlink();
  }
  throwIfAborted(signal);
  if (failure) throw failure.error;
}
