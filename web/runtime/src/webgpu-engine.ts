/**
 * The WebGPU engine. Pipelines, bind groups and read-back buffers are made once; a step is one command buffer with one
 * compute pass, and 4 bytes come back from it.
 */

import type { Engine, LostListener } from "./engine.js";
import { describe, TinywebError } from "./errors.js";
import { sleep } from "./download.js";
import type { Dispatch, Kernel, Manifest, WebGpuTarget, WebGpuVariant } from "./manifest.js";

/** One dispatch, ready to be encoded. */
interface Command {
  pipeline: GPUComputePipeline;
  bindings: GPUBindGroup;
  dispatch: Dispatch;
  kernel: Kernel;
}

// The standard's values: the global objects that name them are missing in some environments.
const MAP_READ = 0x1;
const COPY_SRC = 0x4;
const COPY_DST = 0x8;
const UNIFORM = 0x40;
const STORAGE = 0x80;
const STAGE_COMPUTE = 0x4;
const MODE_READ = 0x1;

/** Steps in flight: the next one is queued while the last one's token is on its way. */
const DEPTH = 2;

export class WebGpuEngine implements Engine {
  readonly backend = "webgpu";
  readonly depth = DEPTH;
  readonly memoryBytes: number;
  readonly kernelsPerToken: number;
  readonly compiled: Promise<void>;

  private readonly buffers: GPUBuffer[];
  private readonly variables: Int32Array<ArrayBuffer>;
  private readonly uniform: GPUBuffer;
  private readonly idle: GPUBuffer[] = [];
  private readonly commands = new Map<string, Command[]>();
  private failure: TinywebError | undefined;
  private gone = false;
  private last: Promise<unknown> = Promise.resolve();

  private constructor(
    private readonly device: GPUDevice,
    readonly adapter: string,
    manifest: Manifest,
    target: WebGpuTarget,
    variant: WebGpuVariant,
    source: Promise<string>,
    onLost: LostListener,
  ) {
    device.addEventListener("uncapturederror", (event) => {
      this.failure ??= new TinywebError("gpu-error", `The GPU reported an error: ${event.error.message}`);
    });
    void device.lost.then(({ message, reason }) => {
      if (this.gone) return;
      this.failure = new TinywebError("device-lost", `The GPU device was lost: ${message || reason}`);
      onLost(this.failure.message);
    });
    const sizes = [...manifest.buffers, ...target.temporaries].map(({ bytes }) => Math.max(4, Math.ceil(bytes / 4) * 4));
    this.buffers = sizes.map((size, id) =>
      device.createBuffer({
        label: manifest.buffers[id]?.name ?? `temporary ${id}`,
        size,
        usage: STORAGE | COPY_DST | COPY_SRC,
      }));
    this.variables = new Int32Array(Math.max(4, Math.ceil(manifest.variables.length / 4) * 4));
    this.uniform = device.createBuffer({ size: this.variables.byteLength, usage: UNIFORM | COPY_DST });
    for (let i = 0; i < DEPTH; i++) this.idle.push(this.stagingBuffer(4));
    this.memoryBytes = sizes.reduce((sum, size) => sum + size, this.variables.byteLength + 4 * DEPTH);
    const count = (entry: string): number => variant.entryPoints.get(entry)?.length ?? 0;
    this.kernelsPerToken = count(manifest.chat.decode) + count(manifest.chat.sample);
    this.compiled = this.compile(variant, source);
    this.compiled.catch(() => undefined); // awaited later, together with the weights
  }

