/** What a model's worker is to the page. */

import { badArgument, checkFunction, checkNumbers, checkOneOf, optionsOf, unlike, type Range } from "./arguments.js";
import type { BackendOptions } from "./backend.js";
import { aborted, describe, fromWire, throwIfAborted, TinywebError } from "./errors.js";
import type { HostEvents, Progress } from "./host.js";
import type { Inputs, Places, TypedArray } from "./function.js";
import { memoryBudget } from "./device.js";
import { LoadMarker, type InterruptedLoad, type SmallerSetting } from "./marker.js";
import { Watch } from "./life.js";
import type { Call, Reply, Request } from "./protocol.js";

export interface LoadOptions extends BackendOptions {
  onProgress?: (progress: Progress) => void;
  signal?: AbortSignal | undefined;
  /** Where tinyweb-worker.js lies, a chat's tinyweb-chat-worker.js; by default beside this file. Must be of the page's own origin. */
  workerUrl?: string | URL;
  /**
   * Called before anything is downloaded if the page was ended while it loaded this model the last time (on phones: too little memory).
   * May ask the reader; what it returns goes before these options, such as `previous.recommended`. What it throws ends the load.
   */
  onInterrupted?: (previous: InterruptedLoad) => SmallerSetting | undefined | void | Promise<SmallerSetting | undefined | void>;
}

const BACKENDS = ["auto", "webgpu", "wasm", "wasm-single"] satisfies BackendOptions["backend"][];

const NUMBERS = { threads: [1, Infinity, true], context: [16, Infinity, true], memoryBudgetBytes: [1] } satisfies {
  [name in keyof LoadOptions]: Range;
};

const LOAD_OPTIONS = [
  ...Object.keys(NUMBERS),
  "backend",
  "allowSoftwareGpu",
  "functions",
  "onProgress",
  "onInterrupted",
  "signal",
  "workerUrl",
  "manifestSha256",
] satisfies string[];

/**
 * Checked before anything is fetched. @param more names of options that this call has beside those of all loaders
 * @throws TinywebError "bad-argument"
 */
export function loadOptions<Options extends LoadOptions>(
  given: Options | null | undefined,
  call: string,
  more: readonly string[] = [],
): Options {
  const options = optionsOf(given, call, [...LOAD_OPTIONS, ...more]);
  const { backend = "auto", functions = [] } = options;
  checkOneOf("backend", backend, BACKENDS);
  checkNumbers(options, NUMBERS as Record<keyof typeof NUMBERS, Range>);
  if (!Array.isArray(functions)) throw unlike("functions", "a list of names", functions);
  return options;
}

/** The part of a Worker that is needed here. */
export interface WorkerLike {
  postMessage(message: unknown, transfer?: Transferable[]): void;
  terminate(): void;
  onmessage: ((event: { data: Reply }) => void) | null;
  onerror: ((event: { message?: string }) => void) | null;
}

interface End {
  value?: unknown;
  error: TinywebError | undefined;
}

/** Takes a part of a call's answer, or its end. */
type Pending = (part: unknown, end?: End) => void;

const DISPOSE_MS = 1000;
/** How long a worker may take to say that it is there; its script may come over a slow line. */
const START_MS = 60_000;
/** How long a worker may take to stop by itself; one that computes does not listen, and the caller goes on. */
const STOP_MS = 100;

/** Who wants to hear of a model's events. */
export class Listeners {
  private readonly lists: { [Name in keyof HostEvents]: Set<(data: HostEvents[Name]) => void> } = {
    "device-lost": new Set(),
    "backend-changed": new Set(),
  };

  /** @returns the function that removes the listener @throws TinywebError "bad-argument" */
  add<Name extends keyof HostEvents>(name: Name, listener: (data: HostEvents[Name]) => void): () => void {
    checkOneOf("An event", name, Object.keys(this.lists));
    checkFunction("A listener", listener);
    const list = this.lists[name].add(listener);
    return () => list.delete(listener);
  }

  tell<Name extends keyof HostEvents>(name: Name, data: HostEvents[Name]): void {
    for (const listener of this.lists[name]) listener(data);
  }
}

/** A model in its worker: calls, streams and events. `Info` are its figures. */
export class Connection<Info> {
  private current: Info | undefined;
  private places: Places | undefined;
  private nextId = 0;
  private readonly pending = new Map<number, Pending>();
  private readonly listeners = new Listeners();
  private closed: TinywebError | undefined;
  private marker: LoadMarker | undefined;
  private readonly silence: ReturnType<typeof setTimeout>;
  private readonly watch: Watch;
  /** The load before this one, if the page was ended during it. */
  previousLoadInterrupted: InterruptedLoad | undefined;

