/** Pictures as the pixels that a network reads: as Pillow scales them, and what embedImages() makes of them. */

import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { FunctionModel } from "../src/client.js";
import { Embedder } from "../src/embed/embedder.js";
import { squareOf } from "../src/embed/picture.js";
import { resample, type Scaling } from "../src/embed/resample.js";
import { parseSection } from "../src/embed/section.js";
import type { TextTokenizer } from "../src/embed/tokenizer.js";
import type { Arrays } from "../src/function.js";
import type { Pixels } from "../src/pixels.js";

interface Case extends Scaling {
  width: number;
  height: number;
  /** Of the result, base64. */
  bytes: string;
}

/** Written by tests/models/test_image_text.py, beside Pillow. */
const CASES = JSON.parse(readFileSync(new URL("fixtures/resampled.json", import.meta.url), "utf8")) as Case[];

/** The picture of a case: byte i is i · i · 31 + i · 7. */
function given(width: number, height: number, opacity?: number): Uint8ClampedArray {
  return Uint8ClampedArray.from({ length: 4 * width * height }, (_, i) =>
    opacity !== undefined && i % 4 === 3 ? opacity : (i * i * 31 + i * 7) % 256,
  );
}

afterEach(() => vi.unstubAllGlobals());

describe("a picture", () => {
  it.each(CASES)(
    "of $width × $height is scaled as Pillow does it: $size, $shortest, $filter",
    async ({ width, height, bytes, ...scaling }) => {
      const rest = vi.fn(() => Promise.resolve());
      const found = await resample(given(width, height), width, height, scaling, rest);
      expect(Buffer.from(found).toString("base64")).toBe(bytes);
    },
  );

  it("is scaled in slices", async () => {
    let now = 0;
    vi.spyOn(performance, "now").mockImplementation(() => (now += 5));
    const rest = vi.fn(() => Promise.resolve());
    await resample(given(20, 20), 20, 20, { size: 8, shortest: 10, filter: "bicubic" }, rest);
    expect(rest.mock.calls.length).toBeGreaterThan(5);
    vi.restoreAllMocks();
    expect((await resample(given(20, 20), 20, 20, { size: 8, shortest: null, filter: "bicubic" })).length).toBe(192);
  });

  it("has white behind what is transparent", async () => {
    const scaling: Scaling = { size: 4, shortest: null, filter: "bicubic" };
    const clear = { data: given(6, 5, 0), width: 6, height: 5 };
    expect(await squareOf(clear, scaling)).toEqual(new Uint8Array(48).fill(255));
  });

  it("that is none is refused", async () => {
    const scaling: Scaling = { size: 4, shortest: 4, filter: "bicubic" };
    const refused = (why: string): object => ({ code: "bad-argument", message: expect.stringContaining(why) as string });
    const of = (picture: unknown): Promise<unknown> => squareOf(picture as never, scaling);
    await expect(of(null)).rejects.toMatchObject(refused("null is no picture"));
    await expect(of("a.png")).rejects.toMatchObject(refused("string is no picture"));
    await expect(of({})).rejects.toMatchObject(refused("of an unknown kind"));
    await expect(of({ width: 0, height: 3 })).rejects.toMatchObject(refused("it has no pixels yet"));
    await expect(of({ width: 3, height: 3 })).rejects.toMatchObject(refused("there is no canvas"));
    await expect(of({ data: new Uint8Array(3), width: 1, height: 1 })).rejects.toMatchObject(refused("3 bytes, 1 × 1 pixels have 4"));
    await expect(of({ data: new Uint8Array(4), width: 1, height: 0.5 })).rejects.toMatchObject(refused("cannot have 1 × 0.5"));
    await expect(of({ data: new Uint8Array(4 * 20_000), width: 20_000, height: 1 })).rejects.toMatchObject(
      refused("too long for its width"),
    );
    vi.stubGlobal("createImageBitmap", () => Promise.reject(new Error("no image")));
    await expect(of(new Blob(["text"]))).rejects.toMatchObject(refused("the browser cannot read it (no image)"));
  });

  it("is drawn on a canvas, and freed", async () => {
    const close = vi.fn();
    vi.stubGlobal("createImageBitmap", () => Promise.resolve({ width: 10_000, height: 5000, close }));
    const drawn: number[][] = [];
    class Canvas {
      constructor(
        readonly width: number,
        readonly height: number,
      ) {}
      getContext(): object {
        const getImageData = (): Pixels => ({ data: given(4, 4, 255), width: 4, height: 4 });
        return { fillRect: vi.fn(), drawImage: (_: unknown, ...place: number[]) => drawn.push(place), getImageData };
      }
    }
    vi.stubGlobal("OffscreenCanvas", Canvas);
    await squareOf(new Blob([]), { size: 4, shortest: null, filter: "bilinear" });
    const [, , width, height] = drawn[0] as number[];
    expect([width, height]).toEqual([5793, 2896]); // 2^24 pixels
    expect(close).toHaveBeenCalledOnce();
  });
});

