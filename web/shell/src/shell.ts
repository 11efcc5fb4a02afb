/** What a page is made around: its storage, its settings, its model, and what is said to screen readers. */

import type { BackendChoice, LoadedModel } from "./model-api";
import { isBackendChoice } from "./model-api";
import { isolate } from "./isolate";
import { importModel } from "./model/import";
import { ModelLoader, type LoaderSurroundings } from "./model/loader";
import { parseShellSettings, SettingsStore, type ShellSettings } from "./store/settings";
import { Site } from "./site";
import { openStore, type KeyValueStore } from "./store/storage";
import { Store } from "./store/store";
import { formatStart } from "./text/format";
import type { Words } from "./text/failures";
import { WakeLock } from "./wake-lock";

export interface ShellOptions<Settings extends ShellSettings> {
  /** The page's own name in storage: "tinychat". The same as in its vite.config.ts. */
  app: string;
  /** What the page is called, as its heading. @param facts `info` of model.js; undefined until that is there */
  title(facts: unknown): string;
  words: Words;
  /** Makes valid settings of anything; of `undefined` the defaults. */
  parseSettings(value: unknown): Settings;
  /** Options for `load` with which the model takes less memory, if there are any. @param facts `info` of model.js */
  smaller?(facts: unknown): object;
}

export interface Surroundings<Model extends LoadedModel> extends LoaderSurroundings<Model> {
  /** A monotonic clock, milliseconds. */
  ticks(): number;
}

export interface ShellState<Settings> {
  settings: Settings;
  /** Read out by screen readers. */
  announcement: string;
}

/** Tells of every change of the settings, the model's state, the notes, and what is announced. */
export class Shell<Model extends LoadedModel = LoadedModel, Settings extends ShellSettings = ShellSettings> extends Store<
  ShellState<Settings>
> {
  readonly storage: KeyValueStore;
  readonly model: ModelLoader<Model>;
  /** The exported site that the page is part of. */
  readonly site: Site;
  private readonly settingsStore: SettingsStore<Settings>;

  constructor(
    readonly options: ShellOptions<Settings>,
    readonly env: Surroundings<Model>,
  ) {
    const settingsStore = new SettingsStore(env.storage, options.parseSettings);
    super({ settings: settingsStore.load(), announcement: "" });
    this.storage = env.storage;
    this.settingsStore = settingsStore;
    this.model = new ModelLoader(env, options.words, this.settings.backend);
    this.model.subscribe(() => this.changed());
    this.site = new Site(
      () => this.changed(),
      () => this.offerNewVersion(),
    );
    this.model.onReady(({ info }) => {
      // For those who measure: since the visit began, and since the model was asked for.
      if (info.start) {
        console.info(`${options.app}: usable ${Math.round(env.ticks())} ms after the visit began; model ready ${formatStart(info.start)}`);
      }
      this.announce(`${this.title} is ready.`);
    });
  }

  /** To be told after every attempt to keep something of the reader's: whether the browser's storage took it. */
  reportKept(kept: boolean): void {
    if (kept || !this.storage.lasting) {
      this.model.dropNote("storage");
      return;
    }
    this.model.note({
      id: "storage",
      tone: "info",
      title: "The browser’s storage is full",
      text: "What is new lasts until this page is closed. Deleting something in the settings makes room.",
    });
  }

  private offerNewVersion(): void {
    this.model.note({
      id: "update",
      tone: "good",
      text: "A new version is ready.",
      action: { label: "Reload", testId: "update", act: () => this.takeNewVersion() },
    });
  }

  /** Not in the middle of what the model does: that would be lost. */
  private takeNewVersion(): void {
    const take = (): void => void this.site.takeNewVersion();
    if (!this.model.busy) {
      take();
      return;
    }
    this.model.note({
      id: "update",
      tone: "busy",
      text: "The new version opens as soon as this is done.",
      action: { label: "Reload now", testId: "update-now", act: take },
    });
    const done = this.model.subscribe(() => {
      if (this.model.busy) return;
      done();
      take();
    });
  }

  get settings(): Settings {
    return this.state.settings;
  }

  get title(): string {
    return this.options.title(this.model.state.facts);
  }

  /** Has it read out by screen readers. */
  announce(text: string): void {
    this.change({ announcement: text });
  }

  changeSettings(change: Partial<Settings>): void {
    const settings = { ...this.settings, ...change };
    this.settingsStore.save(settings);
    this.change({ settings });
    if (change.backend !== undefined) this.model.chooseBackend(change.backend);
  }

  /** Back to the defaults; the theme stays, and so do the settings named. */
  resetSettings(keep: readonly (keyof Settings)[] = []): void {
    const kept = Object.fromEntries((["theme", ...keep] as const).map((key) => [key, this.settings[key as keyof Settings]]));
    this.changeSettings({ ...this.options.parseSettings(undefined), ...kept });
  }
}

/** Any page's shell, as the components need it. */
export type AnyShell = Pick<
  Shell,
  "title" | "state" | "settings" | "site" | "storage" | "subscribe" | "changeSettings" | "resetSettings"
> & {
  readonly options: { app: string; words: Words };
  readonly model: Pick<
    ModelLoader<LoadedModel>,
    "state" | "backendChoice" | "offersSmaller" | "load" | "chooseBackend" | "chooseSmaller" | "note" | "dismissNote" | "dropNote"
  >;
};

function addressBackend(): BackendChoice | null {
  const wanted = new URLSearchParams(location.search).get("backend");
  return isBackendChoice(wanted) ? wanted : null;
}

/** Calls back before the next frame, or soon where the page is hidden and draws none. */
export function nextFrame(callback: () => void): void {
  // What is under way should be complete when the reader comes back, yet a hidden page may take its time.
  if (document.hidden) setTimeout(callback, 200);
  else requestAnimationFrame(callback);
}

/** The shell of the page that this script runs in. Nothing is loaded before `shell.model.load()`. */
export function openShell<Model extends LoadedModel>(options: Omit<ShellOptions<ShellSettings>, "parseSettings">): Shell<Model>;
export function openShell<Model extends LoadedModel, Settings extends ShellSettings>(
  options: ShellOptions<Settings>,
): Shell<Model, Settings>;
export function openShell<Model extends LoadedModel>(
  options: Omit<ShellOptions<ShellSettings>, "parseSettings"> & Partial<ShellOptions<ShellSettings>>,
): Shell<Model> {
  const storage = openStore(location.pathname, options.app);
  const shell: Shell<Model> = new Shell<Model>(
    { parseSettings: parseShellSettings, ...options },
    {
      storage,
      importModel: async (attempt) => {
        await isolate(shell.model.backendChoice);
        return importModel<Model>(attempt);
      },
      addressBackend: addressBackend(),
      forgetAddressBackend: () => {
        const url = new URL(location.href);
        url.searchParams.delete("backend");
        history.replaceState(history.state, "", url);
      },
      online: () => navigator.onLine,
      nextFrame,
      ticks: () => performance.now(),
      ...(options.smaller === undefined ? {} : { smaller: options.smaller }),
    },
  );
  const wakeLock = new WakeLock();
  shell.model.subscribe(() => wakeLock.follow(shell.model.busy));
  addEventListener("online", () => shell.model.cameOnline());
  // The model goes first: keeping the page for later must not slow its first visit down.
  const settled = shell.model.subscribe(() => {
    if (shell.model.state.engine.phase === "loading") return;
    settled();
    void shell.site.open();
  });
  return shell;
}
