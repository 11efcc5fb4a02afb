// @ts-check
/**
 * A pretended image model with the interface of the generated loader: paints a shape of the colours that the prompt names, and can
 * fail in every way the page must cope with. Besides what pretend.js knows, `?mock=` understands:
 *
 *   lost            the GPU device is lost in the middle of a picture; the runtime recovers by itself
 *   lost-hard       the first picture fails with "device-lost"
 *   full            the first picture fails for lack of memory
 *   parts           a part of the model is downloaded before each picture; it stands at 5 of 9 MB until `mock.continue()`
 *   hanging         steps never end
 *   plain           a model without guidance, of one size, that cannot begin from pictures
 *   large           pictures of 768 × 512 pixels
 */

import { asked, fail, mock, MODEL_BYTES, pause, pretendEvents, pretendLoading } from "./pretend.js";

/**
 * @typedef {import("tinyweb-shell").LoadOptions} LoadOptions
 * @typedef {import("tinyweb-shell").ModelInfo} ModelInfo
 * @typedef {import("../../src/model-api").ImageModel} ImageModel
 * @typedef {import("../../src/model-api").ImageModelInfo} ImageModelInfo
 * @typedef {import("../../src/model-api").GenerateOptions} GenerateOptions
 */

const plain = asked.has("plain");

export const info = {
  name: "tinysd",
  parameters: 12_345_678,
  quant: "f16",
  modelBytes: MODEL_BYTES,
  sizes: asked.has("large")
    ? [{ width: 768, height: 512 }]
    : [{ width: 128, height: 128 }, ...(plain ? [] : [{ width: 192, height: 128 }])],
  /** @type {import("../../src/model-api").SchedulerName[]} */
  schedulers: ["ddim", "euler", "euler-ancestral", "dpm++2m", "lcm"],
  /** @type {import("../../src/model-api").ImageDefaults} */
  defaults: { scheduler: "ddim", steps: 6, guidance: plain ? 1 : 5, strength: 0.75 },
  guidance: !plain,
  imageToImage: !plain,
  examples: ["a red circle", "a blue square on a yellow background", "a green circle on a white background"],
};

/** @type {Record<string, [number, number, number]>} */
const COLOURS = {
  red: [222, 48, 52],
  orange: [246, 140, 38],
  yellow: [250, 214, 52],
  green: [66, 170, 78],
  cyan: [66, 204, 214],
  blue: [52, 100, 224],
  purple: [140, 72, 198],
  pink: [250, 142, 188],
  white: [248, 248, 250],
  gray: [150, 152, 160],
  black: [38, 38, 46],
};

/** @param {string} prompt @param {number} seed @param {number} width @param {number} height @param {number} noise 0 … 1 */
function paint(prompt, seed, width, height, noise) {
  const named = prompt
    .toLowerCase()
    .split(/\W+/u)
    .filter((word) => word in COLOURS);
  const [front, back] = [COLOURS[named[0] ?? "gray"] ?? [0, 0, 0], COLOURS[named[1] ?? "white"] ?? [0, 0, 0]];
  const square = prompt.includes("square");
  const data = new Uint8ClampedArray(4 * width * height);
  let state = seed >>> 0;
  const size = Math.min(width, height) * (0.28 + (seed % 7) / 60);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      const [dx, dy] = [x + 0.5 - width / 2, y + 0.5 - height / 2];
      const inside = square ? Math.max(Math.abs(dx), Math.abs(dy)) < size : Math.hypot(dx, dy) < size;
      for (let c = 0; c < 3; c++) {
        const colour = (inside ? front : back)[c] ?? 0;
        data[4 * (y * width + x) + c] = colour * (1 - noise) + noise * ((state >>> (8 * c)) & 255);
      }
      data[4 * (y * width + x) + 3] = 255;
    }
  }
  return { data, width, height };
}

/** @param {LoadOptions} [options] @returns {Promise<ImageModel>} */
export async function load(options = {}) {
  /** @type {ImageModelInfo} */
  const figures = { ...(await pretendLoading(options)), ...info, model: info.name, maxTokens: 30, loaded: ["unet"], times: undefined };
  const { on, emit } = pretendEvents();
  let disposed = false;
  let pictures = 0;
  return {
    get info() {
      return figures;
    },
    on,
    async dispose() {
      disposed = true;
      mock.disposed++;
    },
    async generateRgba(prompt, options) {
      const given = options ?? {};
      const { onStep, onStage, onProgress, signal, image, ...rest } = given;
      mock.asked.push({ prompt, ...rest, ...(image === undefined ? {} : { image: /** @type {Blob} */ (image).size }) });
      const { width = 128, height = 128, steps = 6, seed = 0, guidance = 5, scheduler = "ddim" } = given;
      pictures++;
      onStage?.("text");
      await pause(60, signal);
      if (asked.has("parts")) {
        onStage?.("loading");
        onProgress?.({ phase: "weights", loadedBytes: 5_000_000, totalBytes: 9_000_000, fromCache: false, parts: ["unet"] });
        await new Promise((resolve) => (mock.continue = () => resolve(undefined)));
      }
      if (image !== undefined) {
        onStage?.("image");
        const bitmap = await createImageBitmap(/** @type {Blob} */ (image));
        bitmap.close();
      }
      onStage?.("steps");
      for (let step = 1; step <= steps; step++) {
        await pause(150, signal);
        if (disposed) throw fail("disposed", "This model was disposed.");
        if (asked.has("hanging") && step === 3)
          await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(fail("aborted", "Stopped."))));
        if (asked.has("full") && pictures === 1 && step === 2) throw fail("out-of-memory", "The GPU has not enough memory for this model.");
        if (asked.has("lost-hard") && mock.loads === 1 && step === 2) throw fail("device-lost", "The GPU device was lost: driver reset.");
        if (asked.has("lost") && step === 3) {
          emit("device-lost", { reason: "driver reset" });
          await pause(300, signal);
        }
        onStep?.({
          step,
          steps,
          preview: paint(prompt, seed, width / 4, height / 4, 1 - step / steps),
          secondsLeft: (steps - step) * 0.15,
        });
      }
      onStage?.("decoding");
      await pause(60, signal);
      figures.times = { text: 12, step: 150, decode: 60 };
      const cut = prompt.length > 200 ? prompt.slice(200) : "";
      return { ...paint(prompt, seed, width, height, 0), seed, steps, guidance, scheduler, cut };
    },
  };
}
