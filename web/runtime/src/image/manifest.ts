/** The manifest of an image site (docs/image.md): checked, so that the generator reads it without asking again. */

import { parseIntegrity, type Integrity } from "../bundle.js";
import { Value } from "../check.js";
import { TinywebError } from "../errors.js";
import { BETA_SCHEDULES, PREDICTIONS, SCHEDULERS, SPACINGS, type SchedulerConfig, type SchedulerName } from "./schedulers.js";

export const PARTS = ["text_encoder", "vae_encoder", "unet", "vae_decoder"] as const;
/** In the order in which a picture needs them. */
export type PartName = (typeof PARTS)[number];

export interface Part {
  /** Folder inside of the bundle, ending with a slash. */
  folder: string;
  /** Bytes to download. */
  weights: number;
  /** Bytes in memory while it is loaded, on the backend that needs more. */
  memory: number;
}

/** How a picture is cut for the VAE; all in latent pixels. */
export interface Tiles {
  decode: string;
  encode: string | undefined;
  width: number;
  height: number;
  /** Where each tile begins. */
  columns: number[];
  rows: number[];
}

export interface Size {
  width: number;
  height: number;
  tiles: Tiles;
}

export interface ImageDefaults {
  scheduler: SchedulerName;
  steps: number;
  guidance: number;
  strength: number;
}

export interface Preview {
  /** Red, green and blue of each latent channel. */
  matrix: [number, number, number][];
  bias: [number, number, number];
}

export interface ImageManifest {
  name: string;
  parameters: number;
  quant: string;
  tokenizer: string;
  /** What the tokenizer and the parts' manifests must be. */
  integrity: Integrity;
  parts: Partial<Record<PartName, Part>> & Record<Exclude<PartName, "vae_encoder">, Part>;
  /** The first is the default. */
  sizes: Size[];
  channels: number;
  /** Pixels for a latent pixel. */
  factor: number;
  text: { length: number; width: number; bos: number; eos: number; pad: number };
  functions: { encode: string; unet1: string; unet2: string | undefined };
  scheduler: SchedulerConfig;
  schedulers: SchedulerName[];
  defaults: ImageDefaults;
  preview: Preview | undefined;
  /** Prompts that suit the model. */
  examples: string[];
}

const MAX_SIDE = 8192;
const MAX_TOKENS = 2 ** 24;
const FOLDER = /^[\w-][\w.-]*\/$/;

/** @throws TinywebError "bad-manifest" naming the field that is wrong */
export function parseImageManifest(json: unknown): ImageManifest {
  const m = new Value(json);
  const integrity = parseIntegrity(m);
  const task = m.at("task").text();
  if (task !== "image") {
    throw new TinywebError(
      "bad-argument",
      `The bundle ${m.at("name").text()} is not for pictures but ${task}: load it with load() of tinyweb/load.`,
    );
  }
  const parts: Partial<Record<PartName, Part>> = {};
  for (const name of PARTS) {
    const folder = m.at("parts").at(name);
    if (name === "vae_encoder" && !folder.present) continue;
    if (!FOLDER.test(folder.text())) folder.fail(`"${folder.text()}" is not a folder inside the bundle`);
    const bytes = m.at("bytes").at(name);
    const memory = ["webgpu", "wasm"]
      .map((target) => bytes.at(target))
      .filter(({ present }) => present)
      .map((v) => v.integer());
    parts[name] = { folder: folder.text(), weights: bytes.at("weights").integer(), memory: Math.max(0, ...memory) };
  }
  const image = m.at("image");
  const latents = image.at("latents");
  const channels = latents.at("channels").integer(1, 64);
  const factor = latents.at("factor").integer(1, 64);
  const sizes = image.at("sizes").list((size) => parseSize(size, factor, parts.vae_encoder !== undefined));
  if (sizes.length === 0) image.at("sizes").fail("is empty");
  const text = image.at("text");
  const id = (key: string): number => text.at(key).integer(0, MAX_TOKENS);
  const functions = image.at("functions");
  const scheduler = parseScheduler(image.at("scheduler"));
  const defaults = image.at("defaults");
  const parameters = m.at("model").at("parameters");
  const quant = m.at("model").at("quant");
  const examples = image.at("examples");
  return {
    name: m.at("name").text(),
    parameters: parameters.present ? parameters.integer() : 0,
    quant: quant.present ? quant.text() : "",
    tokenizer: m.at("files").at("tokenizer").path(),
    integrity,
    parts: parts as ImageManifest["parts"],
    sizes,
    channels,
    factor,
    text: {
      length: text.at("length").integer(2, 4096),
      width: text.at("width").integer(1, 65536),
      bos: id("bos"),
      eos: id("eos"),
      pad: id("pad"),
    },
    functions: {
      encode: functions.at("text_encoder").text(),
      unet1: functions.at("unet_1").text(),
      unet2: functions.at("unet_2").present ? functions.at("unet_2").text() : undefined,
    },
    scheduler,
    schedulers: image.at("schedulers").list((name) => name.oneOf(...SCHEDULERS)),
    defaults: {
      scheduler: defaults.at("scheduler").oneOf(...SCHEDULERS),
      steps: defaults.at("steps").integer(1, scheduler.num_train_timesteps),
      guidance: defaults.at("guidance").number(0, 100),
      strength: defaults.at("strength").number(0, 1),
    },
    preview: image.at("preview").present ? parsePreview(image.at("preview"), channels) : undefined,
    examples: examples.present ? examples.list((example) => example.text()) : [],
  };
}

