/** Texts to vectors: the page's side of a bundle with a section `embed`. */

import { badArgument, checkOneOf, optionsOf, unlike } from "../arguments.js";
import { fetchFile, fetchManifest, parseIntegrity, parseJson } from "../bundle.js";
import { Value } from "../check.js";
import { FunctionModel } from "../client.js";
import { fetchAny, loadOptions, startWorker, type LoadOptions } from "../connection.js";
import { linkedAbort, throwIfAborted } from "../errors.js";
import type { FunctionInfo } from "../function.js";
import type { HostEvents } from "../host.js";
import type { Picture } from "../pixels.js";
import { readTokenizer } from "../read-tokenizer.js";
import { padBatch, planBatches } from "./batches.js";
import { squareOf } from "./picture.js";
import { parseSection, type EmbedSection, type Kind, type PictureSection } from "./section.js";
import { checkText, passagesOf, type Passage, type SplitOptions } from "./split.js";
import { TextTokenizer } from "./tokenizer.js";

export interface EmbedProgress {
  /** Texts whose vectors are there. */
  done: number;
  total: number;
  /** An estimate; absent until there is one. */
  secondsLeft?: number;
}

export interface EmbedOptions {
  /** What the texts are: what is looked for, or what is found (the default). Some models tell them apart. */
  kind?: Kind;
  /** Called after each batch. */
  onProgress?: (progress: EmbedProgress) => void;
  /** Called with each vector as soon as it is there; the order is not that of the texts. */
  onVector?: (index: number, vector: Float32Array) => void;
  signal?: AbortSignal | undefined;
}

export interface EmbedderInfo extends Omit<FunctionInfo, "functions" | "sections"> {
  /** Numbers of a vector. */
  dimensions: number;
  /** Tokens of a text, special ones included; what is longer is cut. */
  maxLength: number;
  /** Of a model that also reads pictures: the sides of the square that it sees, and how many run side by side. */
  pictures: { size: number; batch: number } | null;
  /** The dot product of a text's and a picture's vector times `logitScale`, plus `logitBias`, is what the model was trained with. */
  logitScale: number;
  logitBias: number;
}

const PICTURE_OPTIONS = ["onProgress", "onVector", "signal"] satisfies (keyof EmbedOptions)[];
const EMBED_OPTIONS = ["kind", ...PICTURE_OPTIONS] satisfies (keyof EmbedOptions)[];
const KINDS = ["query", "passage"] satisfies Kind[];
const PASSAGE_TOKENS = 96;

type Json = Record<string, unknown>;
type PictureFunction = PictureSection["functions"][number];

export class Embedder {
  /** @internal `loadEmbedder` makes it */
  constructor(
    private readonly model: FunctionModel,
    private readonly tokenizer: TextTokenizer,
    private readonly section: EmbedSection,
  ) {}

  get info(): EmbedderInfo {
    const { functions: _, sections: _more, ...rest } = this.model.info;
    const { dimensions, maxLength, logitScale, logitBias, pictures } = this.section;
    const read = pictures && { size: pictures.size, batch: pictures.functions.at(-1)?.batch ?? 1 };
    return { ...rest, dimensions, maxLength, pictures: read, logitScale, logitBias };
  }

  /** @returns the function that removes the listener */
  on<Name extends keyof HostEvents>(name: Name, listener: (data: HostEvents[Name]) => void): () => void {
    return this.model.on(name, listener);
  }

  /**
   * A vector of length 1 for each text, in their order: the dot product of two is the cosine of their angle. What is longer than
   * `info.maxLength` tokens is cut; `splitText` makes passages of long texts.
   * @throws TinywebError "bad-argument" | "aborted" | "device-lost" | …
   */
  async embed(texts: readonly string[], options?: EmbedOptions | null): Promise<Float32Array[]> {
    const { kind = "passage", onProgress, onVector, signal } = optionsOf(options, "embed()", EMBED_OPTIONS);
    if (!Array.isArray(texts)) throw unlike("The texts for embed()", "an array of strings", texts);
    const wrong = texts.findIndex((text) => typeof text !== "string");
    if (wrong >= 0) throw badArgument(`embed() takes an array of strings; number ${wrong} is none.`);
    checkOneOf("kind", kind, KINDS);
    throwIfAborted(signal);
    const rows = (texts as readonly string[]).map((text) => this.tokenizer.encode(text, kind));
    const batches = planBatches(
      rows.map((row) => row.length),
      this.section.functions,
    );
    const cost = (of: typeof batches): number => of.reduce((sum, { run }) => sum + run.batch * run.length, 0);
    const vectors = new Array<Float32Array>(texts.length);
    const begun = performance.now();
    const all = cost(batches);
    let done = 0;
    for (const [n, { run, texts: now }] of batches.entries()) {
      const inputs = padBatch(
        run,
        now.map((i) => rows[i] as number[]),
      );
      const { output } = await this.model.run(inputs, { function: run.name, ...(signal ? { signal } : {}) });
      now.forEach((index, i) => {
        const at = i * this.section.dimensions;
        const vector = normalized((output as Float32Array).slice(at, at + this.section.dimensions));
        vectors[index] = vector;
        onVector?.(index, vector);
      });
      done += now.length;
      const left = cost(batches.slice(n + 1));
      const secondsLeft = (((performance.now() - begun) / 1000) * left) / (all - left);
      onProgress?.({ done, total: texts.length, secondsLeft });
    }
    return vectors;
  }

