// @ts-check
/**
 * A pretended embedding model with the interface of the generated loader: a vector counts the topics that a text speaks of, so that
 * words that mean the same find each other. Besides what pretend.js knows, `?mock=` understands:
 *
 *   crawling        a passage takes 400 ms
 *   lost-hard       the first passages fail with "device-lost"
 *   full            the first passages fail for lack of memory
 *   pictures        it reads pictures, too: of what colour they are; one named "unreadable" it cannot read
 */

import { asked, fail, mock, MODEL_BYTES, pause, pretendEvents, pretendLoading } from "./pretend.js";

/**
 * @typedef {import("tinyweb-shell").LoadOptions} LoadOptions
 * @typedef {import("../../src/model-api").EmbedInfo} EmbedInfo
 * @typedef {import("../../src/model-api").SearchModel} SearchModel
 */

const TOPICS = [
  ["router", "internet", "connection", "connections", "unplug", "provider", "online"],
  ["leaves", "plants", "sunlight", "sugar", "food", "seedling", "light"],
  ["wasp", "insects", "sting", "ice", "doctor", "aid"],
  ["train", "rail", "trip", "overnight", "night", "rome", "vienna"],
  ["heating", "radiators", "fuel", "saving", "money", "heaters"],
  ["bread", "dough", "bake", "oven", "flour", "baker"],
  ["cat", "cats", "kidneys", "pet", "animal"],
  ["rental", "contract", "tenant", "flat", "lease"],
  ["bank", "card", "payments", "account"],
  ["bicycle", "chain", "oil", "bike"],
];

const COLOURS = [
  ["red", "rose"],
  ["green", "grass"],
  ["blue", "sea"],
];
const pictures = asked.has("pictures");
if (pictures) TOPICS.push(...COLOURS);

export const info = { name: "tinyembed", parameters: 8_765_432, quant: "q8", modelBytes: MODEL_BYTES, pictures };

/** @param {string} text */
function vectorOf(text) {
  const words = text.toLowerCase().match(/\p{L}+/gu) ?? [];
  const vector = new Float32Array(TOPICS.length + 6).fill(0.05);
  for (const word of words) {
    const topic = TOPICS.findIndex((topic) => topic.includes(word));
    if (topic >= 0) vector[topic] = (vector[topic] ?? 0) + 1;
    else vector[TOPICS.length + (word.length % 6)] = (vector[TOPICS.length + (word.length % 6)] ?? 0) + 0.03;
  }
  const length = Math.hypot(...vector);
  return vector.map((x) => x / length);
}

/** @param {Blob} picture */
async function vectorOfPicture(picture) {
  const bitmap = await createImageBitmap(picture);
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context?.drawImage(bitmap, 0, 0, 1, 1);
  const pixel = context?.getImageData(0, 0, 1, 1).data ?? [];
  const vector = new Float32Array(TOPICS.length + 6).fill(0.05);
  COLOURS.forEach((_, i) => (vector[TOPICS.length - 3 + i] = (pixel[i] ?? 0) / 255));
  const length = Math.hypot(...vector);
  return vector.map((x) => x / length);
}

/** @param {LoadOptions} [options] @returns {Promise<SearchModel>} */
export async function load(options = {}) {
  const figures = {
    ...(await pretendLoading(options)),
    model: info.name,
    dimensions: TOPICS.length + 6,
    maxLength: 128,
    runMs: 0,
    pictures: pictures ? { size: 224, batch: 4 } : null,
    logitScale: pictures ? 10 : 1,
    logitBias: 0,
    variables: {},
  };
  const { on } = pretendEvents();
  let disposed = false;
  let calls = 0;
  return {
    info: figures,
    on,
    async dispose() {
      disposed = true;
      mock.disposed++;
    },
    async embed(texts, options) {
      const { kind, signal } = options ?? {};
      mock.asked.push({ kind, texts: [...texts] });
      if (kind === "passage") calls++;
      if (asked.has("crawling") && kind === "passage") await new Promise((resolve) => setTimeout(resolve, 400 * texts.length));
      else await pause(30, signal);
      if (disposed) throw fail("disposed", "This model was disposed.");
      if (signal?.aborted) throw fail("aborted", "Stopped.");
      if (kind === "passage" && calls === 1 && mock.loads === 1) {
        if (asked.has("full")) throw fail("out-of-memory", "The GPU has not enough memory for this model.");
        if (asked.has("lost-hard")) throw fail("device-lost", "The GPU device was lost: driver reset.");
      }
      return texts.map(vectorOf);
    },
    async embedImages(images, options) {
      const { signal } = options ?? {};
      mock.asked.push({ kind: "picture", texts: images.map(() => "") });
      if (asked.has("crawling")) await new Promise((resolve) => setTimeout(resolve, 400 * images.length));
      if (disposed) throw fail("disposed", "This model was disposed.");
      if (signal?.aborted) throw fail("aborted", "Stopped.");
      if (images.some((image) => /** @type {{ name?: string }} */ (image).name?.startsWith("unreadable"))) {
        throw fail("bad-argument", "The picture cannot be searched: it has no pixels yet.");
      }
      return Promise.all(images.map((image) => vectorOfPicture(/** @type {Blob} */ (image))));
    },
    *passages(text) {
      let at = 0;
      for (const paragraph of text.split(/\n\n+/u)) {
        const start = text.indexOf(paragraph, at);
        at = start + paragraph.length;
        if (paragraph.trim() !== "") yield { start, end: at, text: paragraph };
      }
    },
  };
}
