import { afterEach, describe, expect, test, vi } from "vitest";
import { asImageData, pixelsOf, previewOf, type ImageInput } from "../src/image/pixels.js";

afterEach(() => vi.unstubAllGlobals());

const rgba = (width: number, height: number, value = 0): { data: Uint8ClampedArray<ArrayBuffer>; width: number; height: number } => ({
  data: new Uint8ClampedArray(4 * width * height).map((_, i) => (i % 4 === 3 ? 255 : value)),
  width,
  height,
});

describe("a preview", () => {
  test("mixes the channels of each pixel, and stays within bytes", () => {
    const latents = Float32Array.of(0, 1, -1, 0.5, 2, 0, 1, 1, -2, 0, 0, 4); // two channels of 2 × 3
    const { data, width, height } = previewOf(latents, 3, 2, {
      matrix: [
        [0.25, 0, 1],
        [0, 0.125, -0.5],
      ],
      bias: [0.5, 0.25, 0],
    });
    expect([width, height, data.length]).toEqual([3, 2, 24]);
    const expected = Array.from({ length: 6 }, (_, i) => {
      const [a, b] = [latents[i] as number, latents[6 + i] as number];
      return [255 * (0.5 + 0.25 * a), 255 * (0.25 + 0.125 * b), 255 * (a - 0.5 * b), 255];
    }).flat();
    expect(data).toEqual(Uint8ClampedArray.from(expected));
  });

  test("is the browser's own type where there is one", () => {
    class ImageData {
      constructor(
        readonly data: unknown,
        readonly width: number,
        readonly height: number,
      ) {}
    }
    const { data } = rgba(2, 1);
    expect(asImageData({ data, width: 2, height: 1 })).toEqual({ data, width: 2, height: 1 });
    vi.stubGlobal("ImageData", ImageData);
    expect(asImageData({ data, width: 2, height: 1 })).toEqual(new ImageData(data, 2, 1));
    expect(asImageData({ data, width: 2, height: 1 })).toBeInstanceOf(ImageData);
  });
});

describe("a picture to begin from, without a canvas", () => {
  test("is taken in its size, on white", async () => {
    const data = Uint8ClampedArray.of(10, 20, 30, 255, 10, 20, 30, 0, 100, 0, 200, 51);
    const result = await pixelsOf({ data, width: 3, height: 1 }, 3, 1);
    expect(result).toEqual({ data: Uint8ClampedArray.of(10, 20, 30, 255, 255, 255, 255, 255, 224, 204, 244, 255), width: 3, height: 1 });
    expect([...data.slice(4, 8)]).toEqual([10, 20, 30, 0]); // the caller's is left alone
  });

  test.each<[string, unknown, string]>([
    ["too few bytes", { data: new Uint8ClampedArray(7), width: 2, height: 3 }, "it has 7 bytes, 2 × 3 pixels have 24"],
    ["another width", rgba(3, 3), "without a canvas it must be RGBA of 2 × 3 pixels"],
    ["another height", rgba(2, 2), "without a canvas it must be RGBA of 2 × 3 pixels"],
    ["other numbers", { data: new Float32Array(24), width: 2, height: 3 }, "without a canvas it must be RGBA of 2 × 3 pixels"],
    ["a name", "cat.png", "cat.png is none; give an ImageBitmap, an image, video or canvas element, an ImageData or a Blob"],
    ["null", { valueOf: null }, "without a canvas it must be RGBA of 2 × 3 pixels"],
    ["a number", 5, "5 is none; give an ImageBitmap, an image, video or canvas element, an ImageData or a Blob"],
  ])("is refused: %s", async (_name, image, words) => {
    await expect(pixelsOf(image as ImageInput, 2, 3)).rejects.toMatchObject({
      code: "bad-argument",
      message: `The picture to begin from cannot be used: ${words}.`,
    });
  });
});

