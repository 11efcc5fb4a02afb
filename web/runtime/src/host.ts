/**
 * Holds the engine of a loaded model: opens the best backend that works, moves the weights in, and replaces the engine
 * when it breaks.
 */

import { badArgument } from "./arguments.js";
import { candidates, currentPlatform, nothingWorks, type BackendOptions, type Candidate, type Fallback, type Platform } from "./backend.js";
import { fetchFile, fetchManifest } from "./bundle.js";
import type { DownloadSettings, Fetch } from "./download.js";
import type { Backend, Engine } from "./engine.js";
import { asTinywebError, brokeEngine, describe, isAbort, throwIfAborted, together, TinywebError } from "./errors.js";
import { parseManifest, type Manifest } from "./manifest.js";
import { openShardCache, type ShardCache } from "./shard-cache.js";
import { loadWeights } from "./store.js";
import { WasmEngine, type ThreadWorker } from "./wasm-engine.js";
import { WebGpuEngine } from "./webgpu-engine.js";

export type Phase = "manifest" | "weights" | "compile" | "ready";

export interface Progress {
  phase: Phase;
  loadedBytes: number;
  totalBytes: number;
  /** True while nothing of the weights came over the network. */
  fromCache: boolean;
  secondsLeft?: number;
}

/** When the parts of loading were done, in milliseconds after the call; they run side by side. */
export interface StartTimes {
  /** manifest.json is read. */
  manifestMs: number;
  /** The tokenizer is ready; 0 where the bundle has none. */
  tokenizerMs: number;
  /** The weights are on the device. */
  weightsMs: number;
  /** Every kernel that a first answer needs is compiled. */
  kernelsMs: number;
  /** The model can be used. */
  readyMs: number;
}

/** Figures that every loaded model has. */
export interface HostInfo {
  /** The bundle's name. */
  model: string;
  backend: Backend;
  /** The GPU's name, or the number of CPU threads. */
  adapter: string;
  /** Bytes held on the device or in WASM memory: weights, state and temporaries. */
  memoryBytes: number;
  /** Bytes of the weights. */
  modelBytes: number;
  /** How long loading took, by part. */
  start: StartTimes;
  /** Backends that were passed over, and why. */
  fallbacks: Fallback[];
}

export interface HostEvents {
  "device-lost": { reason: string };
  "backend-changed": { from: Backend; to: Backend; reason: string };
}

/** @internal */
export interface HostSettings {
  options: BackendOptions;
  /** What the bundle must be for; "chat" by default. */
  task?: "chat" | "function";
  /** What a task needs beside the engine, made meanwhile. */
  beside?: (host: ModelHost, signal: AbortSignal) => Promise<void>;
  onProgress: (progress: Progress) => void;
  onEvent: <Name extends keyof HostEvents>(name: Name, data: HostEvents[Name]) => void;
  /** Makes a worker that serves WASM threads (wasm-thread.ts). */
  spawn: () => ThreadWorker;
  fetch?: Fetch;
  platform?: Platform;
  openCache?: (model: string) => Promise<ShardCache | undefined>;
  download?: Partial<DownloadSettings>;
  /** When loading was asked for, on this thread's clock; now by default. */
  begun?: number;
}

/** The smallest blocks that a prompt is read in; larger ones are compiled when there is such a prompt. */
const FIRST_BLOCKS = -3;
/** A second loss within this time means that the backend does not hold: without it, then. */
const LOSS_WINDOW_MS = 60_000;

/** Failures that another backend may not have. */
const BACKEND_FAILURES = new Set(["no-backend", "out-of-memory", "compile-failed", "gpu-error", "device-lost", "worker-failed"]);

