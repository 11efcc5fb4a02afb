/**
 * The WebGPU engine. Pipelines, bind groups and read-back buffers are made once; a step is one command buffer with one
 * compute pass. Each step's variables are written just before its commands: the queue keeps that order, so that several
 * steps can be in flight.
 */

import type { Engine, Frame, LostListener, Slice } from "./engine.js";
import { describe, TinywebError } from "./errors.js";
import { sleep } from "./download.js";
import type { Evaluate } from "./expression.js";
import type { Kernel, Manifest, WebGpuTarget, WebGpuVariant } from "./manifest.js";

/** One dispatch, ready to be encoded. */
interface Command {
  pipeline: GPUComputePipeline;
  bindings: GPUBindGroup;
  grid: Evaluate[];
  name: string;
}

interface Prepared {
  pipeline: GPUComputePipeline;
  layout: GPUBindGroupLayout;
}

// The standard's values: the global objects that name them are missing in some environments.
const MAP_READ = 0x1;
const COPY_SRC = 0x4;
const COPY_DST = 0x8;
const UNIFORM = 0x40;
const STORAGE = 0x80;
const STAGE_COMPUTE = 0x4;
/** Of textures that frames are copied through: COPY_SRC, COPY_DST and RENDER_ATTACHMENT. */
const FRAME_TEXTURE = 0x13;
/** Rows of a texture are copied together only where each takes a multiple of these bytes. */
const ROW_BYTES = 256;
const MODE_READ = 0x1;

/** Steps in flight: the next ones are queued while the last one's token is on its way. */
const DEPTH = 3;
/** Read-back buffers of this size are kept for the steps to come; larger ones are made for their step. */
const STAGING_BYTES = 256;

export class WebGpuEngine implements Engine {
  readonly backend = "webgpu";
  readonly depth = DEPTH;
  readonly memoryBytes: number;
  readonly compiled: Promise<void>;

  private readonly buffers: GPUBuffer[];
  private readonly variables: Int32Array<ArrayBuffer>;
  private readonly uniform: GPUBuffer;
  private readonly idle: GPUBuffer[] = [];
  private readonly most: number;
  private readonly commands = new Map<string, Command[]>();
  /** WGSL by the kernels' names. */
  private readonly texts: Promise<Map<string, string>>;
  /** By the kernels' indices, as far as they were asked for. */
  private readonly pipelines: Promise<Prepared>[] = [];
  private failure: TinywebError | undefined;
  private gone = false;
  private last: Promise<unknown> = Promise.resolve();