describe("a picture to begin from, with a canvas", () => {
  /** What was drawn: each call by its name. */
  let drawn: unknown[][];
  let closed: number;
  function stub({
    context = true,
    size = [8, 4] as [number, number],
    fail,
  }: {
    context?: boolean;
    size?: [number, number];
    fail?: Error;
  } = {}): unknown[] {
    drawn = [];
    closed = 0;
    const sources: unknown[] = [];
    class OffscreenCanvas {
      constructor(...size: number[]) {
        drawn.push(["canvas", ...size]);
      }
      getContext(...how: unknown[]): object | null {
        drawn.push(["context", ...how]);
        const record = {
          fillRect: (...at: unknown[]) => drawn.push(["fill", record.fillStyle, ...at]),
          fillStyle: "",
          imageSmoothingQuality: "",
          drawImage: (_image: unknown, ...at: unknown[]) => drawn.push(["draw", record.imageSmoothingQuality, ...at]),
          getImageData: (...at: unknown[]) => ({ at }),
        };
        return context ? record : null;
      }
    }
    vi.stubGlobal("OffscreenCanvas", OffscreenCanvas);
    vi.stubGlobal(
      "ImageData",
      class {
        constructor(
          readonly data: unknown,
          readonly width: number,
        ) {}
      },
    );
    vi.stubGlobal("createImageBitmap", async (source: unknown) => {
      sources.push(source);
      if (fail) throw fail;
      return { width: size[0], height: size[1], close: () => (closed += 1) };
    });
    return sources;
  }

  test.each<[[number, number], [number, number], number[]]>([
    [
      [8, 4],
      [4, 4],
      [-2, 0, 8, 4],
    ],
    [
      [4, 8],
      [4, 4],
      [0, -2, 4, 8],
    ],
    [
      [2, 2],
      [4, 6],
      [-1, 0, 6, 6],
    ],
    [
      [100, 50],
      [10, 5],
      [0, 0, 10, 5],
    ],
  ])("of %j covers %j, cut evenly, on white", async (size, [width, height], place) => {
    const sources = stub({ size });
    const blob = new Blob();
    expect(await pixelsOf(blob, width, height)).toEqual({ at: [0, 0, width, height] });
    expect(sources).toEqual([blob]);
    expect(drawn).toEqual([
      ["canvas", width, height],
      ["context", "2d", { willReadFrequently: true }],
      ["fill", "#fff", 0, 0, width, height],
      ["draw", "high", ...place],
    ]);
    expect(closed).toBe(1);
  });

  test("may be pixels of another size, and an element that is still on its way", async () => {
    const sources = stub();
    const pixels = rgba(8, 4, 7);
    await pixelsOf(pixels, 2, 2);
    expect(sources[0]).toEqual({ data: pixels.data, width: 8 });
    expect(sources[0]).toBeInstanceOf(ImageData);
    const own = new ImageData(pixels.data, 8);
    await pixelsOf(own, 2, 2);
    expect(sources[1]).toBe(own);
    const decode = vi.fn(async () => undefined);
    const element = { decode } as unknown as HTMLImageElement;
    await pixelsOf(element, 2, 2);
    expect(sources[2]).toBe(element);
    expect(decode).toHaveBeenCalledOnce();
  });

  test("is refused in the browser's words, and let go of", async () => {
    const words = (why: string): object => ({ code: "bad-argument", message: `The picture to begin from cannot be used: ${why}.` });
    const fail = new Error("no picture");
    stub({ fail });
    await expect(pixelsOf(new Blob(), 2, 2)).rejects.toMatchObject({ ...words("no picture"), cause: fail });
    stub({ context: false });
    await expect(pixelsOf(new Blob(), 2, 2)).rejects.toMatchObject(words("this browser gave no canvas"));
    expect(closed).toBe(1);
    for (const none of [null, undefined]) {
      await expect(pixelsOf(none as never, 2, 2)).rejects.toMatchObject({
        code: "bad-argument",
        message: expect.stringMatching(/cannot be used: (null|undefined) is none;/),
      });
    }
  });
});