/** @internal */
export class ModelHost {
  readonly fallbacks: Fallback[] = [];
  /** Is there once `open` has succeeded; a host that did not open is never handed out. */
  engine!: Engine;
  /** Tokens a chat may see at once; less than the model could where memory is short. */
  context = Infinity;
  /** How long opening took. */
  readonly start: StartTimes = { manifestMs: 0, tokenizerMs: 0, weightsMs: 0, kernelsMs: 0, readyMs: 0 };
  private lostAt = -Infinity;
  /** Backends that broke more than once in a short time. */
  private readonly broken = new Set<Backend>();
  private readonly files = new Map<string, Promise<Uint8Array<ArrayBuffer>>>();

  private constructor(
    readonly manifest: Manifest,
    private readonly baseUrl: URL,
    private readonly settings: HostSettings,
    private readonly begun: number,
  ) {}

  /** Fetches the bundle's small files, and opens an engine with the weights in it meanwhile. */
  static async open(baseUrl: URL, settings: HostSettings, signal?: AbortSignal): Promise<ModelHost> {
    const { begun = performance.now() } = settings;
    settings.onProgress({ phase: "manifest", loadedBytes: 0, totalBytes: 0, fromCache: true });
    const manifest = parseManifest(await fetchManifest(baseUrl, settings.options.manifestSha256, downloadSettings(settings, signal)));
    const { task = "chat" } = settings;
    if (!manifest[task]) throw badArgument(`The bundle ${manifest.name} is no ${task}: load it with tinyweb/load.`);
    const host = new ModelHost(manifest, baseUrl, settings, begun);
    host.done("manifestMs");
    try {
      await together(signal, (stop) => [settings.beside?.(host, stop) ?? Promise.resolve(), host.openEngine(stop)]);
      host.done("readyMs");
      return host;
    } catch (error) {
      host.dispose();
      throw error;
    }
  }

  /**
   * Replaces a broken engine: the same backend once more, or, after a second loss in a short time, the next one.
   * @throws TinywebError the cause, when it is no broken engine, or the user asked for this very backend; "no-backend" when nothing else works
   */
  async recover(error: unknown, signal?: AbortSignal): Promise<void> {
    const cause = asTinywebError(error);
    if (!brokeEngine(cause)) throw cause;
    const { backend } = this.engine;
    const again = performance.now() - this.lostAt < LOSS_WINDOW_MS;
    if (again && this.settings.options.backend === backend) throw cause;
    this.dispose(); // it stays in place, refusing work and ready to be replaced, should no other open
    if (again) this.note({ backend, reason: cause.message });
    if (again) this.broken.add(backend);
    else this.broken.clear();
    await this.openEngine(signal);
    this.lostAt = performance.now();
    const to = this.engine.backend;
    if (to !== backend) this.settings.onEvent("backend-changed", { from: backend, to, reason: cause.message });
  }

  get info(): HostInfo {
    const {
      manifest: { name, weights },
      engine: { backend, adapter, memoryBytes },
      start,
      fallbacks,
    } = this;
    return { model: name, backend, adapter, memoryBytes, modelBytes: weights.bytes, start: { ...start }, fallbacks: [...fallbacks] };
  }

  dispose(): void {
    this.engine?.dispose(); // there may be none yet
  }

  /** A part of opening is done. */
  done(part: keyof StartTimes): void {
    if (this.start.readyMs === 0) this.start[part] = performance.now() - this.begun; // not when a lost device is replaced
  }

  /** Tries the candidates in order. */
  private async openEngine(signal: AbortSignal | undefined): Promise<void> {
    const { options, platform = currentPlatform() } = this.settings;
    const considered: Fallback[] = [];
    const all = await candidates(this.manifest, options, platform, considered);
    considered.filter(({ backend }) => !this.broken.has(backend)).forEach((fallback) => this.note(fallback));
    let first: TinywebError | undefined;
    for (const candidate of all) {
      if (this.broken.has(candidate.backend)) continue;
      throwIfAborted(signal);
      try {
        this.engine = await this.fill(candidate, signal);
        this.context = Math.min(this.context, candidate.context); // what was cut for one engine stays cut for the next
        return;
      } catch (error) {
        const typed = asTinywebError(error);
        if (isAbort(error) || !BACKEND_FAILURES.has(typed.code)) throw typed;
        first ??= typed;
        this.note({ backend: candidate.backend, reason: typed.message });
      }
    }
    // With a single backend in question its own error says most.
    if (first && options.backend !== undefined && options.backend !== "auto") throw first;
    throw nothingWorks(this.fallbacks);
  }

