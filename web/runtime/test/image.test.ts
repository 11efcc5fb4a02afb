import { expect, test, vi } from "vitest";
import { TinywebError } from "../src/errors.js";
import { parseImageManifest } from "../src/image/manifest.js";
import { Blend, cut, tilesOf } from "../src/image/tiles.js";
import { normals } from "../src/image/noise.js";
import { previewOf } from "../src/image/pixels.js";
import type { PartsProgress } from "../src/image/parts.js";
import type { Stage, StepProgress } from "../src/image/options.js";
import { MANIFEST, Pretended } from "./image-parts.js";

test("a picture of the same seed and settings is the same, of another seed is not", async () => {
  const generator = await new Pretended().open();
  const one = await generator.generateRgba("a b", { seed: 7 });
  expect([one.width, one.height, one.data.length, one.seed, one.steps, one.guidance, one.scheduler]).toEqual([
    16,
    16,
    1024,
    7,
    4,
    5,
    "ddim",
  ]);
  expect((await generator.generateRgba("a b", { seed: 7 })).data).toEqual(one.data);
  expect((await generator.generateRgba("a b", { seed: 8 })).data).not.toEqual(one.data);
  expect((await generator.generateRgba("a b", { seed: 7, scheduler: "euler-ancestral" })).data).not.toEqual(one.data);
});

test("noise may be given", async () => {
  const generator = await new Pretended().open();
  const one = await generator.generateRgba("a b", { seed: 7 });
  expect((await generator.generateRgba("a b", { seed: 8, latents: normals(7, 0, 64) })).data).toEqual(one.data);
  await expect(generator.generateRgba("a", { latents: new Float32Array(3) })).rejects.toThrowError(/64 numbers/);
});

test("parts are loaded once, states are sent once for a picture, and a known prompt needs no text encoder", async () => {
  const model = new Pretended();
  const generator = await model.open();
  expect(model.log.sort()).toEqual(["+text_encoder", "+unet", "+vae_decoder"]);
  await generator.generateRgba("a b", { seed: 1 });
  await generator.generateRgba("a b", { seed: 2 });
  expect(model.log.length).toBe(3);
  const of = (part: string): string[] =>
    model.calls.filter((call) => call.part === part).map((call) => `${call.function} ${call.inputs.sort().join()}`);
  expect(of("text_encoder")).toEqual(["encode ids", "encode ids"]); // the prompt, and the empty negative prompt
  const first = "unet_2_16x16 guidance,latents,states,timestep";
  const later = "unet_2_16x16 guidance,latents,timestep";
  expect(of("unet")).toEqual([first, later, later, later, first, later, later, later]);
});

test("without guidance the model is asked once for each step", async () => {
  const model = new Pretended();
  const generator = await model.open();
  await generator.generateRgba("a", { guidance: 1, steps: 2 });
  expect(model.calls.map((call) => call.function)).toEqual(["encode", "unet_1_16x16", "unet_1_16x16", "decode_16x16"]);
});

test("parts make room for one another where memory is short", async () => {
  const model = new Pretended();
  const generator = await model.open({ memoryBudgetBytes: 450 });
  expect(model.log).toEqual(["+text_encoder"]); // with the UNet it would be 500
  await generator.generateRgba("a", { steps: 1 });
  expect(model.log).toEqual(["+text_encoder", "-text_encoder", "+unet", "-unet", "+vae_decoder"]);
  await generator.generateRgba("a", { steps: 1, seed: 3 }); // the prompt is known
  expect(model.log.slice(5)).toEqual(["-vae_decoder", "+unet", "-unet", "+vae_decoder"]);
  await generator.dispose();
  expect(model.loaded.size).toBe(0);
});

test("less memory than thought: a part is tried again alone", async () => {
  const model = new Pretended();
  const generator = await model.open({ memoryBudgetBytes: 700 });
  model.loading = (part) => {
    if (part === "vae_encoder" && model.loaded.size > 0) throw new TinywebError("out-of-memory", "full");
  };
  const image = { data: new Uint8ClampedArray(1024).fill(200), width: 16, height: 16 };
  await generator.generateRgba("a", { steps: 2, image });
  expect(model.log.slice(3, 8)).toEqual(["-text_encoder", "-vae_decoder", "-unet", "+vae_encoder", "+unet"]);
});

test("steps are reported with previews, and every stage is told", async () => {
  const model = new Pretended();
  const progress: PartsProgress[] = [];
  const generator = await model.open({ onProgress: (p) => progress.push(p) });
  expect(progress.at(-1)).toMatchObject({ phase: "ready", loadedBytes: 70, totalBytes: 70, fromCache: false });
  const steps: StepProgress[] = [];
  const stages: Stage[] = [];
  await generator.generateRgba("a", { onStep: (p) => steps.push(p), onStage: (s) => stages.push(s) });
  expect(steps.map((p) => [p.step, p.steps, p.preview?.width, p.preview?.data.length])).toEqual([1, 2, 3, 4].map((n) => [n, 4, 4, 64]));
  expect(steps.every((p) => (p.secondsLeft as number) >= 0)).toBe(true);
  expect(stages).toEqual(["loading", "text", "loading", "text", "loading", "steps", "loading", "decoding"]);
  expect(generator.info.times?.step).toBeGreaterThanOrEqual(0);
});

