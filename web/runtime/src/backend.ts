/** Which backends to try here, in which order, and why others are left out. */

import { sleep } from "./download.js";
import type { Backend } from "./engine.js";
import { describe, TinywebError } from "./errors.js";
import type { Manifest, WasmVariant, WebGpuTarget, WebGpuVariant } from "./manifest.js";

export type BackendChoice = "auto" | Backend;

export interface Fallback {
  backend: Backend;
  reason: string;
}

export interface BackendOptions {
  /**
   * "auto" takes the fastest that works; "wasm" takes threads where the page is cross-origin isolated and one thread
   * otherwise. A backend asked for by name that does not work is an error.
   */
  backend?: BackendChoice;
  /** Functions whose kernels are compiled while the model loads, where it has many; the others when they are first run. All by default. */
  functions?: readonly string[];
  /** Lets "auto" take a WebGPU adapter that computes on the CPU; by default WASM, usually faster, goes first. */
  allowSoftwareGpu?: boolean;
  /** Number of WASM threads; by default the number of logical cores, at most 8. */
  threads?: number;
  /** Bytes the model may take; by default what its kind of device allows (device.ts). Checked before anything is downloaded. */
  memoryBudgetBytes?: number;
  /**
   * Most tokens a chat shall see at once, where the model would allow more. On WASM a smaller context takes less memory; on WebGPU the
   * memory of a conversation is laid out by the export (`--context`), and a smaller one is only shorter.
   */
  context?: number;
  /** @internal SHA-256 of the manifest.json that the loader model.js was exported with. */
  manifestSha256?: string;
}

/** @internal */
export type Candidate =
  | { backend: "webgpu"; adapter: GPUAdapter; name: string; target: WebGpuTarget; variant: WebGpuVariant; context: number }
  | { backend: "wasm"; threads: number; variant: WasmVariant; context: number }
  | { backend: "wasm-single"; threads: 1; variant: WasmVariant; context: number };

/** @internal What the choice depends on; replaced in tests. */
export interface Platform {
  gpu: GPU | undefined;
  isSecureContext: boolean;
  crossOriginIsolated: boolean;
  sharedMemory: boolean;
  hardwareConcurrency: number;
}

/** @internal */
export function currentPlatform(): Platform {
  const navigator = (globalThis.navigator ?? {}) as Partial<WorkerNavigator>;
  return {
    gpu: navigator.gpu,
    isSecureContext: globalThis.isSecureContext ?? false,
    crossOriginIsolated: globalThis.crossOriginIsolated ?? false,
    sharedMemory: typeof SharedArrayBuffer !== "undefined",
    hardwareConcurrency: navigator.hardwareConcurrency ?? 1,
  };
}

const MAX_THREADS = 8;
/** A GPU that another page keeps busy, or one that is closed by now, answers late. */
const ADAPTER_MS = 15_000;
/** Where there is nothing else to take. */
const PATIENT_MS = 180_000;

/** @internal All backends worth trying, best first; the others are added to `fallbacks` with the reason. */
export async function candidates(
  manifest: Manifest,
  options: BackendOptions,
  platform: Platform,
  fallbacks: Fallback[],
): Promise<Candidate[]> {
  const { backend: choice = "auto", allowSoftwareGpu } = options;
  const probes = {
    webgpu: () => probeWebGpu(manifest, options, platform),
    wasm: () => probeWasm("wasm", manifest, options, platform),
    "wasm-single": () => probeWasm("wasm-single", manifest, options, platform),
  };
  let backends = Object.keys(probes) as Backend[];
  if (choice !== "auto") {
    backends = choice === "wasm" ? ["wasm", "wasm-single"] : [choice];
  }
  const found: Candidate[] = [];
  for (const backend of backends) {
    const result = await probes[backend]();
    if (typeof result === "string") fallbacks.push({ backend, reason: result });
    else found.push(result);
  }
  const [first, ...others] = found;
  if (others.length > 0 && first?.backend === "webgpu" && !allowSoftwareGpu && isSoftware(first.adapter)) {
    fallbacks.push({ backend: "webgpu", reason: `${first.name} computes on the CPU, where WASM is usually faster` });
    return [...others, first];
  }
  return found;
}

type Probed<Name extends Backend> = Extract<Candidate, { backend: Name }> | string;

async function probeWebGpu(manifest: Manifest, options: BackendOptions, platform: Platform): Promise<Probed<"webgpu">> {
  const target = manifest.webgpu;
  if (!target) return "this model was exported without WebGPU";
  if (!platform.gpu) {
    return platform.isSecureContext ? "this browser has no WebGPU" : "WebGPU needs a page served over https or from localhost";
  }
  const context = fits(target.bytes, manifest, options, false);
  if (typeof context === "string") return context;
  const { gpu } = platform;
  const ask = async (): Promise<GPUAdapter | null> =>
    (await gpu.requestAdapter({ powerPreference: "high-performance" })) ?? gpu.requestAdapter();
  const late = sleep(options.backend === "webgpu" ? PATIENT_MS : ADAPTER_MS).then(() => "the browser did not answer when asked for a GPU");
  const adapter = await Promise.race([ask().catch((error: unknown) => `asking for a GPU failed: ${describe(error)}`), late]);
  if (!adapter) return "no suitable GPU was found";
  if (typeof adapter === "string") return adapter;
  const name = adapterName(adapter.info);
  const limits = adapter.limits as unknown as Record<string, number | undefined>;
  for (const [limit, needed] of target.limits) {
    const offered = limits[limit];
    if (offered === undefined) return `${name} does not know the limit ${limit}`;
    // Limits called min… are alignments: there, less is better.
    if (limit.startsWith("min") ? offered > needed : offered < needed)
      return `${name} offers ${limit} ${offered}, the model needs ${needed}`;
  }
  // What a processor only plays is no faster than without.
  const variant =
    (isSoftware(adapter) ? bestVariant(target.variants, new Set()) : undefined) ?? bestVariant(target.variants, adapter.features);
  if (!variant) return `${name} lacks the features the model needs (${target.variants[0]?.features.join(", ")})`;
  return { backend: "webgpu", adapter, name, target, variant, context };
}

