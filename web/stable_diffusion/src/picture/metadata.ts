/**
 * The settings of a picture inside of its PNG file. Twice: under "tinyweb" as JSON, exact; under "parameters" in the lines that
 * other image generators write and read.
 */

import { parseRecipe, type Recipe } from "../app/recipe";
import { textsOf, withTexts } from "./png";

const OWN = "tinyweb";
const COMMON = "parameters";

/** Names of the samplers as other programs have them. */
const SAMPLERS: Record<string, string> = {
  ddim: "DDIM",
  euler: "Euler",
  "euler-ancestral": "Euler a",
  "dpm++2m": "DPM++ 2M",
  lcm: "LCM",
};

export function commonText(recipe: Recipe): string {
  const { prompt, negativePrompt, steps, guidance, seed, width, height, scheduler, model, strength } = recipe;
  const figures = [
    `Steps: ${steps}`,
    `Sampler: ${SAMPLERS[scheduler] ?? scheduler}`,
    `CFG scale: ${guidance}`,
    `Seed: ${seed}`,
    `Size: ${width}x${height}`,
    ...(model === "" ? [] : [`Model: ${model}`]),
    ...(strength === null ? [] : [`Denoising strength: ${strength}`]),
  ];
  return [prompt, ...(negativePrompt === "" ? [] : [`Negative prompt: ${negativePrompt}`]), figures.join(", ")].join("\n");
}

export function embedRecipe(png: Uint8Array<ArrayBuffer>, recipe: Recipe): Uint8Array<ArrayBuffer> {
  return withTexts(png, { [COMMON]: commonText(recipe), [OWN]: JSON.stringify(recipe), Software: "tinyweb" });
}

/** The settings in a file, as far as it has some: those of this page, or the common lines. */
export function readRecipe(bytes: Uint8Array): Recipe | null {
  const texts = textsOf(bytes);
  const own = texts[OWN];
  if (own !== undefined) {
    try {
      const recipe = parseRecipe(JSON.parse(own));
      if (recipe !== null) return recipe;
    } catch {
      // Not ours, or broken: the common lines may still be good.
    }
  }
  const common = texts[COMMON];
  return common === undefined ? null : parseCommon(common);
}

export function parseCommon(text: string): Recipe | null {
  const lines = text.split("\n");
  const at = lines.findLastIndex((line) => /^Steps: \d+/u.test(line));
  if (at < 0) return null;
  const figures = new Map(
    [...(lines[at] as string).matchAll(/([A-Z][\w /]*): ("[^"]*"|[^,]*)/gu)].map(([, key, value]) => [
      key as string,
      (value as string).trim(),
    ]),
  );
  const negative = lines.findIndex((line) => line.startsWith("Negative prompt: "));
  const head = lines.slice(0, negative < 0 || negative > at ? at : negative).join("\n");
  const tail = negative < 0 || negative > at ? "" : lines.slice(negative, at).join("\n").slice("Negative prompt: ".length);
  const number = (key: string): number | undefined => (figures.has(key) ? Number(figures.get(key)) : undefined);
  const [width, height] = (figures.get("Size") ?? "").split("x").map(Number);
  const sampler = figures.get("Sampler");
  return parseRecipe({
    prompt: head,
    negativePrompt: tail,
    steps: number("Steps"),
    guidance: number("CFG scale"),
    seed: number("Seed"),
    width,
    height,
    scheduler: Object.keys(SAMPLERS).find((name) => SAMPLERS[name] === sampler) ?? "",
    model: figures.get("Model") ?? "",
    strength: number("Denoising strength") ?? null,
  });
}
