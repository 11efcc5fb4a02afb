/**
 * Conversations: `ChatSession`, which keeps its messages, and `OpenAI`, which takes a loaded model's place behind the requests and
 * answers of OpenAI's client, so that code written for that client runs in a page.
 */

import { TinywebError } from "../errors.js";
import { ChatCompletions } from "./completions.js";
import { Embeddings, type EmbeddingModel } from "./embeddings.js";
import { Images, type ImageModel } from "./images.js";
import type { ChatModel } from "./session.js";

export type {
  ChatCompletion, ChatCompletionChunk, ChatCompletions, ChatStream, FinishReason, RequestOptions, Usage,
} from "./completions.js";
export type { EmbeddingModel, EmbeddingRequest, EmbeddingResponse, Embeddings } from "./embeddings.js";
export type { ImageModel, ImageRequest, ImageResponse, Images } from "./images.js";
export type { ChatRequest, RequestMessage, TextPart } from "./request.js";
export { ChatSession, type ChatModel, type ContextUse, type SessionOptions } from "./session.js";

/** Loaded models, by what they are for; those that are absent are errors when they are asked for. */
export interface Models {
  chat?: ChatModel;
  embed?: EmbeddingModel;
  image?: ImageModel;
}

const needed = <Model>(model: Model | undefined, name: keyof Models): Model => {
  if (model) return model;
  throw new TinywebError("bad-argument", `No ${name} model is there: new OpenAI({ ${name}: await load(…) }).`);
};

/** The shape of OpenAI's client over models in this page: no key, no server, nothing leaves the device. */
export class OpenAI {
  constructor(private readonly models: Models) {
    if (typeof models !== "object" || models === null) {
      throw new TinywebError("bad-argument", "OpenAI takes loaded models: new OpenAI({ chat: await loadChat(…) }).");
    }
  }

  get chat(): { completions: ChatCompletions } {
    return { completions: new ChatCompletions(needed(this.models.chat, "chat")) };
  }

  get embeddings(): Embeddings {
    return new Embeddings(needed(this.models.embed, "embed"));
  }

  get images(): Images {
    return new Images(needed(this.models.image, "image"));
  }
}
