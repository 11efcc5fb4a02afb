import { describe, expect, test, vi } from "vitest";
import { completeJob, imageOptions, type Job, type TextToImageOptions } from "../src/image/options.js";
import { parseImageManifest } from "../src/image/manifest.js";
import { MANIFEST } from "./image-parts.js";

/** Pictures of 16 × 16 and 32 × 16 pixels, four pixels to a latent, of four channels. */
const manifest = parseImageManifest(MANIFEST);
const plain = parseImageManifest({
  ...structuredClone(MANIFEST),
  image: { ...structuredClone(MANIFEST.image), guidance: false, functions: { text_encoder: "encode", unet_1: "unet_1_{width}x{height}" } },
});
const job = (options: TextToImageOptions = {}, of = manifest): Job => completeJob("a", options, of);
const said = (options: object, of = manifest, prompt: unknown = "a"): string => {
  try {
    completeJob(prompt, options, of);
  } catch (error) {
    expect(error).toMatchObject({ code: "bad-argument" });
    return (error as Error).message;
  }
  return "";
};

describe("a picture that is asked for", () => {
  test("is completed with the model's defaults", () => {
    expect(job({ seed: 7 })).toEqual({
      prompt: "a",
      negativePrompt: "",
      steps: 4,
      guidance: 5,
      seed: 7,
      latents: undefined,
      size: manifest.sizes[0],
      scheduler: "ddim",
      image: undefined,
      strength: 0.5,
    });
    const seeds = Array.from({ length: 8 }, () => job().seed);
    expect(new Set(seeds).size).toBeGreaterThan(1);
    for (const seed of seeds) expect(Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32).toBe(true);
  });

  test("is what the options say", () => {
    const image = { data: new Uint8ClampedArray(4), width: 1, height: 1 };
    const options = {
      negativePrompt: "b",
      steps: 9,
      guidance: 2,
      seed: 0,
      latents: new Float32Array(128),
      width: 32,
      height: 16,
      scheduler: "lcm",
      image,
      strength: 1,
    } as const;
    expect(job(options)).toEqual({ prompt: "a", ...options, size: manifest.sizes[1], width: undefined, height: undefined });
  });

  test("has one of the model's sizes, of which one side may be enough", () => {
    expect(job({ width: 32 }).size).toBe(manifest.sizes[1]);
    expect(job({ height: 16 }).size).toBe(manifest.sizes[0]);
    const known = "This model was exported for pictures of 16 × 16, 32 × 16, not";
    expect(said({ width: 20 })).toBe(`${known} 20 × any.`);
    expect(said({ height: 32 })).toBe(`${known} any × 32.`);
    expect(said({ width: 16, height: 32 })).toBe(`${known} 16 × 32.`);
  });

  test("may be given its noise", () => {
    expect(job({ latents: new Float32Array(64) }).latents).toHaveLength(64);
    for (const wrong of [new Float32Array(63), new Array(64).fill(0), new Float64Array(64)]) {
      expect(said({ latents: wrong })).toBe("latents must be a Float32Array of 64 numbers (4 × 4 × 4).");
    }
    expect(said({ latents: new Float32Array(64), width: 32 })).toBe("latents must be a Float32Array of 128 numbers (4 × 4 × 8).");
  });

  test("has guidance where the model knows it", () => {
    expect(job({ guidance: 0 }).guidance).toBe(0);
    expect(job({ guidance: 100 }).guidance).toBe(100);
    expect(job({}, plain)).toMatchObject({ guidance: 1, steps: 4, strength: 0.5 });
    expect(job({ guidance: 1 }, plain).guidance).toBe(1);
    expect(job({ guidance: 0.5 }, plain).guidance).toBe(0.5);
    expect(said({ guidance: 1.5 }, plain)).toBe("This model is made to be used without guidance: leave it out.");
  });

  test.each<[object, string]>([
    [{ steps: 0 }, "steps must be an integer in 1 … 1000, not 0."],
    [{ steps: 1001 }, "steps must be an integer in 1 … 1000, not 1001."],
    [{ steps: 1.5 }, "steps must be an integer in 1 … 1000, not 1.5."],
    [{ guidance: -0.1 }, "guidance must be a number in 0 … 100, not -0.1."],
    [{ guidance: 101 }, "guidance must be a number in 0 … 100, not 101."],
    [{ strength: 1.01 }, "strength must be a number in 0 … 1, not 1.01."],
    [{ strength: -1 }, "strength must be a number in 0 … 1, not -1."],
    [{ seed: 2 ** 53 }, `seed must be an integer in 0 … ${2 ** 53 - 1}, not ${2 ** 53}.`],
    [{ seed: 0.5 }, `seed must be an integer in 0 … ${2 ** 53 - 1}, not 0.5.`],
    [{ scheduler: "magic" }, 'scheduler must be one of ddim, euler, euler-ancestral, dpm++2m, lcm, not "magic".'],
    [{ negativePrompt: 5 }, "negativePrompt must be a text, not 5."],
  ])("refuses %j", (options, words) => {
    expect(said(options)).toBe(words);
  });

  test("needs a prompt", () => {
    expect(said({}, manifest, null)).toBe("The prompt must be a text, not null.");
    expect(job({ steps: 1000, strength: 0.25, guidance: 2.5 })).toMatchObject({ steps: 1000, strength: 0.25, guidance: 2.5 });
  });

  test("takes the options it knows", () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
    const options = {
      negativePrompt: "a",
      steps: 1,
      guidance: 1,
      seed: 1,
      latents: new Float32Array(1),
      width: 1,
      height: 1,
      scheduler: "lcm" as const,
      image: new Blob(),
      strength: 1,
      onStep: () => undefined,
      onStage: () => undefined,
      onProgress: () => undefined,
      signal: new AbortController().signal,
    };
    expect(imageOptions(options)).toEqual(options);
    expect(imageOptions(null)).toEqual({});
    expect(warn).not.toHaveBeenCalled();
    expect(imageOptions({ size: 5 } as never)).toEqual({});
    expect(warn.mock.calls).toEqual([[`tinyweb: textToImage() ignores the option "size"; it knows ${Object.keys(options).join(", ")}.`]]);
    warn.mockRestore();
  });
});