  protected constructor(
    private readonly worker: WorkerLike,
    private readonly onProgress: ((progress: Progress) => void) | undefined,
    private readonly file = "tinyweb-worker.js",
  ) {
    worker.onmessage = ({ data }) => this.receive(data);
    globalThis.document?.addEventListener("visibilitychange", this.tellHidden);
    this.tellHidden();
    worker.onerror = ({ message }) => this.lose(message);
    // Any script can be at an address; one that is no worker of ours says nothing, ever.
    this.silence = setTimeout(() => this.lose("", "did not start"), START_MS);
    this.watch = new Watch(
      (why) => this.lose(why),
      () => {
        if (this.pending.size > 0) worker.postMessage({ type: "ping" } satisfies Request);
        return this.pending.size > 0;
      },
    );
  }

  /** Loads the bundle into the worker; when that fails the worker ends. */
  protected async load(task: "chat" | "function", baseUrl: string | URL, options: LoadOptions): Promise<this> {
    const { onProgress: _here, signal, workerUrl: _unsent, onInterrupted, ...rest } = options;
    const begun = performance.timeOrigin + performance.now();
    const marker = LoadMarker.of(baseUrl);
    this.marker = marker;
    try {
      const previous = await marker?.previous();
      this.previousLoadInterrupted = previous;
      Object.assign(rest, previous && (await onInterrupted?.(previous)));
      marker?.set(rest.backend);
      rest.memoryBudgetBytes ??= memoryBudget();
      await this.call({ method: "load", task, baseUrl: String(baseUrl), options: rest, begun }, signal);
    } catch (error) {
      this.close(error as TinywebError);
      throw error;
    } finally {
      marker?.clear();
    }
    return this;
  }

  /** Figures of the model, the backend and the last call. */
  get info(): Info {
    return this.current as Info; // the worker tells them before loading ends, and there is no model before that
  }

  /** @returns the function that removes the listener */
  on<Name extends keyof HostEvents>(name: Name, listener: (data: HostEvents[Name]) => void): () => void {
    return this.listeners.add(name, listener);
  }

  /** Frees the device's memory and ends the worker; calls still running fail with "disposed". */
  async dispose(): Promise<void> {
    if (this.closed) return;
    const done = new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, DISPOSE_MS); // a worker that computes does not listen
      this.worker.onmessage = ({ data }) => {
        if (data.type !== "disposed") return;
        clearTimeout(timer);
        resolve();
      };
    });
    this.worker.postMessage({ type: "dispose" } satisfies Request);
    this.fail(new TinywebError("disposed", "This model was disposed."));
    await done;
    this.worker.terminate();
  }

  private readonly tellHidden = (): void => {
    this.worker.postMessage({ type: "hidden", hidden: !!globalThis.document?.hidden } satisfies Request);
  };

  /** Ends everything that waits. */
  private fail(error: TinywebError): void {
    globalThis.document?.removeEventListener("visibilitychange", this.tellHidden);
    clearTimeout(this.silence);
    this.watch.stop();
    this.closed ??= error;
    for (const pending of this.pending.values()) pending(undefined, { error });
    this.pending.clear();
  }

  private lose(message: string | undefined, what = "failed"): void {
    const why = message ? `: ${message}` : `; is ${this.file} beside tinyweb.js?`;
    this.close(new TinywebError("worker-failed", `The model's worker ${what}${why}`));
  }

  private close(error: TinywebError): void {
    this.fail(error);
    this.worker.terminate();
  }

  private receive(reply: Reply): void {
    clearTimeout(this.silence);
    this.watch.heard();
    switch (reply.type) {
      case "part":
        this.pending.get(reply.id)?.(reply.part);
        return;
      case "end":
        this.pending.get(reply.id)?.(undefined, { value: reply.value, error: reply.error && fromWire(reply.error) });
        this.pending.delete(reply.id);
        return;
      case "progress":
        this.marker?.progress(reply.progress);
        this.onProgress?.(reply.progress);
        return;
      case "info":
        this.current = reply.info as Info;
        this.places = reply.places;
        return;
      case "event":
        this.listeners.tell(reply.name, reply.data as never);
        return;
      case "held":
        this.watch.held(reply.lock);
        return;
      case "thread":
        reply.port.onmessage = ({ data }) => this.lose(data.message);
    }
  }

  private send(id: number, call: Call, pending: Pending, transfer: Transferable[]): void {
    if (this.closed) throw this.closed;
    this.pending.set(id, pending);
    try {
      this.worker.postMessage({ type: "call", id, call } satisfies Request, transfer);
    } catch (error) {
      this.pending.delete(id);
      throw badArgument(`The arguments cannot be sent to the worker: ${describe(error)}`, error);
    }
  }

  private cancel(id: number): void {
    if (this.pending.has(id)) this.worker.postMessage({ type: "cancel", id } satisfies Request);
  }

  /** Inputs where the worker reads them, if it has nothing to do: one copy in place of three. */
  protected place(inputs: Inputs, name = ""): Inputs {
    const places = this.places?.[name];
    const kind = (array: Inputs[string] | undefined): string => Object.prototype.toString.call(array) + (array as TypedArray)?.length;
    const keys = Object.keys(inputs);
    if (!places || this.pending.size || keys.some((key) => kind(places[key]) !== kind(inputs[key]))) return inputs;
    const placed: Inputs = {};
    for (const key of keys) {
      const place = places[key] as TypedArray;
      place?.set(inputs[key] as never);
      placed[key] = place;
    }
    return placed;
  }

  /** A call without parts: its stream ends at once, with the result. */
  protected async call<Result>(call: Call, signal?: AbortSignal, transfer?: Transferable[]): Promise<Result> {
    return (await this.stream<never, Result>(call, signal, transfer).next()).value;
  }

  protected async *stream<Part, Result = void>(
    call: Call,
    signal: AbortSignal | undefined,
    transfer: Transferable[] = [],
  ): AsyncGenerator<Part, Result> {
    throwIfAborted(signal);
    const id = this.nextId++;
    const parts: Part[] = [];
    let end: End | undefined;
    let wake = (): void => undefined;
    let late: ReturnType<typeof setTimeout> | undefined;
    const take: Pending = (part, ended) => {
      if (ended) end ??= ended;
      else parts.push(part as Part);
      wake();
    };
    const stop = (): void => {
      this.cancel(id);
      late = setTimeout(() => take(undefined, { error: aborted() }), STOP_MS);
    };
    signal?.addEventListener("abort", stop, { once: true });
    try {
      this.send(id, call, take, transfer);
      for (;;) {
        while (parts.length > 0) {
          throwIfAborted(signal);
          yield parts.shift() as Part;
        }
        if (end?.error) throw end.error;
        if (end) {
          throwIfAborted(signal); // also where the result came before the worker heard of it
          return end.value as Result;
        }
        await new Promise<void>((resolve) => (wake = resolve));
      }
    } finally {
      clearTimeout(late);
      signal?.removeEventListener("abort", stop);
      this.cancel(id);
    }
  }
}