const SECTION = {
  dimensions: 2,
  max_length: 8,
  normalized: true,
  lowercase: false,
  prefixes: { query: "", passage: "" },
  functions: [{ name: "t", batch: 1, length: 8 }],
  fill: 0,
  logit_scale: 4.5,
  logit_bias: -1,
  pictures: {
    size: 2,
    shortest: null,
    filter: "bilinear",
    functions: [
      { name: "p4", batch: 4 },
      { name: "p1", batch: 1 },
    ],
  },
};

describe("embedImages", () => {
  const calls: string[] = [];
  const run = (inputs: Arrays, options: { function: string }): Promise<Arrays> => {
    calls.push(options.function);
    const pixels = inputs["pixels"] as Uint8Array;
    const output = new Float32Array((2 * pixels.length) / 12);
    for (let i = 0; i < output.length / 2; i++) output.set([pixels[12 * i] as number, 1], 2 * i);
    return Promise.resolve({ output });
  };
  const embedder = (change: object = {}): Embedder => {
    const model = { run, info: { model: "m", functions: {}, sections: {} } } as unknown as FunctionModel;
    return new Embedder(model, {} as TextTokenizer, parseSection({ embed: { ...SECTION, ...change } }));
  };
  const grey = (value: number): Pixels => ({ data: Uint8Array.of(value, value, value, 255), width: 1, height: 1 });

  it("gives a vector for each picture, some at a time", async () => {
    calls.length = 0;
    const progress: unknown[] = [];
    const seen: number[] = [];
    const found = await embedder().embedImages([1, 2, 3, 4, 5].map(grey), {
      onProgress: ({ done, total }) => progress.push([done, total]),
      onVector: (i) => seen.push(i),
    });
    expect(calls).toEqual(["p4", "p1"]);
    expect(found.map(([x, y]) => Math.round((x as number) / (y as number)))).toEqual([1, 2, 3, 4, 5]);
    expect(progress).toEqual([
      [4, 5],
      [5, 5],
    ]);
    expect(seen).toEqual([0, 1, 2, 3, 4]);
    expect(await embedder().embedImages([])).toEqual([]);
  });

  it("says what the model reads", () => {
    expect(embedder().info).toMatchObject({ pictures: { size: 2, batch: 4 }, logitScale: 4.5, logitBias: -1 });
    expect(embedder({ pictures: null, fill: null, logit_scale: undefined }).info).toMatchObject({ pictures: null, logitScale: 1 });
  });

  it("refuses what it cannot do", async () => {
    const refused = (message: string): object => ({ code: "bad-argument", message: expect.stringContaining(message) as string });
    await expect(embedder({ pictures: undefined }).embedImages([grey(1)])).rejects.toMatchObject(refused("m reads texts only"));
    await expect(embedder().embedImages(grey(1) as never)).rejects.toMatchObject(refused("an array of pictures"));
    const stop = AbortSignal.abort();
    await expect(embedder().embedImages([grey(1)], { signal: stop })).rejects.toMatchObject({ code: "aborted" });
  });

  it.each<[object, string]>([
    [{ pictures: { ...SECTION.pictures, size: 0 } }, "pictures.size: 0 is outside 1 … 4096"],
    [{ pictures: { ...SECTION.pictures, shortest: 1 } }, "pictures.shortest: 1 is outside 2 … 4096"],
    [{ pictures: { ...SECTION.pictures, filter: "box" } }, "pictures.filter: must be one of bilinear, bicubic, lanczos"],
    [{ pictures: { ...SECTION.pictures, functions: [] } }, "pictures.functions: there is none"],
    [{ fill: -1 }, "fill: -1 is outside 0 … 16777216"],
    [{ logit_scale: "much" }, "logit_scale: must be a number"],
  ])("has no section with %j", (change, words) => {
    expect(() => embedder(change)).toThrow(expect.objectContaining({ code: "bad-manifest", message: `manifest.json: embed.${words}` }));
  });
});