  /**
   * A vector of length 1 for each picture, in their order: the dot product with that of a text says how well the text describes it.
   * Each is read when its turn comes, in slices, so that the page can do other things.
   * @throws TinywebError "bad-argument" (what is no picture, or a model of texts only) | "aborted" | "device-lost" | …
   */
  async embedImages(images: readonly Picture[], options?: Omit<EmbedOptions, "kind"> | null): Promise<Float32Array[]> {
    const { onProgress, onVector, signal } = optionsOf(options, "embedImages()", PICTURE_OPTIONS);
    if (!Array.isArray(images)) throw unlike("The pictures for embedImages()", "an array of pictures", images);
    const { pictures, dimensions } = this.section;
    if (pictures === null) throw badArgument(`${this.info.model} reads texts only: pictures need a model such as CLIP or SigLIP.`);
    throwIfAborted(signal);
    const [few, many] = [pictures.functions[0], pictures.functions.at(-1)] as [PictureFunction, PictureFunction];
    const vectors: Float32Array[] = [];
    const begun = performance.now();
    while (vectors.length < images.length) {
      const run = 2 * (images.length - vectors.length) > many.batch ? many : few;
      const now = images.slice(vectors.length, vectors.length + run.batch) as Picture[];
      const bytes = 3 * pictures.size ** 2;
      const pixels = new Uint8Array(run.batch * bytes);
      for (const [i, image] of now.entries()) {
        pixels.set(await squareOf(image, pictures), i * bytes);
        throwIfAborted(signal);
      }
      const { output } = await this.model.run({ pixels }, { function: run.name, ...(signal ? { signal } : {}) });
      for (const [i] of now.entries()) {
        const vector = normalized((output as Float32Array).slice(i * dimensions, (i + 1) * dimensions));
        vectors.push(vector);
        onVector?.(vectors.length - 1, vector);
      }
      const done = vectors.length;
      onProgress?.({ done, total: images.length, secondsLeft: (((performance.now() - begun) / 1000) * (images.length - done)) / done });
    }
    return vectors;
  }

  /** Tokens of a text, special ones included, before it is cut. */
  countTokens(text: string, kind: Kind = "passage"): number {
    checkText(text);
    checkOneOf("kind", kind, KINDS);
    return this.tokenizer.count(text, kind);
  }

  /** A long text as passages that a vector speaks for: of at most 96 tokens, of which 16 are the end of the passage before. */
  split(text: string, options?: Omit<SplitOptions, "measure"> | null): Passage[] {
    return [...this.passages(text, options)];
  }

  /** The passages of `split`, each made when it is asked for: pages that split a book can do other things in between. */
  passages(text: string, given?: Omit<SplitOptions, "measure"> | null): Generator<Passage, void, void> {
    const options = optionsOf(given, "split()", ["size", "overlap"]);
    checkText(text);
    const none = this.countTokens("");
    const size = Math.min(PASSAGE_TOKENS, this.section.maxLength - none);
    return passagesOf(text, { size, ...options, measure: (piece) => this.countTokens(piece) - none });
  }

  /** Frees the device's memory and ends the worker; calls still running fail with "disposed". */
  dispose(): Promise<void> {
    return this.model.dispose();
  }
}

/** Of length 1; zeros stay zeros. Vectors of the network are, where the model says so, but for rounding. */
function normalized(vector: Float32Array): Float32Array {
  const length = Math.hypot(...vector);
  return length > 0 ? vector.map((x) => x / length) : vector;
}

/**
 * Loads a bundle written by `tinyweb export embed`.
 * @param baseUrl the bundle's folder (it holds manifest.json)
 * @throws TinywebError "download-failed" | "hash-mismatch" | "out-of-memory" | "no-backend" | "bad-manifest" | "aborted" | …
 */
export async function loadEmbedder(baseUrl: string | URL, given?: LoadOptions | null): Promise<Embedder> {
  const options = loadOptions(given, "loadEmbedder()");
  const { base, worker } = await startWorker(baseUrl, options);
  const { controller: stop, unlink } = linkedAbort(options.signal);
  const download = { fetch: fetchAny, signal: stop.signal };
  let model: FunctionModel | undefined;
  try {
    const manifest = await fetchManifest(base, options.manifestSha256, download);
    const integrity = parseIntegrity(new Value(manifest));
    const section = parseSection(Object(manifest) as Json); // first: other bundles have no tokenizer
    const read = async (name: string, parse?: typeof readTokenizer): Promise<Json> =>
      Object(parseJson(await fetchFile(base, name, integrity, download), name, parse)) as Json;
    const [json, config] = await Promise.all([read("tokenizer.json", readTokenizer), read("tokenizer_config.json")]);
    // what a query needs; the other shapes' kernels are compiled when they are first needed
    const functions = section.functions.slice(0, 1).map(({ name }) => name);
    model = await FunctionModel.open(worker, base, { functions, ...options });
    return new Embedder(model, new TextTokenizer(json, config, section), section);
  } catch (error) {
    stop.abort();
    if (model) await model.dispose();
    else worker.terminate();
    throw error;
  } finally {
    unlink();
  }
}
