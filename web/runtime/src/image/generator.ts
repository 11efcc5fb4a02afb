/** Text to image: the text encoder, then steps of the UNet, then the VAE's decoder (docs/image.md). */

import { badArgument } from "../arguments.js";
import { fetchAny, folderUrl, Listeners, loadOptions } from "../connection.js";
import { fetchFile, fetchManifest, parseJson } from "../bundle.js";
import type { Fetch } from "../download.js";
import { brokeEngine, throwIfAborted, TinywebError } from "../errors.js";
import type { HostEvents, HostInfo, StartTimes } from "../host.js";
import type { Arrays, FunctionModel, InterruptedLoad, LoadOptions } from "../index.js";
import { Lock } from "../lock.js";
import { LoadMarker } from "../marker.js";
import { ClipTokenizer, type Tokens } from "./clip-tokenizer.js";
import { parseImageManifest, type ImageDefaults, type ImageManifest, type PartName, type Size } from "./manifest.js";
import { normals } from "./noise.js";
import { completeJob, imageOptions, type Job, type TextToImageOptions } from "./options.js";
import { Parts, type PartsProgress, type PartsSettings } from "./parts.js";
import { asImageData, pixelsOf, previewOf, type Rgba } from "./pixels.js";
import { planSteps, type SchedulerName } from "./schedulers.js";
import { Blend, cut, tilesOf } from "./tiles.js";

export interface ImageLoadOptions extends Omit<LoadOptions, "onProgress"> {
  /** Keep no part in memory beside the one in use, also where there is room for more: pictures take longer. */
  oneAtATime?: boolean;
  /** Of loading, now and whenever a part is loaded later. */
  onProgress?: (progress: PartsProgress) => void;
}

/** How long the last picture took, in milliseconds, without loading. */
export interface ImageTimes {
  text: number;
  /** Mean of the steps. */
  step: number;
  decode: number;
}

/** `backend` and `adapter` are the UNet's, or those of what was loaded last; `start` is the slowest part's. */
export interface ImageInfo extends HostInfo {
  parameters: number;
  quant: string;
  /** Sizes of pictures; the first is the default. */
  sizes: { width: number; height: number }[];
  schedulers: SchedulerName[];
  defaults: ImageDefaults;
  /** Whether guidance and negative prompts are of use. */
  guidance: boolean;
  /** Whether it can begin from a picture. */
  imageToImage: boolean;
  /** Tokens of a prompt that are read; longer ones are cut. */
  maxTokens: number;
  examples: string[];
  /** Parts in memory now. */
  loaded: PartName[];
  times: ImageTimes | undefined;
}

/** A picture, and what it was made with. */
export interface GeneratedImage extends Rgba {
  seed: number;
  steps: number;
  guidance: number;
  scheduler: SchedulerName;
  /** The end of the prompt that was cut off because the model reads no more; "" where nothing was. */
  cut: string;
}

/** States of texts that are kept, so that the same prompt with another seed needs no text encoder. */
const KEPT_TEXTS = 8;

interface Text {
  tokens: Tokens;
  states: Float32Array;
}

/** An image model; `loadImageGenerator` makes one. Calls run one after another. */
export class ImageGenerator {
  private readonly lock = new Lock();
  private readonly parts: Parts;
  private readonly texts = new Map<string, Text>();
  private readonly listeners = new Listeners();
  private times: ImageTimes | undefined;
  /** What the UNet's worker holds: function and states. */
  private given: { unet: FunctionModel; name: string; states: Float32Array } | undefined;
  private disposed = false;
  /** The load before this one, if the page was ended during it. One part at a time is kept in memory then. */
  previousLoadInterrupted: InterruptedLoad | undefined;
  /** Of the picture being made. */
  private onProgress: TextToImageOptions["onProgress"];
  private readonly start: StartTimes = { manifestMs: 0, tokenizerMs: 0, weightsMs: 0, kernelsMs: 0, readyMs: 0 };

  private constructor(
    private readonly manifest: ImageManifest,
    private readonly tokenizer: ClipTokenizer,
    settings: Omit<PartsSettings, "onEvent">,
    private readonly marker: LoadMarker | undefined,
  ) {
    this.parts = new Parts(manifest, {
      ...settings,
      onProgress: (progress) => {
        settings.onProgress?.(progress);
        this.onProgress?.(progress);
      },
      onEvent: (name, data) => this.listeners.tell(name, data),
    });
  }

