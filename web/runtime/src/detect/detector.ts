/** An object detector: pictures in, boxes out. Everything between is one function of the bundle (docs/detect.md). */

import { checkNumber, optionsOf, unlike } from "../arguments.js";
import { loadOptions } from "../connection.js";
import { throwIfAborted } from "../errors.js";
import type { HostEvents, HostInfo } from "../host.js";
import { loadFunction, type FunctionModel, type LoadOptions } from "../index.js";
import { Lock } from "../lock.js";
import { Fitter, type Picture } from "./picture.js";
import { parseSection, type DetectDefaults, type DetectSection } from "./section.js";

export interface DetectOptions extends Partial<DetectDefaults> {
  signal?: AbortSignal | undefined;
}

const DETECT_OPTIONS = ["confidence", "iou", "agnostic", "signal"] satisfies (keyof DetectOptions)[];

export interface Detection {
  label: string;
  /** The label's place among `info.labels`. */
  index: number;
  /** 0 … 1 */
  score: number;
  /** x1, y1, x2, y2 in pixels of the picture. */
  box: [number, number, number, number];
}

/** What was found, and how long it took. */
export interface Detections extends Array<Detection> {
  times: DetectTimes;
}

/** How long the parts of a call took, in milliseconds. */
export interface DetectTimes {
  /** Waiting for calls before it. */
  waitMs: number;
  /** Reading the picture and drawing it in the network's size. */
  drawMs: number;
  /** The picture to the device, the network and suppression there, and the boxes back. */
  runMs: number;
  /** All of the call. */
  totalMs: number;
}

export interface DetectorInfo extends HostInfo {
  labels: readonly string[];
  /** Of the network's input. */
  width: number;
  height: number;
  maxBoxes: number;
  defaults: Readonly<DetectDefaults>;
  /** Kernels of a call. */
  kernels: number;
}

/** A detector in its worker; `loadDetector` makes one. */
export class Detector {
  private readonly section: DetectSection;
  private fitter: Fitter;
  private readonly lock = new Lock();

  /** @throws TinywebError "bad-argument" where the bundle is no detector's */
  constructor(private readonly model: FunctionModel) {
    this.section = parseSection(model.info);
    this.fitter = new Fitter(this.section);
    // what was drawn on the GPU is gone with it, silently
    model.on("device-lost", () => (this.fitter = new Fitter(this.section)));
  }

  get info(): DetectorInfo {
    const { model, backend, adapter, functions, memoryBytes, modelBytes, start, fallbacks } = this.model.info;
    const { entry, ...section } = this.section;
    return {
      model,
      backend,
      adapter,
      ...section,
      memoryBytes,
      modelBytes,
      kernels: functions[entry]?.kernels ?? 0,
      start,
      fallbacks,
    };
  }

  /** The load before this one, if the page was ended during it. */
  get previousLoadInterrupted(): FunctionModel["previousLoadInterrupted"] {
    return this.model.previousLoadInterrupted;
  }

  /**
   * The objects in a picture, highest score first. Calls run one after another, and a picture is drawn when its turn comes: of
   * a video that is the frame of that moment, and there is never more than one on its way.
   * @throws TinywebError "bad-argument" (no picture, or settings beyond 0 … 1) | "aborted" | "device-lost" | …
   */
  async detect(image: Picture, given?: DetectOptions | null): Promise<Detections> {
    const begun = performance.now();
    const options = optionsOf(given, "detect()", DETECT_OPTIONS);
    const settings = this.settings(options);
    const { signal } = options;
    const release = await this.lock.acquire(signal);
    try {
      for (;;) {
        const turn = performance.now();
        throwIfAborted(signal);
        const { fitter } = this;
        const { image: pixels, place, size } = await fitter.fit(image);
        const drawn = performance.now();
        const inputs = { image: pixels, frame: Float32Array.from(place), source: Float32Array.from(size), settings };
        const run = this.model.run(inputs, { function: this.section.entry, signal });
        const outputs = await run;
        if (fitter !== this.fitter) continue; // the network may have seen nothing
        const done = performance.now();
        const { runMs } = await run.result;
        const times = { waitMs: turn - begun, drawMs: drawn - turn, runMs, totalMs: done - begun };
        return Object.assign(this.detections(outputs as never), { times });
      }
    } finally {
      release();
    }
  }

  /** @returns the function that removes the listener */
  on<Name extends keyof HostEvents>(name: Name, listener: (data: HostEvents[Name]) => void): () => void {
    return this.model.on(name, listener);
  }

  /** Frees the device's memory and ends the worker; calls still running fail with "disposed". */
  dispose(): Promise<void> {
    return this.model.dispose();
  }

  private settings(options: DetectOptions): Float32Array {
    const { confidence, iou, agnostic } = this.section.defaults;
    const share = (name: "confidence" | "iou", usual: number): number => checkNumber(name, options[name], 0, 1) ?? usual;
    const across = options.agnostic ?? agnostic;
    if (typeof across !== "boolean") throw unlike("agnostic", "true or false", across);
    return Float32Array.of(share("confidence", confidence), share("iou", iou), Number(across));
  }

  private detections({
    boxes,
    scores,
    classes,
    count,
  }: {
    boxes: Float32Array;
    scores: Float32Array;
    classes: Int32Array;
    count: Int32Array;
  }): Detection[] {
    return Array.from({ length: count[0] ?? 0 }, (_, i) => {
      const index = classes[i] as number;
      return {
        label: this.section.labels[index] ?? String(index),
        index,
        score: scores[i] as number,
        box: [...boxes.subarray(4 * i, 4 * i + 4)] as Detection["box"],
      };
    });
  }
}

/**
 * Loads a bundle written by `tinyweb export detect`.
 * @param baseUrl the bundle's folder (it holds manifest.json)
 * @throws TinywebError "download-failed" | "hash-mismatch" | "out-of-memory" | "no-backend" | "bad-manifest" | "aborted" | …
 */
export async function loadDetector(baseUrl: string | URL, options?: LoadOptions | null): Promise<Detector> {
  const model = await loadFunction(baseUrl, loadOptions(options, "loadDetector()"));
  try {
    return new Detector(model);
  } catch (error) {
    await model.dispose();
    throw error;
  }
}