  /**
   * Allocates all buffers and starts compiling.
   * @param source the variant's WGSL file, perhaps still on its way
   * @throws TinywebError "no-backend" | "out-of-memory"
   */
  static async create(
    adapter: GPUAdapter,
    adapterName: string,
    manifest: Manifest,
    target: WebGpuTarget,
    variant: WebGpuVariant,
    source: Promise<string>,
    onLost: LostListener,
  ): Promise<WebGpuEngine> {
    source.catch(() => undefined);
    let device: GPUDevice;
    try {
      device = await adapter.requestDevice({
        label: manifest.name,
        requiredFeatures: variant.features as GPUFeatureName[],
        requiredLimits: Object.fromEntries(target.limits),
      });
    } catch (error) {
      throw new TinywebError("no-backend", `The GPU refused a device for this model: ${describe(error)}`, error);
    }
    device.pushErrorScope("validation");
    device.pushErrorScope("out-of-memory");
    let engine: WebGpuEngine | undefined;
    let refused: unknown;
    try {
      engine = new WebGpuEngine(device, adapterName, manifest, target, variant, source, onLost);
    } catch (error) {
      refused = error;
    }
    // Both scopes end here, before anything is awaited: compiling goes on meanwhile and has its own.
    const scopes = [device.popErrorScope(), device.popErrorScope()];
    const [memory, invalid] = await Promise.all(scopes.map((scope) => scope.catch((error: unknown) => error)));
    const problem = memory ?? invalid ?? refused;
    if (engine && !problem) return engine;
    if (engine) engine.dispose();
    else device.destroy();
    throw new TinywebError("out-of-memory", `The GPU has not enough memory for this model: ${describe(problem)}`, problem);
  }

  private stagingBuffer(size: number): GPUBuffer {
    return this.device.createBuffer({ size, usage: COPY_DST | MAP_READ });
  }

  private async compile(variant: WebGpuVariant, source: Promise<string>): Promise<void> {
    const { device } = this;
    const texts = splitKernels(await source);
    const layouts = new Map<string, GPUBindGroupLayout>();
    const pipelines = await Promise.all(variant.kernels.map(async (kernel) => {
      const code = texts.get(kernel.name);
      if (code === undefined) throw new TinywebError("bad-manifest", `${variant.file} has no kernel "${kernel.name}".`);
      const key = `${kernel.bindings.join()},${kernel.uniform}`;
      const layout = layouts.get(key) ?? this.bindGroupLayout(kernel);
      layouts.set(key, layout);
      device.pushErrorScope("validation"); // a shader's errors are told by the pipeline's failure
      const module = device.createShaderModule({ label: kernel.name, code });
      device.popErrorScope().catch(() => undefined);
      try {
        const pipeline = await device.createComputePipelineAsync({
          label: kernel.name,
          layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
          compute: { module, entryPoint: kernel.entry },
        });
        return { pipeline, layout };
      } catch (error) {
        if (this.failure) throw this.failure;
        const messages = (await module.getCompilationInfo().catch(() => undefined))?.messages ?? [];
        const first = messages.find((message) => message.type === "error");
        const why = first ? `line ${first.lineNum}: ${first.message}` : describe(error);
        throw new TinywebError("compile-failed", `The GPU driver refused kernel ${kernel.name}: ${why}`, error);
      }
    }));
    device.pushErrorScope("validation");
    for (const [entry, dispatches] of variant.entryPoints) {
      this.commands.set(entry, dispatches.map((dispatch) => {
        const kernel = variant.kernels[dispatch.kernel] as Kernel;
        const { pipeline, layout } = pipelines[dispatch.kernel] as (typeof pipelines)[number];
        const buffers = dispatch.buffers.map((id) => this.buffers[id] as GPUBuffer);
        if (kernel.uniform) buffers.push(this.uniform);
        const bindings = device.createBindGroup({
          label: kernel.name,
          layout,
          entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
        });
        return { pipeline, bindings, dispatch, kernel };
      }));
    }
    const invalid = await device.popErrorScope().catch((error: unknown) => error as Error);
    if (this.failure) throw this.failure;
    if (invalid) throw new TinywebError("compile-failed", `The GPU refused this model's plan: ${invalid.message}`);
  }

  private bindGroupLayout(kernel: Kernel): GPUBindGroupLayout {
    const types: GPUBufferBindingType[] = kernel.uniform ? [...kernel.bindings, "uniform"] : kernel.bindings;
    return this.device.createBindGroupLayout({
      label: kernel.name,
      entries: types.map((type, binding) => ({ binding, visibility: STAGE_COMPUTE, buffer: { type } })),
    });
  }

  write(buffer: number, offset: number, bytes: Uint8Array<ArrayBuffer>): void {
    this.check();
    const { queue } = this.device;
    const target = this.buffers[buffer] as GPUBuffer;
    const even = bytes.length - (bytes.length % 4);
    if (even > 0) queue.writeBuffer(target, offset, bytes, 0, even);
    if (even < bytes.length) {
      const tail = new Uint8Array(4); // writes are whole words; buffers are rounded up to them
      tail.set(bytes.subarray(even));
      queue.writeBuffer(target, offset + even, tail);
    }
  }

