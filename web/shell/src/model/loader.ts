/**
 * Loads the page's model and keeps it usable: progress, failures and trying again, another backend, a lost GPU. Knows
 * nothing of what the model does, nor of how the page looks.
 */

import type { BackendChoice, LoadedModel, LoadOptions, LoadProgress, ModelModule } from "../model-api";
import type { KeyValueStore } from "../store/storage";
import { Store } from "../store/store";
import { describeFailure, errorCode, type Failure, type Words } from "../text/failures";
import { backendName } from "../text/format";
import { PageError, type ModelImporter } from "./import";
import { fallbackNote, type Note } from "./notes";

export type Engine<Info> =
  | { phase: "loading"; progress: LoadProgress | null }
  | { phase: "ready"; info: Info }
  | { phase: "failed"; failure: Failure };

/** One word for the whole page, in `data-state`. */
export type PageState = "loading" | "ready" | "generating" | "error";

export interface ModelState<Info> {
  engine: Engine<Info>;
  /** What the loader says about its model before it is loaded (`info` of model.js). */
  facts: unknown;
  notes: readonly Note[];
}

export interface LoaderSurroundings<Model extends LoadedModel> {
  storage: KeyValueStore;
  importModel: ModelImporter<Model>;
  /** From the page's address; goes before the setting. */
  addressBackend: BackendChoice | null;
  /** Called when the reader's own choice replaces the one in the address. */
  forgetAddressBackend(): void;
  online(): boolean;
  /** Calls back before the next frame is drawn. */
  nextFrame(callback: () => void): void;
  /** What to load the model with to spare memory; absent where there is no smaller choice. @param facts `info` of model.js */
  smaller?(facts: unknown): object;
}

const SMALLER = "smaller";
const DISMISSED = "dismissed-fallback";
/** Failures of a run after which a freshly loaded model is worth one try; "no-backend": a lost GPU did not come back. */
const REVIVABLE = new Set(["device-lost", "no-backend", "worker-failed", "disposed"]);

/** The same once more might end the page once more: the reader is asked first. */
function onInterrupted(): never {
  throw new PageError("interrupted", "The page was ended while it loaded or used its model.");
}

function stopped(): Error {
  return Object.assign(new Error("Stopped."), { code: "aborted" });
}

export class ModelLoader<Model extends LoadedModel> extends Store<ModelState<Model["info"]>> {
  /** The loaded model; null until it is ready. */
  model: Model | null = null;
  /** The setting, unless the address says something else. */
  private chosen: BackendChoice;
  private addressBackend: BackendChoice | null;
  /** Of the load that counts; an older one that ends later is ignored. */
  private loading = new AbortController();
  private finished: Promise<void> = Promise.resolve();
  private started = false;
  private failedImports = 0;
  /** The GPU device went away and nothing has been heard of the model since. */
  private lost = false;
  /** Spares memory: the reader's choice after a load that the device could not hold. */
  private spare: boolean;
  private readonly runs = new Set<AbortController>();
  private readonly readyListeners = new Set<(model: Model) => void>();

  /** @param words how this page speaks of what it keeps */
  constructor(
    private readonly env: LoaderSurroundings<Model>,
    private readonly words: Words,
    backend: BackendChoice,
  ) {
    super({ engine: { phase: "loading", progress: null }, facts: undefined, notes: [] });
    this.chosen = backend;
    this.addressBackend = env.addressBackend;
    this.spare = env.smaller !== undefined && env.storage.get(SMALLER) === true;
  }

  /** Calls back each time the model has been loaded. */
  onReady(listener: (model: Model) => void): () => void {
    this.readyListeners.add(listener);
    return () => this.readyListeners.delete(listener);
  }

  // ---- loading

  get backendChoice(): BackendChoice {
    return this.addressBackend ?? this.chosen;
  }

  /** Whether a run is under way. */
  get busy(): boolean {
    return this.runs.size > 0;
  }

  /** Loads the model; resolves when it is ready or has failed. Never throws. */
  load(): Promise<void> {
    this.loading.abort();
    const loading = new AbortController();
    this.loading = loading;
    const first = !this.started;
    this.started = true;
    this.lost = false;
    this.change({
      engine: { phase: "loading", progress: null },
      notes: this.state.notes.filter(({ id }) => id !== "device"),
    });
    this.finished = this.loadOnce(loading.signal, first);
    return this.finished;
  }

