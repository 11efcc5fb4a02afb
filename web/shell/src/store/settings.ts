/** What the reader of a page has chosen, as far as all pages have it; a page adds its own. */

import { isBackendChoice, type BackendChoice } from "../model-api";
import type { KeyValueStore } from "./storage";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export interface ShellSettings {
  theme: Theme;
  backend: BackendChoice;
}

export const SHELL_DEFAULTS: Readonly<ShellSettings> = Object.freeze({ theme: "system", backend: "auto" });

/** Any value as valid settings; fields that make no sense fall back to the default. */
export function parseShellSettings(value: unknown): ShellSettings {
  const raw = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
  return {
    theme: THEMES.find((theme) => theme === raw["theme"]) ?? SHELL_DEFAULTS.theme,
    backend: isBackendChoice(raw["backend"]) ? raw["backend"] : SHELL_DEFAULTS.backend,
  };
}

const KEY = "settings";

export class SettingsStore<Settings> {
  /** @param parse makes valid settings of anything; of `undefined` the defaults */
  constructor(
    private readonly storage: KeyValueStore,
    private readonly parse: (value: unknown) => Settings,
  ) {}

  load(): Settings {
    return this.parse(this.storage.get(KEY));
  }

  save(settings: Settings): void {
    this.storage.set(KEY, settings);
  }
}