test("a signal stops between steps, and the next picture is whole", async () => {
  const model = new Pretended();
  const generator = await model.open();
  const whole = await generator.generateRgba("a", { seed: 1 });
  const abort = new AbortController();
  const stopped = generator.generateRgba("a", { seed: 1, signal: abort.signal, onStep: ({ step }) => step === 2 && abort.abort() });
  await expect(stopped).rejects.toMatchObject({ code: "aborted" });
  expect((await generator.generateRgba("a", { seed: 1 })).data).toEqual(whole.data);
});

test("a device that is lost in the middle gets the states once more", async () => {
  const model = new Pretended();
  const generator = await model.open();
  const whole = await generator.generateRgba("a", { seed: 1 });
  let failures = 0;
  model.before = (call) => {
    if (call.part === "unet" && !call.inputs.includes("states") && failures++ === 0) throw new TinywebError("device-lost", "gone");
  };
  expect((await generator.generateRgba("a", { seed: 1 })).data).toEqual(whole.data);
  expect(failures).toBeGreaterThan(1);
  model.before = (call) => {
    if (call.part === "unet") throw new TinywebError("device-lost", "gone");
  };
  await expect(generator.generateRgba("a", { seed: 1 })).rejects.toMatchObject({ code: "device-lost" });
});

test("from a picture: fewer steps", async () => {
  const model = new Pretended();
  const generator = await model.open();
  const data = new Uint8ClampedArray(1024).map((_, i) => (i % 4 === 3 ? 255 : 128 + 40));
  const image = { data, width: 16, height: 16 };
  const steps: number[] = [];
  await generator.generateRgba("a", { image, strength: 0.5, onStep: ({ steps: all }) => steps.push(all) });
  expect(steps).toEqual([2, 2]);
  expect(model.calls.filter(({ part }) => part === "vae_encoder").length).toBe(1);
  // Hardly changed, it stays about as bright (the pretended encoder gives x / 127.5 - 1, the decoder 128 + 40 x).
  const { data: kept } = await generator.generateRgba("a", { image, strength: 0.02, steps: 50, scheduler: "euler" });
  const mean = kept.filter((_, i) => i % 4 === 0).reduce((sum, value) => sum + value, 0) / 256;
  expect(Math.abs(mean - (128 + 40 * (168 / 127.5 - 1)))).toBeLessThan(4);
  await expect(generator.generateRgba("a", { image: { data, width: 4, height: 4 } })).rejects.toMatchObject({ code: "bad-argument" });
});

test("bigger pictures are decoded in tiles", async () => {
  const model = new Pretended();
  const generator = await model.open();
  const { width, height, data } = await generator.generateRgba("a", { width: 32, seed: 3 });
  expect([width, height, data.length]).toEqual([32, 16, 2048]);
  expect(model.calls.filter((call) => call.part === "vae_decoder").length).toBe(3);
});

test("long prompts are cut, and it is told", async () => {
  const generator = await new Pretended().open();
  expect((await generator.generateRgba("a b a b")).cut).toBe("");
  expect((await generator.generateRgba("a b a b a b ab b")).cut).toBe("ab b");
});

test.each([
  ["steps", { steps: 0 }],
  ["steps", { steps: 1.5 }],
  ["guidance", { guidance: -1 }],
  ["seed", { seed: -1 }],
  ["scheduler", { scheduler: "magic" as "ddim" }],
  ["pictures of", { width: 20 }],
  ["strength", { strength: 2 }],
])("a wrong %s is told", async (words, options) => {
  const generator = await new Pretended().open();
  await expect(generator.generateRgba("a", options)).rejects.toThrowError(new RegExp(words));
});

test("numbers beyond the type are an error, not a black picture", async () => {
  const model = new Pretended();
  const generator = await model.open();
  model.offset = Infinity;
  await expect(generator.generateRgba("a")).rejects.toMatchObject({ code: "gpu-error" });
});

test("after dispose nothing is made", async () => {
  const generator = await new Pretended().open();
  await generator.dispose();
  await expect(generator.generateRgba("a")).rejects.toMatchObject({ code: "disposed" });
});

test("a failed part is named and stops the others", async () => {
  const model = new Pretended();
  model.loading = (part) => {
    if (part === "unet") throw new TinywebError("download-failed", "No network.");
  };
  await expect(model.open()).rejects.toThrowError(/No network\. .*unet/);
  expect(model.loaded.size).toBe(0);
});