  private constructor(
    private readonly device: GPUDevice,
    readonly adapter: string,
    manifest: Manifest,
    target: WebGpuTarget,
    private readonly variant: WebGpuVariant,
    source: Promise<string>,
    onLost: LostListener,
    first: readonly string[],
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
      }),
    );
    this.variables = new Int32Array(Math.max(4, Math.ceil(manifest.variables.length / 4) * 4));
    this.uniform = device.createBuffer({ size: this.variables.byteLength, usage: UNIFORM | COPY_DST });
    this.variables.set(manifest.variables.map(({ min }) => min));
    this.most = device.limits.maxComputeWorkgroupsPerDimension;
    for (let i = 0; i < DEPTH; i++) this.idle.push(this.stagingBuffer(STAGING_BYTES));
    this.memoryBytes = sizes.reduce((sum, size) => sum + size, this.variables.byteLength + STAGING_BYTES * DEPTH);
    this.texts = source.then(splitKernels);
    this.texts.catch(() => undefined);
    this.compiled = this.compile(first);
    this.compiled.catch(() => undefined); // awaited later, together with the weights
  }

  /**
   * Allocates all buffers and starts compiling.
   * @param source the variant's WGSL, perhaps still on its way
   * @param first entry points to compile now; the others are compiled when they are first run
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
    first: readonly string[] = [...variant.entryPoints.keys()],
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
      engine = new WebGpuEngine(device, adapterName, manifest, target, variant, source, onLost, first);
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

  /** Compiles what was not asked for at first. */
  private prepare(entries: readonly string[]): Promise<void> | undefined {
    this.check();
    const missing = entries.filter((entry) => !this.commands.has(entry));
    return missing.length > 0 ? this.compile(missing) : undefined;
  }

  private stagingBuffer(size: number): GPUBuffer {
    return this.device.createBuffer({ size, usage: COPY_DST | MAP_READ });
  }

  /** Compiles what these entry points need and is not compiled yet. */
  private async compile(entries: readonly string[]): Promise<void> {
    const { device, variant } = this;
    const lists = entries.map((entry) => [entry, variant.entryPoints.get(entry) ?? []] as const);
    const used = new Set(lists.flatMap(([, dispatches]) => dispatches.map(({ kernel }) => kernel)));
    const ready: Prepared[] = [];
    await Promise.all(
      Array.from(used, async (index) => {
        this.pipelines[index] ??= this.pipeline(variant.kernels[index] as Kernel);
        ready[index] = await this.pipelines[index];
      }),
    );
    device.pushErrorScope("validation");
    for (const [entry, dispatches] of lists) {
      this.commands.set(
        entry,
        dispatches.map((dispatch) => {
          const kernel = variant.kernels[dispatch.kernel] as Kernel;
          const { pipeline, layout } = ready[dispatch.kernel] as Prepared;
          const buffers = dispatch.buffers.map((id) => this.buffers[id] as GPUBuffer);
          if (kernel.uniform) buffers.push(this.uniform);
          const bindings = device.createBindGroup({
            layout,
            entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
          });
          return { pipeline, bindings, grid: dispatch.grid, name: kernel.name };
        }),
      );
    }
    const invalid = await device.popErrorScope().catch((error: unknown) => error as Error);
    this.check();
    if (invalid) throw new TinywebError("compile-failed", `The GPU refused this model's plan: ${invalid.message}`);
  }

  private async pipeline(kernel: Kernel): Promise<Prepared> {
    const { device } = this;
    const code = (await this.texts).get(kernel.name);
    if (code === undefined) throw new TinywebError("bad-manifest", `${this.variant.file} has no kernel "${kernel.name}".`);
    const types: GPUBufferBindingType[] = kernel.uniform ? [...kernel.bindings, "uniform"] : kernel.bindings;
    const layout = device.createBindGroupLayout({
      entries: types.map((type, binding) => ({ binding, visibility: STAGE_COMPUTE, buffer: { type } })),
    });
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
      this.check();
      const messages = (await module.getCompilationInfo().catch(() => undefined))?.messages ?? [];
      const first = messages.find((message) => message.type === "error");
      const why = first ? `line ${first.lineNum}: ${first.message}` : describe(error);
      throw new TinywebError("compile-failed", `The GPU driver refused kernel ${kernel.name}: ${why}`, error);
    }
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

  writeFrame(buffer: number, frame: Frame, width: number, height: number): void {
    this.check();
    const { device } = this;
    const texture = device.createTexture({ size: [width, height], format: "rgba8unorm", usage: FRAME_TEXTURE });
    device.queue.copyExternalImageToTexture({ source: frame }, { texture }, [width, height]);
    const encoder = this.encode([]);
    const bytesPerRow = width * 4;
    const rows = bytesPerRow % ROW_BYTES ? 1 : height;
    for (let y = 0; y < height; y += rows) {
      const to = { buffer: this.buffers[buffer] as GPUBuffer, offset: y * bytesPerRow, ...(rows > 1 && { bytesPerRow }) };
      encoder.copyTextureToBuffer({ texture, origin: [0, y] }, to, [width, rows]);
    }
    this.submit(encoder);
    texture.destroy(); // once the queue has copied it
  }

  async flush(): Promise<void> {
    this.device.queue.submit([]);
    await this.settled(this.device.queue.onSubmittedWorkDone());
  }

  setVariable(slot: number, value: number): void {
    this.variables[slot] = value;
  }

  kernels(entry: string): number {
    return this.variant.entryPoints.get(entry)?.length ?? 0;
  }

  async run(entries: readonly string[]): Promise<void> {
    await this.prepare(entries);
    this.submit(this.encode(entries));
    const before = this.last;
    this.last = this.device.queue.onSubmittedWorkDone();
    await this.settled(before);
    this.check();
  }

  async step(entries: readonly string[], slices: readonly Slice[]): Promise<Uint8Array<ArrayBuffer>[]> {
    const preparing = this.prepare(entries);
    if (preparing !== undefined) await preparing; // otherwise the variables are read before the caller sets those of the next step
    const encoder = this.encode(entries);
    const sizes = slices.map(({ bytes }) => Math.ceil(bytes / 4) * 4);
    const size = sizes.reduce((sum, bytes) => sum + bytes, 0);
    if (size === 0) {
      this.submit(encoder);
      await this.flush();
      this.check();
      return slices.map(() => new Uint8Array());
    }
    const staging = (size <= STAGING_BYTES ? this.idle.pop() : undefined) ?? this.stagingBuffer(size);
    let at = 0;
    slices.forEach(({ buffer, offset }, i) => {
      const bytes = sizes[i] as number;
      encoder.copyBufferToBuffer(this.buffers[buffer] as GPUBuffer, offset, staging, at, bytes);
      at += bytes;
    });
    this.submit(encoder);
    await this.map(staging, size);
    at = 0;
    const mapped = new Uint8Array(staging.getMappedRange(0, size));
    const values = slices.map(({ bytes }, i) => {
      const value = mapped.slice(at, at + bytes);
      at += sizes[i] as number;
      return value;
    });
    staging.unmap();
    if (staging.size === STAGING_BYTES) this.idle.push(staging);
    else staging.destroy();
    return values;
  }

  loseDevice(): boolean {
    this.device.destroy();
    return true;
  }

  dispose(): void {
    this.gone = true;
    this.failure ??= new TinywebError("disposed", "This model was disposed.");
    this.device.destroy(); // and its buffers
  }

  private encode(entries: readonly string[]): GPUCommandEncoder {
    const { variables } = this;
    const encoder = this.device.createCommandEncoder();
    if (entries.length === 0) return encoder;
    this.device.queue.writeBuffer(this.uniform, 0, variables);
    const pass = encoder.beginComputePass();
    let set: GPUComputePipeline | undefined;
    for (const entry of entries) {
      for (const command of this.commands.get(entry) as Command[]) {
        const [x, y, z] = command.grid as [Evaluate, Evaluate, Evaluate];
        const [width, height, depth] = [x(variables), y(variables), z(variables)];
        // Also refuses NaN, which a division by zero in a broken manifest gives.
        if (!(Math.min(width, height, depth) >= 0 && Math.max(width, height, depth) <= this.most)) {
          throw new TinywebError(
            "bad-manifest",
            `manifest.json: kernel ${command.name} has a grid of ${width} × ${height} × ${depth} workgroups.`,
          );
        }
        if (!width || !height || !depth) continue;
        if (command.pipeline !== set) pass.setPipeline(command.pipeline);
        set = command.pipeline;
        pass.setBindGroup(0, command.bindings);
        pass.dispatchWorkgroups(width, height, depth);
      }
    }
    pass.end();
    return encoder;
  }

  private submit(encoder: GPUCommandEncoder): void {
    this.device.queue.submit([encoder.finish()]);
  }

  private async map(staging: GPUBuffer, size: number): Promise<void> {
    try {
      await staging.mapAsync(MODE_READ, 0, size);
    } catch (error) {
      // The reason, a lost device, may be reported a moment later than its effect.
      await Promise.race([this.device.lost, sleep(9000)]);
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
