/**
 * Sentence embeddings: `loadEmbedder(url)`, then `embed(texts)`, and of models that read them `embedImages(pictures)`;
 * `splitText(text)` makes passages of long texts.
 */

export { Embedder, loadEmbedder, type EmbedderInfo, type EmbedOptions, type EmbedProgress } from "./embedder.js";
export type { Picture, Pixels } from "../pixels.js";
export type { Kind } from "./section.js";
export { passagesOf, splitText, type Passage, type SplitOptions } from "./split.js";
