/** `images.generate` over an image model in this page. */

import { badArgument, optionsOf } from "../arguments.js";
import { checkFields, checkModel, checkOnly, number, refuse } from "./request.js";

/** What is needed of an image model. */
export interface ImageModel {
  readonly info: { readonly model: string };
  textToImage(prompt: string, options?: { width?: number; height?: number; seed?: number; signal?: AbortSignal }): Promise<ImageBitmap>;
}

export interface ImageRequest {
  prompt: string;
  model?: string | null;
  n?: 1 | null;
  /** "WIDTHxHEIGHT" in pixels; the model's own by default. */
  size?: `${number}x${number}` | "auto" | null;
  /** "url": an object URL, alive until it is revoked or the page goes. */
  response_format?: "b64_json" | "url" | null;
  output_format?: "png" | null;
  /** Not OpenAI's: the same seed gives the same picture. */
  seed?: number | null;
  user?: string | null;
}

export interface ImageResponse {
  /** Seconds since 1970. */
  created: number;
  data: [{ b64_json?: string; url?: string }];
}

const FIELDS = new Set(["prompt", "model", "n", "size", "response_format", "output_format", "seed", "user"]);

export class Images {
  constructor(private readonly generator: ImageModel) {}

  /** One picture as a PNG. @throws TinywebError "bad-argument" naming a parameter that is not known | "aborted" | … */
  async generate(request: ImageRequest, options?: { signal?: AbortSignal } | null): Promise<ImageResponse> {
    const { signal } = optionsOf(options, "generate()", ["signal"]);
    checkFields(request, FIELDS);
    checkModel(request.model, this.generator.info.model);
    checkOnly(request, { n: 1, output_format: "png" });
    if (typeof request.prompt !== "string") refuse("prompt", "must be a text.");
    const format = request.response_format ?? "b64_json";
    if (format !== "url") checkOnly(request, { response_format: "b64_json" });
    const size = request.size ?? "auto";
    const [, width, height] = /^(\d+)x(\d+)$/.exec(size) ?? [];
    if (size !== "auto" && !width) refuse("size", `must be WIDTHxHEIGHT, such as 512x512, not ${JSON.stringify(size)}.`);
    const seed = number(request, "seed", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, true);
    const picture = await this.generator.textToImage(request.prompt, {
      ...(width ? { width: Number(width), height: Number(height) } : {}),
      ...(seed === undefined ? {} : { seed }),
      ...(signal ? { signal } : {}),
    });
    const png = await encode(picture);
    const created = Math.floor(Date.now() / 1000);
    return { created, data: [format === "url" ? { url: URL.createObjectURL(png) } : { b64_json: await base64(png) }] };
  }
}

async function encode(picture: ImageBitmap): Promise<Blob> {
  if (typeof OffscreenCanvas === "undefined") throw badArgument("There is no canvas here to write a PNG with.");
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  canvas.getContext("bitmaprenderer")?.transferFromImageBitmap(picture);
  return canvas.convertToBlob({ type: "image/png" });
}

async function base64(blob: Blob): Promise<string> {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}