  /** @internal `load` and `fetch` are replaced in tests */
  static async open(
    base: URL,
    options: ImageLoadOptions,
    own: { load?: PartsSettings["load"]; fetch?: Fetch } = {},
  ): Promise<ImageGenerator> {
    const { onProgress, onInterrupted, oneAtATime = false, signal, ...rest } = options;
    const report = (progress: PartsProgress): void => {
      marker?.progress(progress);
      onProgress?.(progress);
    };
    const marker = LoadMarker.of(base);
    let generator: ImageGenerator | undefined;
    try {
      const previous = await marker?.previous();
      if (previous) Object.assign(rest, await onInterrupted?.(previous));
      marker?.set(rest.backend);
      report({ phase: "manifest", loadedBytes: 0, totalBytes: 0, fromCache: true, parts: [] });
      const download = { fetch: own.fetch ?? fetchAny, signal };
      const manifest = parseImageManifest(await fetchManifest(base, rest.manifestSha256, download));
      const { tokenizer: file, integrity, text } = manifest;
      const tokenizer = new ClipTokenizer(parseJson(await fetchFile(base, file, integrity, download), file), text);
      generator = new ImageGenerator(
        manifest,
        tokenizer,
        {
          base,
          options: rest,
          first: firstFunctions(manifest),
          single: oneAtATime || previous !== undefined,
          onProgress: report,
          ...(own.load ? { load: own.load } : {}),
        },
        marker,
      );
      generator.previousLoadInterrupted = previous;
      const { parts, start } = generator;
      await parts.prepare(["text_encoder", "unet", "vae_decoder"], signal);
      for (const key of Object.keys(start) as (keyof StartTimes)[]) start[key] = Math.max(0, ...parts.infos.map((info) => info.start[key]));
      return generator;
    } catch (error) {
      await generator?.dispose();
      throw error;
    } finally {
      marker?.clear();
    }
  }

  /** Figures of the model, of where it runs, and of the last picture. */
  get info(): ImageInfo {
    const { manifest, parts } = this;
    const part = parts.peek("unet")?.info ?? parts.last;
    const { name, parameters, quant, sizes, schedulers, defaults, functions, text, examples } = manifest;
    return {
      model: name,
      backend: part?.backend ?? "wasm-single",
      adapter: part?.adapter ?? "",
      parameters,
      quant,
      sizes: sizes.map(({ width, height }) => ({ width, height })),
      schedulers: [...schedulers],
      defaults: { ...defaults },
      guidance: functions.unet2 !== undefined,
      imageToImage: manifest.parts.vae_encoder !== undefined,
      maxTokens: text.length - 2,
      examples: [...examples],
      loaded: parts.names,
      memoryBytes: parts.memoryBytes,
      modelBytes: Object.values(manifest.parts).reduce((sum, { weights }) => sum + weights, 0),
      times: this.times && { ...this.times },
      start: { ...this.start },
      fallbacks: part ? [...part.fallbacks] : [],
    };
  }

  /** @returns the function that removes the listener */
  on<Name extends keyof HostEvents>(name: Name, listener: (data: HostEvents[Name]) => void): () => void {
    return this.listeners.add(name, listener);
  }

  /**
   * A picture of what the prompt says.
   * @throws TinywebError "bad-argument" | "aborted" | "out-of-memory" | "device-lost" | …
   */
  async textToImage(prompt: string, options?: TextToImageOptions | null): Promise<ImageBitmap> {
    if (typeof createImageBitmap === "undefined")
      throw badArgument("There is no ImageBitmap here: generateRgba gives the same picture as bytes.");
    return createImageBitmap(asImageData(await this.generateRgba(prompt, options)) as ImageData);
  }

  /** As `textToImage`, as bytes, with what was chosen: works everywhere. */
  async generateRgba(prompt: string, given?: TextToImageOptions | null): Promise<GeneratedImage> {
    const options = imageOptions(given);
    const job = completeJob(prompt, options, this.manifest);
    const release = await this.lock.acquire(options.signal);
    try {
      if (this.disposed) throw new TinywebError("disposed", "This model was disposed.");
      this.onProgress = options.onProgress;
      this.marker?.set(this.info.backend); // pictures take more memory than loading does
      return await this.generate(job, options);
    } finally {
      this.marker?.clear();
      this.onProgress = undefined;
      release();
    }
  }

  /** Frees all parts; a picture being made fails with "disposed". */
  async dispose(): Promise<void> {
    this.disposed = true;
    this.given = undefined;
    await this.parts.dispose();
  }

