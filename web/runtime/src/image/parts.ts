/**
 * The parts of an image model, each a bundle of functions in a worker of its own. Parts stay loaded while memory allows; a part
 * that needs room frees those that are needed last.
 */

import { loadFunction, type FunctionInfo, type FunctionModel, type LoadOptions } from "../index.js";
import { MANIFEST } from "../bundle.js";
import { memoryBudget } from "../device.js";
import { isAbort, linkedAbort, throwIfAborted, TinywebError } from "../errors.js";
import type { HostEvents, Progress } from "../host.js";
import { PARTS, type ImageManifest, type Part, type PartName } from "./manifest.js";

export interface PartsProgress extends Progress {
  /** The parts that are being loaded. */
  parts: PartName[];
}

export interface PartsSettings {
  base: URL;
  options: Omit<LoadOptions, "onProgress" | "signal">;
  /** Of parts with functions for several sizes: those to compile while loading. */
  first: Partial<Record<PartName, string[]>>;
  /** Keep no part beside the one in use. */
  single: boolean;
  onProgress: ((progress: PartsProgress) => void) | undefined;
  onEvent: <Name extends keyof HostEvents>(name: Name, data: HostEvents[Name]) => void;
  /** Replaces `loadFunction` in tests. */
  load?: typeof loadFunction;
}

const GIB = 2 ** 30;
/** Most bytes of parts that stay loaded together, also where the device would allow more. */
const MOST = 4 * GIB;

export class Parts {
  private readonly loaded = new Map<PartName, FunctionModel>();
  private readonly progress = new Map<PartName, Progress>();
  /** Bytes that all loaded parts together may take. */
  private readonly budget: number;
  /** Figures of the part that was loaded last, also when it is freed again. */
  last: FunctionInfo | undefined;

  constructor(
    private readonly manifest: ImageManifest,
    private readonly settings: PartsSettings,
  ) {
    this.budget = settings.single ? 0 : (settings.options.memoryBudgetBytes ?? Math.min(MOST, memoryBudget()));
  }

  get names(): PartName[] {
    return PARTS.filter((name) => this.loaded.has(name));
  }

  /** The loaded part, if it is. */
  peek(name: PartName): FunctionModel | undefined {
    return this.loaded.get(name);
  }

  get infos(): FunctionInfo[] {
    return [...this.loaded.values()].map(({ info }) => info);
  }

