/** Pictures in the size that a network sees: on a canvas, and by arithmetic where there is none. */

import { afterEach, describe, expect, it, vi } from "vitest";
import { Fitter, placeOf, type Picture } from "../src/detect/picture.js";

afterEach(() => vi.unstubAllGlobals());

const KINDS = "give an ImageBitmap, an image, video or canvas element, an OffscreenCanvas, VideoFrame, ImageData or Blob";
const PIXELS = "give RGBA pixels, { data, width, height }";
const refused = (why: string): object => ({ code: "bad-argument", message: `The picture cannot be searched: ${why}.` });

describe("without a canvas", () => {
  let state = 5;
  const random = (): number => (state = (state * 48271) % 2147483647) % 256;
  const noise = (width: number, height: number): Uint8ClampedArray =>
    Uint8ClampedArray.from({ length: 4 * width * height }, (_, i) => (i % 4 === 3 ? 255 : random()));

  /** By definition: linear between lines where they grow, the mean of a triangle over those that become one where they shrink. */
  function shrink(from: (i: number) => number, have: number, count: number, i: number): number {
    const ratio = have / count;
    const reach = Math.max(1, ratio);
    let [sum, total] = [0, 0];
    for (let line = 0; line < have; line++) {
      const weight = Math.max(0, 1 - Math.abs(line + 0.5 - (i + 0.5) * ratio) / reach);
      sum += weight * from(line);
      total += weight;
    }
    return sum / total;
  }

  it.each([
    [5, 7, 20, 20],
    [20, 9, 6, 6],
    [8, 8, 8, 8],
    [3, 10, 30, 4],
    [16, 4, 5, 9],
    [1, 1, 3, 2],
    [2, 40, 7, 7],
  ])("%i × %i in %i × %i", async (width, height, w, h) => {
    const data = noise(width, height);
    const fitted = await new Fitter({ width: w, height: h }).fit({ data, width, height });
    expect([fitted.place, fitted.size]).toEqual([placeOf(width, height, { width: w, height: h }), [width, height]]);
    const [left, top, across, down] = fitted.place;
    const image = fitted.image as Uint8Array;
    expect(image).toHaveLength(4 * w * h);
    for (let y = 0; y < h; y++) {
      for (let x = 0; x < w; x++) {
        const inside = x >= left && x < left + across && y >= top && y < top + down;
        for (let c = 0; c < 4; c++) {
          const row =
            (line: number) =>
            (column: number): number =>
              data[4 * (line * width + column) + c] as number;
          const value = inside ? shrink((line) => shrink(row(line), width, across, x - left), height, down, y - top) : 0;
          expect(Math.abs((image[4 * (y * w + x) + c] as number) - value), `${x} ${y} ${c}`).toBeLessThanOrEqual(0.51);
        }
      }
    }
  });

  it.each([1, 2, 6])("what is transparent at pixel %i is seen on white", async (count) => {
    const data = new Uint8ClampedArray(4 * count).fill(255);
    data.set([100, 0, 50, 102], 4 * (count - 1));
    const { image } = await new Fitter({ width: count, height: 1 }).fit({ data, width: count, height: 1 });
    expect([...(image as Uint8Array)].slice(-4)).toEqual([193, 153, 173, 255]);
    expect([...(image as Uint8Array)].slice(0, -4).every((value) => value === 255)).toBe(true);
    expect(data.at(-4)).toBe(100); // the caller's is left alone
  });

  it.each<[string, unknown, string]>([
    ["too few bytes", { data: new Uint8Array(7), width: 2, height: 3 }, "it has 7 bytes, 2 × 3 pixels have 24"],
    ["no width", { data: new Uint8Array(0), width: 0, height: 3 }, "it cannot have 0 × 3 pixels"],
    ["a negative height", { data: new Uint8Array(0), width: 2, height: -3 }, "it cannot have 2 × -3 pixels"],
    ["half a pixel", { data: new Uint8Array(40), width: 2.5, height: 4 }, "it cannot have 2.5 × 4 pixels"],
    ["null", null, `null is no picture; ${KINDS}`],
    ["nothing", undefined, `undefined is no picture; ${KINDS}`],
    ["a name", "cat.png", `string is no picture; ${KINDS}`],
    ["a file", new Blob(), `nothing here reads image files; ${PIXELS}`],
    ["an object", {}, `it is of an unknown kind; ${KINDS}`],
    ["a picture without height", { width: 5 }, `it is of an unknown kind; ${KINDS}`],
    ["a picture without width", { height: 5 }, `it is of an unknown kind; ${KINDS}`],
    ["a bitmap", { width: 5, height: 5 }, `there is no canvas to draw it on; ${PIXELS}`],
  ])("is refused: %s", async (_name, picture, why) => {
    await expect(new Fitter({ width: 4, height: 4 }).fit(picture as Picture)).rejects.toMatchObject(refused(why));
  });
});

