/**
 * Conversations: `ChatSession`, which keeps its messages, and `OpenAI`, which takes a loaded model's place behind the requests and
 * answers of OpenAI's client, so that code written for that client runs in a page.
 */

import { badArgument } from "../arguments.js";
import { ChatCompletions } from "./completions.js";
import { Embeddings, type EmbeddingModel } from "./embeddings.js";
import { Images, type ImageModel } from "./images.js";
import type { ChatModel } from "./session.js";

export type {
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletions,
  ChatStream,
  FinishReason,
  RequestOptions,
  Usage,
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

/** What makes a model one of its kind. */
const METHODS = { chat: "generate", embed: "embed", image: "textToImage" } as const;

function needed<Name extends keyof Models>(models: Models, name: Name): NonNullable<Models[Name]> {
  const model = models[name];
  if (typeof (model as Record<string, unknown> | undefined)?.[METHODS[name]] === "function") return model as NonNullable<Models[Name]>;
  throw badArgument(`No ${name} model is there: new OpenAI({ ${name}: await load(…) }).`);
}

/** The shape of OpenAI's client over models in this page: no key, no server, nothing leaves the device. */
export class OpenAI {
  constructor(private readonly models: Models) {
    if (typeof models !== "object" || models === null) {
      throw badArgument("OpenAI takes loaded models: new OpenAI({ chat: await loadChat(…) }).");
    }
  }

  get chat(): { completions: ChatCompletions } {
    return { completions: new ChatCompletions(needed(this.models, "chat")) };
  }

  get embeddings(): Embeddings {
    return new Embeddings(needed(this.models, "embed"));
  }

  get images(): Images {
    return new Images(needed(this.models, "image"));
  }
}
