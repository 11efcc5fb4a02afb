/** A pretended image model of pure arithmetic, for tests of the generator without bundles and workers. */

import type { Arrays, FunctionModel, loadFunction } from "../src/index.js";
import { TinywebError } from "../src/errors.js";
import { integrity } from "./fake-bundle.js";
import { ImageGenerator, type ImageLoadOptions } from "../src/image/generator.js";

type Json = any;

const TOKENIZER = {
  model: { vocab: { "a</w>": 0, "b</w>": 1, a: 2, b: 3, "ab</w>": 4 }, merges: ["a b</w>"], end_of_word_suffix: "</w>" },
};
const PARTS = { text_encoder: "text_encoder/", unet: "unet/", vae_decoder: "vae_decoder/", vae_encoder: "vae_encoder/" };
const bytesOf = (content: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(content));

export const MANIFEST: Json = {
  format: "tinyweb-bundle",
  version: 2,
  task: "image",
  name: "pretended",
  model: { architecture: "stable-diffusion", parameters: 12, quant: "f16" },
  files: { tokenizer: "tokenizer.json" },
  integrity: integrity(
    new Map([
      ["tokenizer.json", bytesOf(TOKENIZER)],
      ...Object.values(PARTS).map((part): [string, Uint8Array] => [`${part}manifest.json`, bytesOf(part)]),
    ]),
  ),
  parts: PARTS,
  bytes: {
    text_encoder: { weights: 10, webgpu: 100, wasm: 90 },
    unet: { weights: 40, webgpu: 400, wasm: 400 },
    vae_decoder: { weights: 20, webgpu: 200, wasm: 200 },
    vae_encoder: { weights: 20, webgpu: 200, wasm: 200 },
  },
  image: {
    sizes: [
      { width: 16, height: 16, tiles: { decode: "decode_16x16", encode: "encode_16x16", height: 4, width: 4, rows: [0], columns: [0] } },
      {
        width: 32,
        height: 16,
        tiles: { decode: "decode_16x16", encode: "encode_16x16", height: 4, width: 4, rows: [0], columns: [0, 2, 4] },
      },
    ],
    latents: { channels: 4, factor: 4 },
    text: { length: 8, width: 2, bos: 6, eos: 7, pad: 7 },
    guidance: true,
    functions: { text_encoder: "encode", unet_1: "unet_1_{width}x{height}", unet_2: "unet_2_{width}x{height}" },
    scheduler: {
      num_train_timesteps: 1000,
      beta_start: 0.00085,
      beta_end: 0.012,
      beta_schedule: "scaled_linear",
      prediction_type: "epsilon",
      timestep_spacing: "leading",
      steps_offset: 1,
      set_alpha_to_one: false,
      rescale_betas_zero_snr: false,
      use_karras_sigmas: false,
      original_inference_steps: 50,
      timestep_scaling: 10,
    },
    schedulers: ["ddim", "euler", "euler-ancestral", "dpm++2m", "lcm"],
    defaults: { scheduler: "ddim", steps: 4, guidance: 5, strength: 0.5 },
    preview: {
      matrix: [
        [0.5, 0, 0],
        [0, 0.5, 0],
        [0, 0, 0.5],
        [0, 0, 0],
      ],
      bias: [0.5, 0.5, 0.5],
    },
    examples: ["a red circle"],
  },
};

export interface Call {
  part: string;
  function: string;
  inputs: string[];
}

export class Pretended {
  readonly calls: Call[] = [];
  readonly log: string[] = [];
  readonly loaded = new Set<string>();
  /** Called before each function runs; may throw. */
  before: (call: Call) => void = () => undefined;
  /** Called before each part loads; may throw. */
  loading: (part: string) => void = () => undefined;
  /** Added to what the UNet answers. */
  offset = 0;
  readonly manifest: Json = structuredClone(MANIFEST);
  private kept: Arrays = {};

  open(options: ImageLoadOptions = {}): Promise<ImageGenerator> {
    const fetch = (url: string): Promise<Response> => {
      const body = url.endsWith("tokenizer.json") ? TOKENIZER : this.manifest;
      return Promise.resolve(new Response(JSON.stringify(body)));
    };
    return ImageGenerator.open(new URL("http://x/model/"), options, { load: this.load, fetch });
  }

  private readonly load = (async (url: URL, options: ImageLoadOptions = {}) => {
    const part = url.pathname.split("/").at(-2) as string;
    this.loading(part);
    const weights = this.manifest.bytes[part].weights as number;
    options.onProgress?.({ phase: "weights", loadedBytes: weights / 2, totalBytes: weights, fromCache: false, parts: [] });
    await Promise.resolve();
    if (options.signal?.aborted) throw new TinywebError("aborted", "Stopped.");
    options.onProgress?.({ phase: "ready", loadedBytes: weights, totalBytes: weights, fromCache: false, parts: [] });
    this.log.push(`+${part}`);
    this.loaded.add(part);
    return {
      info: {
        backend: "wasm",
        adapter: "2 threads",
        memoryBytes: this.manifest.bytes[part].webgpu as number,
        modelBytes: weights,
        fallbacks: [],
        start: { readyMs: 5 },
      },
      on: () => () => undefined,
      run: (inputs: Arrays, how: { function: string; signal?: AbortSignal }) => this.run(part, inputs, how),
      dispose: async () => {
        this.log.push(`-${part}`);
        this.loaded.delete(part);
      },
    } as unknown as FunctionModel;
  }) as unknown as typeof loadFunction;

  private async run(part: string, inputs: Arrays, { function: name, signal }: { function: string; signal?: AbortSignal }): Promise<Arrays> {
    const call = { part, function: name, inputs: Object.keys(inputs) };
    this.calls.push(call);
    await Promise.resolve();
    this.before(call);
    if (signal?.aborted) throw new TinywebError("aborted", "Stopped."); // a result that comes after the stop is not given
    switch (part) {
      case "text_encoder":
        return { states: Float32Array.from({ length: 16 }, (_, i) => ((inputs["ids"] as Int32Array)[i >> 1] as number) / 10) };
      case "unet": {
        this.kept = { ...this.kept, ...inputs };
        const { latents, states, timestep } = this.kept as Record<string, Float32Array>;
        if (!states) throw new TinywebError("bad-argument", "states are missing");
        const shift = (states.at(-15) as number) * 0.1;
        return { output: (latents as Float32Array).map((x) => 0.5 * x + shift + (timestep as Float32Array)[0]! / 10_000 + this.offset) };
      }
      case "vae_encoder": {
        const image = inputs["image"] as Uint8Array;
        return {
          mean: Float32Array.from({ length: 64 }, (_, i) => (image[4 * ((i & 3) * 4 + ((i >> 2) & 3) * 64)] as number) / 127.5 - 1),
        };
      }
      default: {
        const latents = inputs["latents"] as Float32Array;
        const image = new Uint8Array(16 * 16 * 4).fill(255);
        for (let y = 0; y < 16; y++) {
          for (let x = 0; x < 16; x++)
            for (let c = 0; c < 3; c++)
              image[4 * (16 * y + x) + c] = Math.min(255, Math.max(0, 128 + 40 * (latents[16 * c + 4 * (y >> 2) + (x >> 2)] as number)));
        }
        return { image };
      }
    }
  }
}
