// @ts-check
/**
 * A pretended detector with the interface of the generated loader: sees the same things at the same places of every picture. Besides
 * what pretend.js knows, `?mock=` understands:
 *
 *   nothing     it finds nothing
 *   many        a model of eighty classes
 *   broken      the first look fails with "internal"
 */

import { asked, fail, mock, MODEL_BYTES, pause, pretendEvents, pretendLoading } from "./pretend.js";

/**
 * @typedef {import("tinyweb-shell").LoadOptions} LoadOptions
 * @typedef {import("../../src/model-api").DetectorModel} DetectorModel
 * @typedef {import("../../src/model-api").DetectorInfo} DetectorInfo
 */

export const info = {
  name: "tinyyolo",
  parameters: 3_019_732,
  modelBytes: MODEL_BYTES,
  labels: asked.has("many") ? Array.from({ length: 80 }, (_, i) => `kind ${i}`) : ["cat", "dog", "teapot", "umbrella"],
  defaults: { confidence: 0.25, iou: 0.5, agnostic: false },
};

/** Label, score, and a box as shares of the picture. */
const SEEN = /** @type {const} */ ([
  [0, 0.93, [0.1, 0.2, 0.4, 0.8]],
  [1, 0.81, [0.5, 0.1, 0.9, 0.6]],
  [1, 0.55, [0.55, 0.65, 0.7, 0.95]],
  [2, 0.31, [0.75, 0.7, 0.95, 0.9]],
]);

/** @param {LoadOptions} [options] @returns {Promise<DetectorModel>} */
export async function load(options = {}) {
  /** @type {DetectorInfo} */
  const figures = {
    ...(await pretendLoading(options)),
    model: info.name,
    modelBytes: info.modelBytes,
    width: 320,
    height: 320,
    kernels: 183,
    maxBoxes: 100,
    labels: info.labels,
    defaults: info.defaults,
  };
  const { on } = pretendEvents();
  let looks = 0;
  return {
    get info() {
      return figures;
    },
    on,
    async dispose() {
      mock.disposed++;
    },
    async detect(image, options) {
      const { confidence = info.defaults.confidence, iou, signal } = options ?? {};
      mock.asked.push({ confidence, iou });
      await pause(40, signal);
      if (asked.has("broken") && ++looks === 1) throw fail("internal", "The module stopped.");
      const times = { waitMs: 0, drawMs: 2, runMs: 40, totalMs: 42 };
      const seen = /** @type {Partial<HTMLVideoElement & HTMLImageElement>} */ (image);
      const [width, height] = [
        seen.videoWidth ?? seen.naturalWidth ?? seen.width ?? 0,
        seen.videoHeight ?? seen.naturalHeight ?? seen.height ?? 0,
      ];
      if (asked.has("nothing")) return Object.assign([], { times });
      const found = SEEN.filter(([, score]) => score > confidence).map(([index, score, box]) => ({
        label: /** @type {string} */ (info.labels[index]),
        index,
        score,
        box: /** @type {[number, number, number, number]} */ (box.map((share, i) => share * (i % 2 ? height : width))),
      }));
      return Object.assign(found, { times });
    },
  };
}