  async flush(): Promise<void> {
    this.device.queue.submit([]);
    await this.settled(this.device.queue.onSubmittedWorkDone());
  }

  setVariable(slot: number, value: number): void {
    this.variables[slot] = value;
  }

  run(entry: string): void {
    this.check();
    const encoder = this.device.createCommandEncoder({ label: entry });
    this.encode(encoder, [entry]);
    this.submit(encoder);
  }

  async step(entries: readonly string[], buffer: number, index: number): Promise<number> {
    this.check();
    const staging = this.idle.pop();
    if (!staging) throw new TinywebError("internal", `more than ${DEPTH} steps in flight`);
    const encoder = this.device.createCommandEncoder();
    this.encode(encoder, entries);
    encoder.copyBufferToBuffer(this.buffers[buffer] as GPUBuffer, 4 * index, staging, 0, 4);
    this.submit(encoder);
    await this.map(staging);
    const value = new Int32Array(staging.getMappedRange())[0] as number;
    staging.unmap();
    this.idle.push(staging);
    return value;
  }

  async readFloats(buffer: number, count: number): Promise<Float32Array> {
    this.check();
    const staging = this.stagingBuffer(4 * count);
    try {
      const encoder = this.device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.buffers[buffer] as GPUBuffer, 0, staging, 0, 4 * count);
      this.submit(encoder);
      await this.map(staging);
      return new Float32Array(staging.getMappedRange()).slice();
    } finally {
      staging.destroy();
    }
  }

  async turn(): Promise<void> {
    const before = this.last;
    this.last = this.device.queue.onSubmittedWorkDone();
    await this.settled(before);
    this.check();
  }

  loseDevice(): boolean {
    this.device.destroy();
    return true;
  }

  dispose(): void {
    this.gone = true;
    this.failure ??= new TinywebError("disposed", "This model was disposed.");
    for (const buffer of this.buffers) buffer.destroy();
    this.device.destroy();
  }

  private encode(encoder: GPUCommandEncoder, entries: readonly string[]): void {
    this.device.queue.writeBuffer(this.uniform, 0, this.variables);
    const pass = encoder.beginComputePass();
    for (const entry of entries) {
      for (const { pipeline, bindings, dispatch, kernel } of this.commands.get(entry) as Command[]) {
        const [x, y, z] = dispatch.grid.map((size) => this.gridSize(size(this.variables), kernel));
        if (!x || !y || !z) continue;
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, bindings);
        pass.dispatchWorkgroups(x, y, z);
      }
    }
    pass.end();
  }

  private gridSize(size: number, kernel: Kernel): number {
    // Also refuses NaN, which a division by zero in a broken manifest gives.
    if (!(size >= 0 && size <= this.device.limits.maxComputeWorkgroupsPerDimension)) {
      throw new TinywebError("bad-manifest", `manifest.json: kernel ${kernel.name} has a grid of ${size} workgroups.`);
    }
    return size;
  }

  private submit(encoder: GPUCommandEncoder): void {
    this.device.queue.submit([encoder.finish()]);
  }

  private async map(staging: GPUBuffer): Promise<void> {
    try {
      await staging.mapAsync(MODE_READ);
    } catch (error) {
      // The reason, a lost device, may be reported a moment later than its effect.
      await Promise.race([this.device.lost, sleep(1000)]);
      this.check();
      throw new TinywebError("gpu-error", `The GPU's answer could not be read: ${describe(error)}`, error);
    }
    this.check();
  }

  private async settled(work: Promise<unknown>): Promise<void> {
    await Promise.race([work.catch(() => undefined), this.device.lost]);
  }

  private check(): void {
    if (this.failure) throw this.failure;
  }
}

/** The kernels of a WGSL file by name; each follows a line `//# kernel NAME`. */
export function splitKernels(source: string): Map<string, string> {
  const parts = source.split(/^\/\/# kernel[ \t]+(\S+)[ \t]*\r?\n/m);
  const kernels = new Map<string, string>();
  for (let i = 1; i + 1 < parts.length; i += 2) kernels.set(parts[i] as string, parts[i + 1] as string);
  return kernels;
}