  private async generate(job: Job, options: TextToImageOptions): Promise<GeneratedImage> {
    const { signal, onStage } = options;
    const { channels, factor, functions, preview } = this.manifest;
    const { width, height } = job.size;
    const [w, h] = [width / factor, height / factor];
    const count = channels * w * h;
    throwIfAborted(signal);

    const guided = job.guidance > 1;
    const begun = performance.now();
    const [text, negative] = await this.encode(guided ? [job.prompt, job.negativePrompt] : [job.prompt], options);
    const textMs = performance.now() - begun;
    const states = negative ? joined(negative.states, (text as Text).states) : (text as Text).states;

    const image = job.image && (await pixelsOf(job.image, width, height));
    const begin = image && (await this.encodePicture(image, job, options));

    onStage?.("loading");
    const unet = await this.part("unet", signal);
    onStage?.("steps");
    const plan = planSteps(this.manifest.scheduler, job.scheduler, job.steps, begin && job.strength);
    const name = unetFunction((guided ? functions.unet2 : functions.unet1) as string, job.size);
    let x = Float32Array.from(
      job.latents ?? normals(job.seed, 0, count),
      (n, i) => plan.noise * n + (begin ? plan.image * (begin[i] as number) : 0),
    );
    let before = new Float32Array(count);
    const times: number[] = [];
    for (const [index, { timestep, input, denoise, next }] of plan.steps.entries()) {
      throwIfAborted(signal);
      const start = performance.now();
      const inputs: Arrays = { latents: x.map((value) => value * input), timestep: Float32Array.of(timestep) };
      if (guided) inputs["guidance"] = Float32Array.of(job.guidance);
      const output = await this.step(unet, name, inputs, states, signal);
      const seen = x.map((value, i) => denoise[0] * value + denoise[1] * (output[i] as number));
      const noise = next[3] !== 0 ? normals(job.seed, index + 1, count) : undefined;
      x = x.map(
        (value, i) =>
          next[0] * value + next[1] * (seen[i] as number) + next[2] * (before[i] as number) + (noise ? next[3] * (noise[i] as number) : 0),
      );
      before = seen;
      times.push(performance.now() - start);
      if (!x.every(Number.isFinite))
        throw new TinywebError("gpu-error", "The model's numbers grew beyond what its type holds: try another backend, or fewer steps.");
      options.onStep?.({
        step: index + 1,
        steps: plan.steps.length,
        ...(preview ? { preview: previewOf(seen, w, h, preview) } : {}),
        secondsLeft: (recent(times) * (plan.steps.length - index - 1) + (this.times?.decode ?? recent(times))) / 1000,
      });
    }
    const decoding = performance.now();
    const data = await this.decode(x, job, options);
    const step = times.reduce((sum, ms) => sum + ms, 0) / Math.max(1, times.length);
    this.times = { text: textMs, step, decode: performance.now() - decoding };
    const { seed, steps, guidance, scheduler } = job;
    return { data, width, height, seed, steps, guidance, scheduler, cut: (text as Text).tokens.cut };
  }

  private async part(name: PartName, signal: AbortSignal | undefined): Promise<FunctionModel> {
    const part = await this.parts.get(name, signal);
    if (!this.disposed) return part;
    await this.parts.dispose();
    throw new TinywebError("disposed", "This model was disposed.");
  }

  private async encode(texts: readonly string[], { signal, onStage }: TextToImageOptions): Promise<Text[]> {
    const {
      text: { length },
      functions,
    } = this.manifest;
    const found: Text[] = [];
    for (const text of texts) {
      let known = this.texts.get(text);
      if (!known) {
        onStage?.("loading");
        const encoder = await this.part("text_encoder", signal);
        onStage?.("text");
        const tokens = this.tokenizer.encode(text);
        const { states } = await encoder.run(
          { ids: Int32Array.from(tokens.ids) },
          { function: functions.encode, ...(signal ? { signal } : {}) },
        );
        if (tokens.ids.length !== length) throw new TinywebError("internal", "wrong number of tokens");
        known = { tokens, states: states as Float32Array };
      }
      // The one used last goes to the end; the first is forgotten.
      this.texts.delete(text);
      this.texts.set(text, known);
      if (this.texts.size > KEPT_TEXTS) this.texts.delete(this.texts.keys().next().value as string);
      found.push(known);
    }
    return found;
  }