  private async loadOnce(signal: AbortSignal, first: boolean): Promise<void> {
    await this.release();
    let latest: LoadProgress | null = null;
    const showProgress = (): void => {
      if (latest !== null && !signal.aborted && this.state.engine.phase === "loading") {
        this.change({ engine: { phase: "loading", progress: latest } });
      }
      latest = null;
    };
    const options: LoadOptions = {
      backend: this.backendChoice,
      signal,
      ...(first ? { onInterrupted } : {}),
      onProgress: (progress) => {
        if (latest === null) this.env.nextFrame(showProgress);
        latest = progress;
      },
    };
    try {
      const module = await this.importModule();
      if (signal.aborted) return;
      this.change({ facts: module.info });
      const model = await module.load({ ...(this.spare ? this.env.smaller?.(module.info) : {}), ...options });
      if (signal.aborted) {
        void model.dispose();
        return;
      }
      this.model = model;
      model.on("device-lost", () => this.deviceLost(model));
      model.on("backend-changed", () => this.backendChanged(model));
      this.change({ engine: { phase: "ready", info: { ...model.info } } });
      this.explainFallback(model.info);
      this.explainSmaller();
      for (const listener of this.readyListeners) listener(model);
    } catch (error) {
      if (signal.aborted) return;
      this.change({ engine: { phase: "failed", failure: describeFailure(error, this.words, this.env.online(), this.backendChoice) } });
    }
  }

  private async importModule(): Promise<ModelModule<Model>> {
    try {
      return await this.env.importModel(this.failedImports);
    } catch (error) {
      this.failedImports++;
      throw error;
    }
  }

  private async release(): Promise<void> {
    const { model } = this;
    this.model = null;
    try {
      await model?.dispose();
    } catch {
      // A model that cannot even be put away is one more reason to load a new one.
    }
  }

  /** Takes another backend: runs are stopped, the model is loaded anew. */
  chooseBackend(backend: BackendChoice): void {
    const before = this.backendChoice;
    this.chosen = backend;
    if (this.addressBackend !== null) this.env.forgetAddressBackend();
    this.addressBackend = null;
    if (this.backendChoice === before && this.state.engine.phase !== "failed") return;
    this.stop();
    void this.load();
  }

  /** Whether the model can be loaded smaller than it is. */
  get offersSmaller(): boolean {
    return this.env.smaller !== undefined && !this.spare;
  }

  /** Loads the model so that it takes less memory, also on later visits; or as it was made. */
  chooseSmaller(smaller: boolean): void {
    this.spare = smaller;
    if (smaller) this.env.storage.set(SMALLER, true);
    else this.env.storage.remove(SMALLER);
    this.stop();
    void this.load();
  }

  private explainSmaller(): void {
    if (!this.spare) {
      this.dropNote(SMALLER);
      return;
    }
    const action = { label: "Load it whole", testId: "whole", act: () => this.chooseSmaller(false) };
    this.note({ id: SMALLER, tone: "info", text: "The model was loaded smaller, to spare this device’s memory.", action });
  }

  /** Stops all runs. */
  stop(): void {
    for (const run of this.runs) run.abort();
  }

  /** The network is back: go on with what its absence stopped. */
  cameOnline(): void {
    const { engine } = this.state;
    if (engine.phase === "failed" && engine.failure.code === "download-failed") void this.load();
  }

  // ---- running