  /** Remembers why a backend is not in use; the latest reason counts. */
  private note(fallback: Fallback): void {
    const index = this.fallbacks.findIndex(({ backend }) => backend === fallback.backend);
    this.fallbacks.splice(index < 0 ? this.fallbacks.length : index, 1, fallback);
  }

  /** An engine of this kind with the weights inside and every kernel compiled. */
  private async fill(candidate: Candidate, signal: AbortSignal | undefined): Promise<Engine> {
    let engine = undefined as Engine | undefined;
    const { sha256, bytes } = this.manifest.weights;
    const { onProgress, openCache = openShardCache } = this.settings;
    let last: Progress = { phase: "weights", loadedBytes: 0, totalBytes: bytes, fromCache: true };
    try {
      await together(signal, async (stop) => {
        const opened = await this.create(candidate, stop);
        engine = opened;
        const cache = await openCache(sha256);
        const weights = loadWeights(this.manifest, opened, {
          ...downloadSettings(this.settings, stop),
          baseUrl: this.baseUrl,
          cache,
          onProgress: (progress) => {
            last = { phase: "weights", ...progress };
            onProgress(last);
          },
        });
        return [
          opened.compiled.then(() => this.done("kernelsMs")),
          weights.then(() => {
            this.done("weightsMs");
            onProgress({ ...last, phase: "compile" });
          }),
        ];
      });
      onProgress({ ...last, phase: "ready" });
      return engine as Engine;
    } catch (error) {
      engine?.dispose();
      throw error;
    }
  }

  private async create(candidate: Candidate, signal: AbortSignal): Promise<Engine> {
    if (candidate.backend === "webgpu") {
      const { adapter, name, target, variant } = candidate;
      const files = [variant.file, ...variant.shared].map((file) => this.file(file, signal));
      const source = Promise.all(files).then((texts) => texts.map((bytes) => new TextDecoder().decode(bytes)).join("\n"));
      const lost = (reason: string): void => this.settings.onEvent("device-lost", { reason });
      const { chat } = this.manifest;
      const first = chat
        ? [chat.sample, chat.greedy, ...chat.prefill.slice(FIRST_BLOCKS).map(({ entry }) => entry)] // decode is the last of them
        : this.settings.options.functions;
      return WebGpuEngine.create(adapter, name, this.manifest, target, variant, source, lost, first);
    }
    const target = this.manifest.wasm as NonNullable<Manifest["wasm"]>;
    return WasmEngine.create(this.manifest, target, candidate.threads, this.module(candidate.variant.file, signal), this.settings.spawn);
  }

  private async module(file: string, signal: AbortSignal): Promise<WebAssembly.Module> {
    const bytes = await this.file(file, signal);
    try {
      return await WebAssembly.compile(bytes);
    } catch (error) {
      throw new TinywebError("compile-failed", `This browser refused ${file}: ${describe(error)}`, error);
    }
  }

  /** A file of the bundle. */
  fetch(name: string, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    return fetchFile(this.baseUrl, name, this.manifest.integrity, downloadSettings(this.settings, signal));
  }

  /** The same, kept for the case that the engine must be opened again. */
  private file(name: string, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    let content = this.files.get(name);
    if (!content) {
      content = this.fetch(name, signal);
      this.files.set(name, content);
      content.catch(() => this.files.delete(name));
    }
    return content;
  }
}

function downloadSettings(settings: HostSettings, signal: AbortSignal | undefined): DownloadSettings {
  return { fetch: settings.fetch ?? ((url, init) => fetch(url, init)), ...settings.download, signal };
}
