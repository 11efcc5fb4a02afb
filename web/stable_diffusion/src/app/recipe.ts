/** What a picture was made with. */

export interface Recipe {
  prompt: string;
  negativePrompt: string;
  steps: number;
  guidance: number;
  seed: number;
  width: number;
  height: number;
  scheduler: string;
  /** "" where it is not known. */
  model: string;
  /** How far it went from a picture that it began from; null where it began from none. */
  strength: number | null;
}

const MAX_TEXT = 20_000;

function text(value: unknown): string {
  return typeof value === "string" ? value.slice(0, MAX_TEXT) : "";
}

function within(value: unknown, min: number, max: number, fallback: number): number {
  return typeof value === "number" && Number.isFinite(value) ? Math.min(max, Math.max(min, value)) : fallback;
}

/** Any value as a recipe; null if it is none. Figures that make no sense become 0 ("not known") or the nearest that does. */
export function parseRecipe(value: unknown): Recipe | null {
  if (typeof value !== "object" || value === null) return null;
  const raw = value as Record<string, unknown>;
  if (typeof raw["prompt"] !== "string") return null;
  const strength = raw["strength"];
  return {
    prompt: text(raw["prompt"]),
    negativePrompt: text(raw["negativePrompt"]),
    steps: Math.round(within(raw["steps"], 0, 100_000, 0)),
    guidance: within(raw["guidance"], 0, 100, 0),
    seed: Math.floor(within(raw["seed"], 0, Number.MAX_SAFE_INTEGER, 0)),
    width: Math.round(within(raw["width"], 0, 100_000, 0)),
    height: Math.round(within(raw["height"], 0, 100_000, 0)),
    scheduler: text(raw["scheduler"]).slice(0, 100),
    model: text(raw["model"]).slice(0, 200),
    strength: typeof strength === "number" && Number.isFinite(strength) ? within(strength, 0, 1, 0) : null,
  };
}