  get memoryBytes(): number {
    return this.infos.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0);
  }

  /** The parts at the front of the list that fit into memory together, at least one. */
  private fitting(names: readonly PartName[]): PartName[] {
    let sum = 0;
    const end = names.findIndex((name) => {
      sum += this.spec(name).memory;
      return sum > this.budget;
    });
    return names.slice(0, end < 0 ? names.length : Math.max(1, end));
  }

  /**
   * Loads the first parts that fit into memory together. On a first visit the others are loaded, too, one by one, and freed again: then
   * all are in the browser's storage, and pictures can be made without a network.
   */
  async prepare(names: readonly PartName[], signal?: AbortSignal): Promise<void> {
    const fitting = this.fitting(names);
    await this.loadAll(fitting, signal);
    if (fitting.length === names.length || this.seen()) return;
    for (const name of names.slice(fitting.length)) await this.get(name, signal);
    this.seen(true);
  }

  /** Whether all parts were loaded in this browser before. @param now they were */
  private seen(now = false): boolean {
    try {
      if (!globalThis.document) return true; // there is no storage that would need to be filled
      const key = `tinyweb-parts:${this.settings.base.href}`;
      const sizes = Object.values(this.manifest.parts)
        .map(({ weights }) => weights)
        .join();
      if (now) localStorage.setItem(key, sizes);
      return localStorage.getItem(key) === sizes;
    } catch {
      return true; // storage is refused, and would be for weights
    }
  }

  /** Loads parts side by side; they must fit together. The first failure stops the others. */
  private async loadAll(names: readonly PartName[], signal?: AbortSignal): Promise<void> {
    const { controller: stop, unlink } = linkedAbort(signal);
    let failure: unknown;
    try {
      await Promise.all(
        names.map((name) =>
          this.load(name, stop.signal).catch((error: unknown) => {
            failure ??= error;
            stop.abort();
          }),
        ),
      );
    } finally {
      unlink();
      this.progress.clear();
    }
    throwIfAborted(signal);
    if (failure) throw failure;
  }

  /** The part, loaded now if it is not; others make room for it. */
  async get(name: PartName, signal?: AbortSignal): Promise<FunctionModel> {
    const there = this.loaded.get(name);
    if (there) return there;
    await this.makeRoom(name, this.spec(name).memory);
    try {
      return await this.load(name, signal);
    } catch (error) {
      if ((error as Partial<TinywebError>).code !== "out-of-memory" || this.loaded.size === 0) throw error;
      await this.makeRoom(name, Infinity); // there is less memory than thought: this part alone, then
      return await this.load(name, signal);
    } finally {
      this.progress.clear();
    }
  }

  async dispose(): Promise<void> {
    const all = [...this.loaded.values()];
    this.loaded.clear();
    await Promise.all(all.map((part) => part.dispose()));
  }

  private spec(name: PartName): Part {
    const part = this.manifest.parts[name];
    if (!part)
      throw new TinywebError(
        "bad-argument",
        "This model was exported without the part that reads pictures (vae_encoder): it cannot begin from one.",
      );
    return part;
  }

  /** Frees parts, those first that are needed last from `name` on: a picture needs the parts in their order, then comes the next. */
  private async makeRoom(name: PartName, bytes: number): Promise<void> {
    const place = PARTS.indexOf(name);
    for (let back = 1; back < PARTS.length; back++) {
      if (this.memoryBytes + bytes <= this.budget) return;
      const other = PARTS[(place - back + PARTS.length) % PARTS.length] as PartName;
      const part = this.loaded.get(other);
      this.loaded.delete(other);
      await part?.dispose();
    }
  }

  private async load(name: PartName, signal: AbortSignal | undefined): Promise<FunctionModel> {
    const { base, options, onEvent, load = loadFunction } = this.settings;
    const { folder, weights } = this.spec(name);
    this.progress.set(name, { phase: "manifest", loadedBytes: 0, totalBytes: weights, fromCache: true });
    const onProgress = (progress: Progress): void => {
      this.progress.set(name, progress.phase === "manifest" ? { ...progress, totalBytes: weights } : progress);
      this.report();
    };
    let part: FunctionModel;
    try {
      const functions = this.settings.first[name];
      const row = this.manifest.integrity.get(`${folder}${MANIFEST}`);
      if (!row)
        throw new TinywebError("bad-manifest", `${MANIFEST}: integrity: has no row for ${folder}${MANIFEST}: export the model again.`);
      part = await load(new URL(folder, base), {
        ...options,
        manifestSha256: row.sha256,
        ...(functions ? { functions } : {}),
        onProgress,
        ...(signal ? { signal } : {}),
      });
    } catch (error) {
      if (isAbort(error) || !(error instanceof TinywebError)) throw error;
      throw new TinywebError(error.code, `${error.message} (The model's part ${name}.)`, error);
    }
    part.on("device-lost", (data) => onEvent("device-lost", data));
    part.on("backend-changed", (data) => onEvent("backend-changed", data));
    this.loaded.set(name, part);
    this.last = part.info;
    return part;
  }

  /** The progress of all parts that are being loaded, as one. */
  private report(): void {
    const all = [...this.progress.values()];
    const sum = (of: (progress: Progress) => number): number => all.reduce((total, progress) => total + of(progress), 0);
    const phases = all.map(({ phase }) => phase);
    const phase = (["manifest", "weights", "compile"] as const).find((earliest) => phases.includes(earliest)) ?? "ready";
    const seconds = all.map(({ secondsLeft = 0 }) => secondsLeft).reduce((a, b) => Math.max(a, b), 0);
    this.settings.onProgress?.({
      // While one part looks for its manifest another may be loading already.
      phase: phase === "manifest" && phases.includes("weights") ? "weights" : phase,
      loadedBytes: sum(({ loadedBytes }) => loadedBytes),
      totalBytes: sum(({ totalBytes }) => totalBytes),
      fromCache: all.every(({ fromCache }) => fromCache),
      ...(seconds > 0 ? { secondsLeft: seconds } : {}),
      parts: [...this.progress.keys()],
    });
  }
}
