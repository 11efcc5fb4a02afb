/** What the reader of the page has chosen. `null` stands for "as the model's makers suggest". */

import { parseShellSettings, SHELL_DEFAULTS, type ShellSettings } from "tinyweb-shell";

export interface Settings extends ShellSettings {
  /** 0 … 2; 0 always takes the likeliest token. */
  temperature: number | null;
  /** 0.05 … 1 */
  topP: number | null;
  /** Longest answer in tokens, 16 … 4096. */
  maxTokens: number | null;
  /** Sent as the first message of every conversation unless empty. */
  system: string;
  /** Whether the list of conversations is shown beside a wide window. */
  sidebar: boolean;
}

export const DEFAULT_SETTINGS: Readonly<Settings> = Object.freeze({
  ...SHELL_DEFAULTS,
  temperature: null,
  topP: null,
  maxTokens: null,
  system: "",
  sidebar: true,
});

export const LIMITS = {
  temperature: { min: 0, max: 2, step: 0.05 },
  topP: { min: 0.05, max: 1, step: 0.05 },
  maxTokens: { min: 16, max: 4096, step: 16 },
  systemLength: 4000,
} as const;

/** Sampling used where neither the reader nor the model says anything. */
export const FALLBACK_SAMPLING = { temperature: 0.7, topP: 0.95, maxTokens: 256 } as const;

/** Spares the battery while nobody reads; what is written is still complete when the reader comes back after a while. */
export const HIDDEN_TOKENS_PER_SECOND = 10;

export interface Sampling {
  temperature: number;
  topP: number;
  maxTokens: number;
}

/** What is sampled with: the reader's choice, else the model's, else the page's. */
export function samplingOf(chosen: Pick<Settings, keyof Sampling>, model: Partial<Sampling>): Sampling {
  const of = (key: keyof Sampling): number => chosen[key] ?? model[key] ?? FALLBACK_SAMPLING[key];
  return { temperature: of("temperature"), topP: of("topP"), maxTokens: of("maxTokens") };
}

function clampOrNull(value: unknown, range: { min: number; max: number }): number | null {
  if (typeof value !== "number" || !Number.isFinite(value)) return null;
  return Math.min(range.max, Math.max(range.min, value));
}

/** Any value as valid settings; fields that make no sense fall back to the default. */
export function parseSettings(value: unknown): Settings {
  const raw = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
  const maxTokens = clampOrNull(raw["maxTokens"], LIMITS.maxTokens);
  return {
    ...parseShellSettings(value),
    temperature: clampOrNull(raw["temperature"], LIMITS.temperature),
    topP: clampOrNull(raw["topP"], LIMITS.topP),
    maxTokens: maxTokens === null ? null : Math.round(maxTokens),
    system: typeof raw["system"] === "string" ? raw["system"].slice(0, LIMITS.systemLength) : "",
    sidebar: typeof raw["sidebar"] === "boolean" ? raw["sidebar"] : DEFAULT_SETTINGS.sidebar,
  };
}
