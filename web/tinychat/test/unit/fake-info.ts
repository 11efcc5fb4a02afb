import type { ChatInfo } from "../../src/model-api";

/** Figures of a model made of promises. */
export const FAKE_INFO: ChatInfo = {
  model: "fake",
  backend: "webgpu",
  adapter: "a",
  memoryBytes: 1,
  modelBytes: 1,
  kernelsPerToken: 1,
  fallbacks: [],
  start: { manifestMs: 1, tokenizerMs: 1, weightsMs: 2, kernelsMs: 2, readyMs: 3 },
  context: 512,
  fullContext: 512,
  defaults: { temperature: 0, topP: 1, topK: 0, repetitionPenalty: 1, maxTokens: 256 },
};