/** What stands in for a page's workers and files; nothing where there are workers. */
async function platform(): Promise<typeof import("./node.js") | undefined> {
  if (typeof Worker !== "undefined") return undefined;
  try {
    return await import("./node.js");
  } catch (error) {
    const where = "beside tinyweb.js, as in sites, which are for browsers";
    const todo = "import the npm package tinyweb, or put its tinyweb-node.js there";
    throw new TinywebError("worker-failed", `tinyweb-node.js is not ${where}: in Node, ${todo}.`, error);
  }
}

/** `fetch`; in Node it knows files, too. */
export const fetchAny = async (url: string, init?: RequestInit): Promise<Response> => ((await platform())?.fetchHere ?? fetch)(url, init);

// Bundlers know a worker's address, and its options, by how they stand here.
const FUNCTIONS: Script = {
  file: "./tinyweb-worker.js",
  start: () => new Worker(new URL("./tinyweb-worker.js", import.meta.url), { type: "module", name: "tinyweb" }),
};

/** The bundle's folder as a URL that ends with a slash; relative to the page, in Node to the current folder. */
export async function folderUrl(baseUrl: string | URL): Promise<URL> {
  const { href = baseUrl } = Object(baseUrl) as Partial<URL>;
  let base: URL;
  const node = globalThis.location ? undefined : await platform();
  try {
    if (typeof href !== "string" || !href) throw new TypeError("no address");
    base = globalThis.location ? new URL(href, location.href) : (node?.addressOf(href) ?? new URL(href));
  } catch (error) {
    throw unlike("The model", 'the address of its folder, such as "./model/"', baseUrl, error);
  }
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  return base;
}

/** One of the library's workers. */
export interface Script {
  /** Beside this file. */
  file: string;
  start(): Worker;
}

/** The bundle's folder, and a worker for its model. */
export async function startWorker(
  baseUrl: string | URL,
  { workerUrl, backend }: LoadOptions,
  script: Script = FUNCTIONS,
): Promise<{ base: URL; worker: WorkerLike }> {
  const base = await folderUrl(baseUrl);
  try {
    const node = await platform();
    const worker = node
      ? node.startThread(workerUrl, script.file, !backend?.startsWith("wasm"))
      : workerUrl
        ? new Worker(workerUrl, { type: "module", name: "tinyweb" })
        : script.start();
    return { base, worker: worker as unknown as WorkerLike };
  } catch (error) {
    throw new TinywebError("worker-failed", `The model's worker did not start: ${describe(error)}`, error);
  }
}
