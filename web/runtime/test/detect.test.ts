import { describe, expect, it } from "vitest";
import { Detector } from "../src/detect/detector.js";
import { Fitter, placeOf } from "../src/detect/picture.js";
import { parseSection } from "../src/detect/section.js";
import type { FunctionInfo } from "../src/function.js";

const INPUT = { width: 64, height: 32 };

/** Pixels of one colour, or of what `colour` says. */
function pixels(width: number, height: number, colour: (x: number, y: number) => number[] = () => [10, 20, 30]) {
  const data = new Uint8ClampedArray(width * height * 4);
  for (let i = 0; i < width * height; i++) data.set([...colour(i % width, Math.floor(i / width)), 255], i * 4);
  return { data, width, height };
}

describe("fitting a picture", () => {
  it("keeps proportions, in the middle", () => {
    expect(placeOf(640, 480, { width: 320, height: 320 })).toEqual([0, 40, 320, 240]);
    expect(placeOf(100, 400, INPUT)).toEqual([28, 0, 8, 32]);
    expect(placeOf(5000, 1, INPUT)).toEqual([0, 15, 64, 1]);
  });

  it("scales pixels: a flat picture stays flat, a ramp a ramp, many become their mean", async () => {
    const fitter = new Fitter(INPUT);
    const flat = await fitter.fit(pixels(50, 100));
    expect(flat.place).toEqual([24, 0, 16, 32]);
    const image = flat.image as Uint8Array;
    const at = (x: number, y: number): number[] => [...image.subarray((y * 64 + x) * 4, (y * 64 + x) * 4 + 4)];
    expect(at(24, 0)).toEqual([10, 20, 30, 255]);
    expect(at(39, 31)).toEqual([10, 20, 30, 255]);
    expect(at(23, 0)).toEqual([0, 0, 0, 0]);
    const ramp = (await fitter.fit(pixels(128, 64, (x, y) => [x, y, 0]))).image as Uint8Array;
    expect(
      [...ramp.subarray((10 * 64 + 20) * 4, (10 * 64 + 20) * 4 + 2)].map((v) => Math.abs(v - 40.5) <= 1 || Math.abs(v - 20.5) <= 1),
    ).toEqual([true, true]);
    const checks = (await fitter.fit(pixels(640, 320, (x, y) => [255 * ((x + y) % 2), 0, 0]))).image as Uint8Array;
    expect(Math.abs((checks[(16 * 64 + 32) * 4] as number) - 127.5)).toBeLessThan(3);
  });

  it("sees what is transparent in front of white", async () => {
    const picture = pixels(64, 32);
    picture.data.fill(0, 0, 64 * 16 * 4); // the upper half is not there
    for (let i = 64 * 16; i < 64 * 32; i++) picture.data[4 * i + 3] = 51; // a fifth
    const image = (await new Fitter(INPUT).fit(picture)).image as Uint8Array;
    expect([...image.subarray(0, 4)]).toEqual([255, 255, 255, 255]);
    expect([...image.subarray(64 * 31 * 4, 64 * 31 * 4 + 4)]).toEqual([206, 208, 210, 255]);
    expect(picture.data[0]).toBe(0); // the caller's is left alone
  });

  it("refuses what is no picture", async () => {
    const fitter = new Fitter(INPUT);
    await expect(fitter.fit({ data: new Uint8Array(7), width: 2, height: 2 })).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining("it has 7 bytes"),
    });
    await expect(fitter.fit({} as never)).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining("of an unknown kind"),
    });
    await expect(fitter.fit(undefined as never)).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining("undefined is no picture; give an ImageBitmap"),
    });
    await expect(fitter.fit(null as never)).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining("null is no picture"),
    });
    await expect(fitter.fit("cat.png" as never)).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining("string is no picture"),
    });
    await expect(fitter.fit(new Blob())).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining("{ data, width, height }"),
    });
    await expect(fitter.fit({ data: new Uint8Array(40), width: 2.5, height: 4 })).rejects.toMatchObject({
      code: "bad-argument",
      message: expect.stringContaining("2.5 × 4"),
    });
  });
});