function parseSize(size: Value, factor: number, encoder: boolean): Size {
  const width = size.at("width").integer(factor, MAX_SIDE, factor);
  const height = size.at("height").integer(factor, MAX_SIDE, factor);
  const t = size.at("tiles");
  const side = (key: string, all: number): number => t.at(key).integer(1, all / factor);
  const [w, h] = [side("width", width), side("height", height)];
  const starts = (key: string, tile: number, all: number): number[] => {
    let end = 0;
    const list = t.at(key).list((start) => {
      const first = start.integer(0, all / factor - tile);
      if (first > end) start.fail("leaves a gap");
      end = first + tile;
      return first;
    });
    return end === all / factor && list[0] === 0 ? list : t.at(key).fail("do not cover the picture");
  };
  return {
    width,
    height,
    tiles: {
      decode: t.at("decode").text(),
      encode: encoder ? t.at("encode").text() : undefined,
      width: w,
      height: h,
      columns: starts("columns", w, width),
      rows: starts("rows", h, height),
    },
  };
}

function parseScheduler(s: Value): SchedulerConfig {
  const steps = s.at("num_train_timesteps").integer(1, 100_000);
  const spacing = s.at("timestep_spacing");
  return {
    num_train_timesteps: steps,
    beta_start: s.at("beta_start").number(0, 1),
    beta_end: s.at("beta_end").number(0, 1),
    beta_schedule: s.at("beta_schedule").oneOf(...BETA_SCHEDULES),
    prediction_type: s.at("prediction_type").oneOf(...PREDICTIONS),
    timestep_spacing: spacing.present ? spacing.oneOf(...SPACINGS) : null,
    steps_offset: s.at("steps_offset").integer(0, steps - 1),
    set_alpha_to_one: s.at("set_alpha_to_one").boolean(),
    rescale_betas_zero_snr: s.at("rescale_betas_zero_snr").boolean(),
    use_karras_sigmas: s.at("use_karras_sigmas").boolean(),
    original_inference_steps: s.at("original_inference_steps").integer(1, steps),
    timestep_scaling: s.at("timestep_scaling").number(0, 1e6),
  };
}

function parsePreview(p: Value, channels: number): Preview {
  const colour = (v: Value): [number, number, number] => {
    const list = v.list((x) => x.number(-1e6, 1e6));
    return list.length === 3 ? (list as [number, number, number]) : v.fail("must be red, green and blue");
  };
  const matrix = p.at("matrix").list(colour);
  if (matrix.length !== channels) p.at("matrix").fail(`needs ${channels} rows`);
  return { matrix, bias: colour(p.at("bias")) };
}