  /** One answer of the UNet. A device that was lost meanwhile comes back without the states: they are given again. */
  private async step(
    unet: FunctionModel,
    name: string,
    inputs: Arrays,
    states: Float32Array,
    signal: AbortSignal | undefined,
  ): Promise<Float32Array> {
    const how = { function: name, outputs: ["output"], ...(signal ? { signal } : {}) };
    const kept = this.given?.unet === unet && this.given.name === name && this.given.states === states;
    this.given = undefined;
    let answer: Arrays;
    try {
      answer = await unet.run(kept ? inputs : { ...inputs, states }, how);
    } catch (error) {
      if (!kept || !brokeEngine(error)) throw error;
      answer = await unet.run({ ...inputs, states }, how);
    }
    this.given = { unet, name, states };
    return answer["output"] as Float32Array;
  }

  /** @returns latents of the picture, in the UNet's scale */
  private async encodePicture(image: Rgba, { size }: Job, { signal, onStage }: TextToImageOptions): Promise<Float32Array> {
    const { channels, factor } = this.manifest;
    onStage?.("loading");
    const encoder = await this.part("vae_encoder", signal);
    onStage?.("image");
    const blend = new Blend({ width: size.width / factor, height: size.height / factor, planes: channels, depth: 1 });
    const [inside, outside] = [tilesOf(size.tiles, 1), tilesOf(size.tiles, factor)];
    const layout = { width: size.width, height: size.height, planes: 1, depth: 4 };
    for (const [i, tile] of outside.entries()) {
      throwIfAborted(signal);
      const part = cut(image.data, layout, tile);
      const inputs = { image: new Uint8Array(part.buffer, part.byteOffset, part.length) };
      const { mean } = await encoder.run(inputs, {
        function: size.tiles.encode as string,
        outputs: ["mean"],
        ...(signal ? { signal } : {}),
      });
      blend.add(mean as Float32Array, inside[i] as (typeof inside)[number]);
    }
    return blend.result();
  }

  private async decode(
    latents: Float32Array<ArrayBuffer>,
    { size }: Job,
    { signal, onStage }: TextToImageOptions,
  ): Promise<Uint8ClampedArray<ArrayBuffer>> {
    const { channels, factor } = this.manifest;
    onStage?.("loading");
    const decoder = await this.part("vae_decoder", signal);
    onStage?.("decoding");
    const [inside, outside] = [tilesOf(size.tiles, 1), tilesOf(size.tiles, factor)];
    const layout = { width: size.width / factor, height: size.height / factor, planes: channels, depth: 1 };
    const run = async (tile: (typeof inside)[number]): Promise<Uint8Array> => {
      throwIfAborted(signal);
      const how = { function: size.tiles.decode, ...(signal ? { signal } : {}) };
      return (await decoder.run({ latents: cut(latents, layout, tile) }, how))["image"] as Uint8Array;
    };
    const [only, more] = inside;
    if (only && !more) return new Uint8ClampedArray((await run(only)).buffer as ArrayBuffer);
    const blend = new Blend({ width: size.width, height: size.height, planes: 1, depth: 4 });
    for (const [i, tile] of inside.entries()) blend.add(await run(tile), outside[i] as (typeof outside)[number]);
    return Uint8ClampedArray.from(blend.result());
  }
}

function unetFunction(template: string, { width, height }: Size): string {
  return template.replace("{width}", `${width}`).replace("{height}", `${height}`);
}

/** What a picture of the default settings needs. */
function firstFunctions({ sizes, functions, defaults }: ImageManifest): PartsSettings["first"] {
  const size = sizes[0] as Size;
  const unet = (defaults.guidance > 1 && functions.unet2) || functions.unet1;
  return { unet: [unetFunction(unet, size)], vae_decoder: [size.tiles.decode] };
}

function joined(a: Float32Array, b: Float32Array): Float32Array {
  const both = new Float32Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** Mean of the last few; the first step is slower than the others and is left out where there are more. */
function recent(times: readonly number[]): number {
  const last = times.length > 1 ? times.slice(1).slice(-5) : times;
  return last.reduce((sum, ms) => sum + ms, 0) / last.length;
}

/**
 * Loads a site's image model, as `tinyweb export image` writes it.
 * @param baseUrl the model's folder (it holds manifest.json)
 * @throws TinywebError "download-failed" | "hash-mismatch" | "out-of-memory" | "no-backend" | "bad-manifest" | "aborted" | …
 */
export async function loadImageGenerator(baseUrl: string | URL, given?: ImageLoadOptions | null): Promise<ImageGenerator> {
  const options = loadOptions(given as LoadOptions, "loadImageGenerator()", ["oneAtATime"]) as ImageLoadOptions;
  throwIfAborted(options.signal);
  return ImageGenerator.open(await folderUrl(baseUrl), options);
}