/** A model that finds what it is told, and says what it was given. */
function pretend(change: Record<string, unknown> = {}) {
  const calls: { inputs: Record<string, Float32Array>; options: unknown }[] = [];
  let flying = 0;
  let most = 0;
  let lose = (): void => undefined;
  const array = (name: string, shape: number[]) => ({ name, dtype: "f32", shape });
  const model = {
    info: {
      model: "pretend",
      backend: "wasm",
      adapter: "",
      memoryBytes: 1,
      modelBytes: 1,
      start: {},
      fallbacks: [],
      functions: {
        look: {
          kernels: 9,
          inputs: [array("image", [32, 64, 4]), array("frame", [4]), array("source", [2]), array("settings", [3])],
          outputs: [array("boxes", [7, 4]), array("scores", [7]), array("classes", [7]), array("count", [1])],
        },
      },
      sections: { detect: { entry: "look", labels: ["cat", "dog"], defaults: { confidence: 0.25, iou: 0.5, agnostic: false }, ...change } },
    },
    run(inputs: never, options: unknown) {
      return Object.assign(this.answer(inputs, options), { result: Promise.resolve({ runMs: 5 }) });
    },
    async answer(inputs: never, options: unknown) {
      most = Math.max(most, ++flying);
      calls.push({ inputs, options });
      await new Promise((resolve) => setTimeout(resolve, 5));
      flying--;
      return {
        boxes: Float32Array.from({ length: 28 }, (_, i) => i),
        scores: Float32Array.of(0.75, 0.5, 0, 0, 0, 0, 0),
        classes: Int32Array.of(1, 0, 0, 0, 0, 0, 0),
        count: Int32Array.of(2),
      };
    },
    on: (name: string, listener: () => void) => {
      if (name === "device-lost") lose = listener;
      return () => undefined;
    },
    dispose: async () => undefined,
  };
  return { detector: () => new Detector(model as never), calls, most: () => most, lose: () => lose() };
}