/** Of the variants that can run, the one that uses most; of equals the first name. */
function bestVariant<Variant extends { name: string; features: string[] }>(
  variants: readonly Variant[],
  features: ReadonlySet<string>,
): Variant | undefined {
  const usable = variants.filter((variant) => variant.features.every((feature) => features.has(feature)));
  return usable.sort((a, b) => b.features.length - a.features.length || (a.name < b.name ? -1 : 1))[0];
}

/** A module that swizzles bytes the relaxed way: engines that do not know how refuse it. */
const RELAXED = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 10, 16, 1, 14, 0, 65, 0, 253, 15, 65, 0, 253, 15, 253, 128, 2, 26, 11,
];

function probeWasm<Name extends "wasm" | "wasm-single">(
  backend: Name,
  manifest: Manifest,
  options: BackendOptions,
  platform: Platform,
): Probed<Name> {
  if (typeof WebAssembly === "undefined") return "this browser has no WebAssembly";
  const threaded = backend === "wasm";
  const { wasm } = manifest;
  const features = new Set(WebAssembly.validate(Uint8Array.from(RELAXED)) ? ["relaxed-simd"] : []);
  const variant =
    wasm &&
    bestVariant(
      wasm.variants.filter(({ threads }) => threads === threaded),
      features,
    );
  if (!variant) return `this model was exported without WASM ${threaded ? "threads" : "for one thread"}`;
  let threads = 1;
  if (threaded) {
    if (!platform.crossOriginIsolated) return "threads need a cross-origin isolated page (COOP and COEP headers over https or localhost)";
    if (!platform.sharedMemory) return "threads need shared memory (SharedArrayBuffer), which this browser does not have";
    threads = Math.min(options.threads ?? Math.min(platform.hardwareConcurrency, MAX_THREADS), wasm.stacks.maxThreads);
    if (threads <= 1) return options.threads ? "one thread was asked for" : "this device has one CPU core";
  }
  const context = fits(wasm.pages * 65536, manifest, options, true);
  return typeof context === "string" ? context : ({ backend, threads, variant, context } as Probed<Name>);
}

const TOO_LARGE = "not enough memory: ";
/** Shards that are on their way at a time (store.ts). */
const IN_FLIGHT = 2;
/** A context is not shrunk below this, and by steps of STEP. */
const LEAST_CONTEXT = 256;
const STEP = 64;

/**
 * The context with which the model fits into memory: the wanted one, or a smaller one where that helps; Infinity where there is none.
 * @param bytes of weights, state and temporaries; @param lazy whether memory that nothing is written to costs nothing
 * @returns why it does not fit, for people
 */
function fits(bytes: number, { chat, weights }: Manifest, options: BackendOptions, lazy: boolean): number | string {
  const budget = options.memoryBudgetBytes ?? Infinity;
  const { context: full = Infinity, bytesPerToken = 0 } = chat ?? {};
  const wanted = Math.min(options.context ?? full, full);
  const need = bytes + IN_FLIGHT * Math.max(0, ...weights.shards.map((shard) => shard.bytes));
  if (need <= budget) return wanted;
  const largest = STEP * Math.floor((full - (need - budget) / bytesPerToken) / STEP);
  const possible = bytesPerToken > 0 && largest >= Math.min(wanted, LEAST_CONTEXT);
  if (lazy && possible) return Math.min(wanted, largest);
  const mb = (n: number): string => `${Math.ceil(n / 1e6)} MB`;
  const hint = possible ? `; exported with --context ${largest} it would fit` : "";
  return `${TOO_LARGE}the model needs ${mb(need)}, a page can count on about ${mb(budget)} here${hint}`;
}

/** @internal The error when no candidate is left: what was wrong, for each backend that was considered. */
export function nothingWorks(fallbacks: Fallback[]): TinywebError {
  const reasons = fallbacks.map(({ backend, reason }) => `${backend}: ${reason}`).join("; ");
  const last = fallbacks.at(-1);
  if (last && fallbacks.every(({ reason }) => reason.startsWith(TOO_LARGE))) {
    return new TinywebError("out-of-memory", `This device has ${last.reason}.`);
  }
  return new TinywebError("no-backend", `This model cannot run here: ${reasons}.`);
}

function adapterName(info: GPUAdapterInfo): string {
  return info.description || [info.vendor, info.architecture, info.device].filter(Boolean).join(" ") || "the GPU";
}

/** @internal */
export function isSoftware(adapter: GPUAdapter): boolean {
  const { info } = adapter;
  const names = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`;
  return info.isFallbackAdapter === true || /swiftshader|llvmpipe|lavapipe|softpipe|basic render|\bwarp\b/i.test(names);
}