describe("on a canvas", () => {
  let drawn: unknown[][] = [];
  let lost = false;
  let context: unknown = null;
  class OffscreenCanvas {
    constructor(
      readonly width: number,
      readonly height: number,
    ) {}
    getContext(...how: unknown[]): unknown {
      drawn.push(["canvas", this.width, this.height, ...how]);
      return context;
    }
    transferToImageBitmap(): string {
      return "bitmap";
    }
  }
  function stub(give = true): void {
    [drawn, lost] = [[], false];
    const made = {
      fillStyle: "",
      imageSmoothingQuality: "",
      canvas: new OffscreenCanvas(0, 0),
      isContextLost: () => lost,
      fillRect: (...at: number[]) => drawn.push(["fill", made.fillStyle, ...at]),
      drawImage: (picture: { broken?: Error }, ...at: number[]) => {
        if (picture.broken) throw picture.broken;
        drawn.push(["draw", made.imageSmoothingQuality, picture, ...at]);
      },
    };
    context = give ? made : null;
    vi.stubGlobal("OffscreenCanvas", OffscreenCanvas);
  }
  const fit = (picture: object, fitter = new Fitter({ width: 8, height: 8 })): ReturnType<Fitter["fit"]> => fitter.fit(picture as Picture);

  it.each<[string, object]>([
    ["a bitmap", { width: 16, height: 8 }],
    ["an image, not as it is shown", { naturalWidth: 16, naturalHeight: 8, width: 5, height: 5 }],
    ["a video", { videoWidth: 16, videoHeight: 8, width: 5, height: 5 }],
    ["a frame of a video", { displayWidth: 16, displayHeight: 8, width: 5, height: 5 }],
  ])("%s lies in the middle, on white, by its own size", async (_name, picture) => {
    stub();
    expect(await fit(picture)).toEqual({ image: "bitmap", place: [0, 2, 8, 4], size: [16, 8] });
    expect(drawn).toEqual([
      ["canvas", 8, 8, "2d", { alpha: false }],
      ["fill", "#fff", 0, 2, 8, 4],
      ["draw", "medium", picture, 0, 2, 8, 4],
    ]);
  });

  it("takes another canvas only where the GPU has lost the one it had", async () => {
    stub();
    const fitter = new Fitter({ width: 8, height: 8 });
    const canvases = async (): Promise<number> => (
      await fit({ width: 8, height: 8 }, fitter), drawn.filter(([what]) => what === "canvas").length
    );
    expect([await canvases(), await canvases()]).toEqual([1, 1]);
    lost = true;
    expect(await canvases()).toBe(2);
    lost = false;
    delete (context as { isContextLost?: unknown }).isContextLost; // older browsers do not say
    expect(await canvases()).toBe(2);
  });

  it("waits for an element, and reads files", async () => {
    stub();
    const decode = vi.fn(async () => undefined);
    await fit({ decode, naturalWidth: 4, naturalHeight: 4 });
    expect(decode).toHaveBeenCalledOnce();
    const close = vi.fn();
    const bitmap = { width: 4, height: 4, close };
    const read = vi.fn(async () => bitmap);
    vi.stubGlobal("createImageBitmap", read);
    const file = new Blob();
    expect((await fit(file)).size).toEqual([4, 4]);
    expect([read.mock.calls, drawn.at(-1)?.[2]]).toEqual([[[file]], bitmap]);
    expect(close).toHaveBeenCalledOnce();
    context = null;
    await expect(fit(file)).rejects.toMatchObject({ code: "bad-argument" });
    expect(close).toHaveBeenCalledTimes(2);
  });

  it("says what cannot be drawn, and why", async () => {
    stub();
    const cause = new Error("no image");
    const decode = (): Promise<void> => Promise.reject(cause);
    await expect(fit({ decode, naturalWidth: 4, naturalHeight: 4 })).rejects.toMatchObject({
      ...refused("the browser cannot read it (no image)"),
      cause,
    });
    await expect(fit({ broken: cause, width: 4, height: 4 })).rejects.toMatchObject({ ...refused("no image"), cause });
    for (const size of [
      { width: 0, height: 4 },
      { width: 4, height: 0 },
      { videoWidth: 0, videoHeight: 0, width: 5, height: 5 },
    ]) {
      await expect(fit(size)).rejects.toMatchObject(refused("it has no pixels yet"));
    }
    stub(false);
    await expect(fit({ width: 4, height: 4 })).rejects.toMatchObject(refused(`there is no canvas to draw it on; ${PIXELS}`));
  });
});