  /**
   * Runs something on the model: waits until it is ready (a failed load is tried again), hands it to `task`, and does so
   * once more on a freshly loaded model if it was lost on the way. While a run lasts the page's state is "generating".
   *
   * @param task gets the model and a signal that also fires when the reader chooses another backend
   * @throws what the load or the task fails with; an error with the code "aborted" after a stop
   */
  async run<Result>(task: (model: Model, signal: AbortSignal) => Promise<Result>, signal?: AbortSignal): Promise<Result> {
    const run = new AbortController();
    const stop = (): void => run.abort();
    if (signal?.aborted === true) stop();
    signal?.addEventListener("abort", stop, { once: true });
    this.runs.add(run);
    if (this.lost) this.explainLoss();
    this.change({});
    try {
      for (let revived = false; ; revived = true) {
        const model = await this.whenReady(run.signal);
        try {
          const result = await task(model, run.signal);
          if (run.signal.aborted) throw stopped();
          this.alive(model);
          return result;
        } catch (error) {
          const code = errorCode(error);
          if (run.signal.aborted) throw code === "aborted" ? error : stopped();
          if (revived || !REVIVABLE.has(code) || !(await this.revive(model, code === "device-lost" || code === "no-backend"))) throw error;
        }
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      this.runs.delete(run);
      this.refresh();
    }
  }

  /** The loaded model, as soon as there is one. A load that has failed is tried once more. */
  private async whenReady(signal: AbortSignal): Promise<Model> {
    if (!this.started || this.state.engine.phase === "failed") void this.load();
    for (;;) {
      if (signal.aborted) throw stopped();
      const { engine } = this.state;
      if (engine.phase === "ready" && this.model !== null) return this.model;
      if (engine.phase === "failed") throw Object.assign(new Error(engine.failure.detail), { code: engine.failure.code });
      const given = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
      await Promise.race([this.finished, given]);
    }
  }

  /** Loads the model anew under a run; once, where several runs have lost it. */
  private async revive(model: Model, deviceLost: boolean): Promise<boolean> {
    if (model === this.model) void this.load();
    if (deviceLost && this.model === null) {
      this.lost = true; // `load` begins without a word of it
      this.explainLoss();
    }
    await this.finished;
    const { engine } = this.state;
    if (engine.phase === "ready") this.alive(this.model);
    else this.dropNote("device");
    return engine.phase === "ready";
  }

  /** Call it when something has come out of the model: a device that was lost is back then. */
  alive(model: Model | null): void {
    if (this.lost && model !== null && model === this.model) this.deviceRecovered(model.info.backend);
  }

  /** Shows the model's figures as they are now. */
  refresh(): void {
    if (this.model !== null && this.state.engine.phase === "ready") {
      this.change({ engine: { phase: "ready", info: { ...this.model.info } } });
    } else this.change({});
  }

  // ---- notes

  note(note: Note): void {
    this.change({ notes: [...this.state.notes.filter(({ id }) => id !== note.id), note] });
  }

  /** Closed by the reader. */
  dismissNote(id: string): void {
    const note = this.state.notes.find((other) => other.id === id);
    if (note !== undefined && id === "fallback") this.env.storage.set(DISMISSED, note.text);
    this.dropNote(id);
  }

  /** No longer true. */
  dropNote(id: string): void {
    if (this.state.notes.some((note) => note.id === id)) {
      this.change({ notes: this.state.notes.filter((note) => note.id !== id) });
    }
  }

  /** Says why a faster backend is not in use, unless the reader has seen and closed the same words. */
  private explainFallback(info: Model["info"]): void {
    const note = fallbackNote(info);
    if (note === null || this.env.storage.get(DISMISSED) === note.text) this.dropNote("fallback");
    else this.note(note);
  }

  private deviceLost(model: Model): void {
    if (model !== this.model) return;
    this.lost = true;
    this.explainLoss();
  }

  /** The runtime replaces a lost device in the course of the next run. */
  private explainLoss(): void {
    const { kept, next } = this.words;
    const text = this.busy
      ? `The GPU was lost. Bringing the model back; ${kept}.`
      : `The GPU was lost. The model comes back with ${next}; ${kept}.`;
    this.note({ id: "device", tone: "busy", text });
  }

  private backendChanged(model: Model): void {
    if (model !== this.model) return;
    this.refresh();
    this.deviceRecovered(model.info.backend);
  }

  private deviceRecovered(backend: string): void {
    this.lost = false;
    const text =
      backend === "webgpu"
        ? "The GPU was lost for a moment. The model is back."
        : `The GPU was lost. The model goes on with ${backendName(backend)}.`;
    this.note({ id: "device", tone: "good", text });
  }
}

/** @param busy the page is at work */
export function pageState(engine: Engine<unknown>, busy: boolean): PageState {
  if (engine.phase === "failed") return "error";
  if (busy) return "generating";
  return engine.phase === "loading" ? "loading" : "ready";
}
