/** `embeddings.create` over an embedding model in this page. */

import { optionsOf } from "../arguments.js";
import { checkFields, checkModel, checkOnly, refuse } from "./request.js";

/** What is needed of an embedding model. */
export interface EmbeddingModel {
  readonly info: { readonly model: string };
  embed(texts: readonly string[], options?: { signal?: AbortSignal }): Promise<Float32Array[]>;
  /** Tokens of a text, special ones included. */
  countTokens(text: string): number;
}

export interface EmbeddingRequest {
  input: string | readonly string[];
  model?: string | null;
  /** "base64": the bytes of little-endian f32 numbers. */
  encoding_format?: "float" | "base64" | null;
  user?: string | null;
}

export interface EmbeddingResponse {
  object: "list";
  data: { object: "embedding"; index: number; embedding: number[] | string }[];
  model: string;
  /** Tokens of all texts, special ones included, before long texts are cut. */
  usage: { prompt_tokens: number; total_tokens: number };
}

export class Embeddings {
  constructor(private readonly embedder: EmbeddingModel) {}

  /** One vector of length 1 per text. @throws TinywebError "bad-argument" naming a parameter that is not known | … */
  async create(request: EmbeddingRequest, given?: { signal?: AbortSignal } | null): Promise<EmbeddingResponse> {
    const options = optionsOf(given, "create()", ["signal"]);
    checkFields(request, new Set(["input", "model", "encoding_format", "user"]));
    const { model } = this.embedder.info;
    checkModel(request.model, model);
    const format = request.encoding_format ?? "float";
    if (format !== "base64") checkOnly(request, { encoding_format: "float" });
    const texts = typeof request.input === "string" ? [request.input] : request.input;
    if (!Array.isArray(texts) || texts.length === 0 || !texts.every((text) => typeof text === "string")) {
      refuse("input", "must be a text or a list of texts that is not empty.");
    }
    const vectors = await this.embedder.embed(texts, options);
    const data = vectors.map((vector, index) => ({
      object: "embedding" as const,
      index,
      embedding: format === "float" ? [...vector] : base64(vector),
    }));
    const tokens = texts.reduce((sum, text) => sum + this.embedder.countTokens(text), 0);
    return { object: "list", data, model, usage: { prompt_tokens: tokens, total_tokens: tokens } };
  }
}

function base64(vector: Float32Array): string {
  const view = new DataView(new ArrayBuffer(4 * vector.length));
  vector.forEach((value, i) => view.setFloat32(4 * i, value, true));
  return btoa(Array.from(new Uint8Array(view.buffer), (byte) => String.fromCharCode(byte)).join(""));
}