test("manifests are checked", () => {
  expect(parseImageManifest(MANIFEST).sizes.length).toBe(2);
  const broken =
    (change: (m: typeof MANIFEST) => void): (() => unknown) =>
    () => {
      const m = structuredClone(MANIFEST);
      change(m);
      return parseImageManifest(m);
    };
  expect(broken((m) => (m.task = "chat"))).toThrowError(/not for pictures but chat: load it with load\(\)/);
  expect(broken((m) => (m.parts.unet = "../unet/"))).toThrowError(/parts\.unet/);
  expect(broken((m) => (m.image.sizes = []))).toThrowError(/sizes/);
  expect(broken((m) => (m.image.sizes[1].tiles.columns = [0, 4.5]))).toThrowError(/columns/);
  expect(broken((m) => (m.image.sizes[1].tiles.columns = [0]))).toThrowError(/cover/);
  expect(broken((m) => (m.image.preview.matrix = [[1, 2]]))).toThrowError(/preview/);
  expect(broken((m) => (m.image.scheduler.beta_schedule = "sine"))).toThrowError(/beta_schedule/);
});

test("tiles: what is cut and blended again is the same", () => {
  const tiles = { decode: "d", encode: "e", width: 6, height: 5, columns: [0, 3, 6], rows: [0, 4] };
  const layout = { width: 12, height: 9, planes: 2, depth: 3 };
  const source = Float32Array.from({ length: 12 * 9 * 2 * 3 }, (_, i) => Math.sin(i));
  const blend = new Blend(layout);
  for (const tile of tilesOf(tiles, 1)) blend.add(cut(source, layout, tile), tile);
  blend.result().forEach((value, i) => expect(value).toBeCloseTo(source[i] as number, 5));
});

test("previews", () => {
  const { data } = previewOf(Float32Array.of(0, 10, 0, -10), 1, 1, {
    matrix: [
      [1, 0, 0],
      [0, 1, 0],
      [0, 0, 1],
      [0, 0, 1],
    ],
    bias: [0.5, 0, 1],
  });
  expect([...data]).toEqual([128, 255, 0, 255]);
});

test("a first visit brings all parts into storage, also those that do not fit together; a later one loads what fits", async () => {
  const storage = new Map<string, string>();
  vi.stubGlobal("navigator", {});
  vi.stubGlobal("document", { addEventListener: () => undefined, removeEventListener: () => undefined });
  const kept = {
    getItem: (key: string) => storage.get(key) ?? null,
    setItem: (key: string, value: string) => storage.set(key, value),
    removeItem: (key: string) => storage.delete(key),
  };
  for (const name of ["localStorage", "sessionStorage"]) vi.stubGlobal(name, kept);
  vi.stubGlobal("addEventListener", () => undefined);
  vi.stubGlobal("removeEventListener", () => undefined);
  try {
    const first = new Pretended();
    await first.open({ memoryBudgetBytes: 450 });
    expect(first.log).toEqual(["+text_encoder", "-text_encoder", "+unet", "-unet", "+vae_decoder"]);
    const second = new Pretended();
    const generator = await second.open({ memoryBudgetBytes: 450 });
    expect(second.log).toEqual(["+text_encoder"]);
    expect(generator.previousLoadInterrupted).toBeUndefined();
    // The page was ended in the middle of a picture: then one part at a time is kept, whatever memory there seems to be.
    let left = "";
    second.before = () => (left = storage.get("tinyweb-loading:http://x/model/") ?? "");
    await generator.generateRgba("a", { steps: 1 });
    expect(storage.has("tinyweb-loading:http://x/model/")).toBe(false);
    storage.set("tinyweb-loading:http://x/model/", left);
    const third = new Pretended();
    const careful = await third.open();
    expect(careful.previousLoadInterrupted?.times).toBe(1);
    await careful.generateRgba("a", { steps: 1 });
    expect(third.log).toEqual(["+text_encoder", "-text_encoder", "+unet", "-unet", "+vae_decoder"]);
    // So it is where that is asked for.
    const fourth = new Pretended();
    await (await fourth.open({ oneAtATime: true })).generateRgba("a", { steps: 1 });
    expect(fourth.log).toEqual(third.log);
    // A reader who is asked first: nothing is loaded, and the marker is gone.
    storage.set("tinyweb-loading:http://x/model/", left);
    const fifth = new Pretended();
    const ask = (): never => {
      throw new Error("asked");
    };
    await expect(fifth.open({ onInterrupted: ask })).rejects.toThrow("asked");
    expect(fifth.log).toEqual([]);
    expect(storage.has("tinyweb-loading:http://x/model/")).toBe(false);
  } finally {
    vi.unstubAllGlobals();
  }
});
