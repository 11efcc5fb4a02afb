/** Sentence embeddings: `loadEmbedder(url)`, then `embed(texts)`; `splitText(text)` makes passages of long texts. */

export { Embedder, loadEmbedder, type EmbedderInfo, type EmbedOptions, type EmbedProgress } from "./embedder.js";
export type { Kind } from "./section.js";
export { passagesOf, splitText, type Passage, type SplitOptions } from "./split.js";
