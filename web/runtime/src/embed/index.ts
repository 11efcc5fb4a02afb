/** Sentence embeddings. */

export {};