describe("a detector", () => {
  it("gives labels, scores and boxes", async () => {
    const { detector, calls } = pretend();
    const made = detector();
    expect([...(await made.detect(pixels(100, 50), { confidence: 0.5 }))]).toEqual([
      { label: "dog", index: 1, score: 0.75, box: [0, 1, 2, 3] },
      { label: "cat", index: 0, score: 0.5, box: [4, 5, 6, 7] },
    ]);
    const { inputs, options } = calls[0]!;
    expect(options).toMatchObject({ function: "look" });
    expect(inputs["frame"]).toEqual(Float32Array.of(0, 0, 64, 32));
    expect(inputs["source"]).toEqual(Float32Array.of(100, 50));
    expect(inputs["settings"]).toEqual(Float32Array.of(0.5, 0.5, 0));
    expect(made.info).toMatchObject({ width: 64, height: 32, maxBoxes: 7, labels: ["cat", "dog"], kernels: 9 });
    expect("times" in made.info).toBe(false);
  });

  it("has one picture on its way at most, and forgets those that are no longer wanted", async () => {
    const { detector, calls, most } = pretend();
    const made = detector();
    const stop = new AbortController();
    const all = [made.detect(pixels(4, 4)), made.detect(pixels(4, 4), { signal: stop.signal }), made.detect(pixels(4, 4))];
    stop.abort();
    await expect(all[1]).rejects.toMatchObject({ code: "aborted" });
    await Promise.all([all[0], all[2]]);
    expect(calls).toHaveLength(2);
    expect(most()).toBe(1);
  });

  it("looks again where the GPU was lost under a look, and with it perhaps the picture", async () => {
    const { detector, calls, lose } = pretend();
    const made = detector();
    const look = made.detect(pixels(4, 4));
    while (calls.length === 0) await Promise.resolve();
    lose();
    expect(await look).toHaveLength(2);
    expect(calls).toHaveLength(2);
    lose();
    expect(await made.detect(pixels(4, 4))).toHaveLength(2); // of a GPU that was lost before nothing was drawn
    expect(calls).toHaveLength(3);
  });

  it("takes settings where they are given, and knows labels by their number where they have no name", async () => {
    const { detector, calls } = pretend({ labels: ["cat"], defaults: { confidence: 0, iou: 1, agnostic: true } });
    const made = detector();
    expect((await made.detect(pixels(4, 4))).map(({ label }) => label)).toEqual(["1", "cat"]);
    await made.detect(pixels(4, 4), { confidence: 1, iou: 0, agnostic: false });
    expect(calls.map(({ inputs }) => [...inputs["settings"]!])).toEqual([
      [0, 1, 1],
      [1, 0, 0],
    ]);
    expect(made.info.defaults).toEqual({ confidence: 0, iou: 1, agnostic: true });
    await expect(made.detect(pixels(4, 4), { agnostic: "yes" as never })).rejects.toThrow('agnostic must be true or false, not "yes".');
    await expect(made.detect(pixels(4, 4), 5 as never)).rejects.toThrow(
      "The options of detect() must be an object, such as { signal }, not 5.",
    );
  });

  it("tells how long the parts of each call took", async () => {
    const made = pretend().detector();
    const [first, second] = await Promise.all([made.detect(pixels(4, 4)), made.detect(pixels(4, 4))]);
    const { waitMs, drawMs, runMs, totalMs } = second.times;
    expect(runMs).toBe(5);
    expect(waitMs).toBeGreaterThan(first.times.waitMs); // for the first call
    expect(drawMs).toBeGreaterThanOrEqual(0);
    expect(totalMs).toBeGreaterThanOrEqual(waitMs + drawMs);
    const clock = performance.now();
    for (const time of [waitMs, drawMs, totalMs]) expect(time).toBeLessThanOrEqual(clock);
    expect(drawMs).toBeLessThan(totalMs);
  });

  const info = (change: object = {}, section: object | undefined = {}): FunctionInfo =>
    ({
      model: "m",
      functions: {
        look: {
          kernels: 1,
          inputs: [
            ["image", [32, 64, 4]],
            ["frame", [4]],
            ["source", [2]],
            ["settings", [3]],
          ],
          outputs: [
            ["boxes", [7, 4]],
            ["scores", [7]],
            ["classes", [7]],
            ["count", [1]],
          ],
        },
      },
      sections: {
        detect: section && { entry: "look", labels: ["cat", "dog"], defaults: { confidence: 0.25, iou: 0.5, agnostic: true }, ...section },
      },
      ...change,
    }) as never as FunctionInfo;
  /** Arrays of a function by their names and shapes. */
  const read = (of: FunctionInfo): unknown => {
    for (const plan of Object.values(of.functions)) {
      for (const key of ["inputs", "outputs"] as const)
        plan[key] = (plan[key] as never as [string, number[]][]).map(([name, shape]) => ({ name, dtype: "f32", shape }));
    }
    return parseSection(of);
  };

  it("is what its section says, checked against the function", () => {
    expect(read(info())).toEqual({
      entry: "look",
      width: 64,
      height: 32,
      maxBoxes: 7,
      labels: ["cat", "dog"],
      defaults: { confidence: 0.25, iou: 0.5, agnostic: true },
    });
    for (const agnostic of [false, undefined, 1, "true"]) {
      expect(read(info({}, { defaults: { confidence: 0, iou: 1, agnostic } }))).toMatchObject({
        defaults: { confidence: 0, iou: 1, agnostic: false },
      });
    }
    expect(Object.isFrozen((read(info()) as { labels: unknown }).labels)).toBe(true);
  });

  it.each<[string, () => FunctionInfo, string, string]>([
    ["no section", () => info({ sections: {} }), "bad-argument", "The bundle m is no detector: load it with load() of tinyweb/load."],
    ["no entry", () => info({}, { entry: undefined }), "bad-manifest", "manifest.json: detect.entry names no function."],
    ["a label that is no text", () => info({}, { labels: ["a", 5] }), "bad-manifest", "manifest.json: detect.labels is no list of names."],
    ["no labels", () => info({}, { labels: [] }), "bad-manifest", "manifest.json: detect.labels is no list of names."],
    ["a text for the labels", () => info({}, { labels: "cat" }), "bad-manifest", "manifest.json: detect.labels is no list of names."],
    [
      "no defaults",
      () => info({}, { defaults: null }),
      "bad-manifest",
      "manifest.json: detect.defaults.confidence is no number from 0 to 1.",
    ],
    [
      "a share above one",
      () => info({}, { defaults: { confidence: 0.5, iou: 1.1 } }),
      "bad-manifest",
      "manifest.json: detect.defaults.iou is no number from 0 to 1.",
    ],
    [
      "a share below zero",
      () => info({}, { defaults: { confidence: -0.1, iou: 1 } }),
      "bad-manifest",
      "manifest.json: detect.defaults.confidence is no number from 0 to 1.",
    ],
    [
      "a share that is a text",
      () => info({}, { defaults: { confidence: "0.5", iou: 1 } }),
      "bad-manifest",
      "manifest.json: detect.defaults.confidence is no number from 0 to 1.",
    ],
    ...["image", "frame", "source", "settings", "boxes", "scores", "classes", "count"].map(
      (name): [string, () => FunctionInfo, string, string] => [
        `a function without ${name}`,
        () => {
          const of = info();
          const plan = of.functions["look"]!;
          for (const key of ["inputs", "outputs"] as const)
            plan[key] = plan[key].filter((array) => (array as never as [string])[0] !== name);
          return of;
        },
        "bad-manifest",
        `manifest.json: detect.entry: the function has no "${name}".`,
      ],
    ),
  ])("is refused with %s", (_name, of, code, message) => {
    expect(() => read(of())).toThrow(expect.objectContaining({ code, message }));
  });

  it("refuses settings that cannot be, and bundles that are no detectors", async () => {
    await expect(pretend().detector().detect(pixels(4, 4), { iou: 2 })).rejects.toMatchObject({
      code: "bad-argument",
      message: "iou must be a number in 0 … 1, not 2.",
    });
    await expect(pretend().detector().detect(pixels(4, 4), { confidence: NaN })).rejects.toMatchObject({
      code: "bad-argument",
      message: "confidence must be a number in 0 … 1, not NaN.",
    });
    expect(() => pretend({ entry: "other" }).detector()).toThrow("manifest.json: detect.entry names no function.");
    expect(() => pretend({ labels: [] }).detector()).toThrow("manifest.json: detect.labels is no list of names.");
    expect(() => pretend({ defaults: { confidence: 3 } }).detector()).toThrow("defaults.confidence is no number from 0 to 1");
  });
});
