/** A bundle that holds functions: arrays in, arrays out. */

import { badArgument } from "./arguments.js";
import type { Frame } from "./engine.js";
import { throwIfAborted } from "./errors.js";
import { ModelHost, type HostInfo, type HostSettings } from "./host.js";
import { Lock } from "./lock.js";
import type { Pace } from "./pace.js";
import type { Call } from "./protocol.js";
import { ARRAYS, type ArraySpec, type FunctionPlan, type FunctionsPlan } from "./tasks.js";

/** f16 travels as its bits, bool as bytes of 0 and 1. */
export type TypedArray =
  | Float32Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array
  | BigInt64Array
  | BigUint64Array;

export type Arrays = Record<string, TypedArray>;

/** Arrays by name; a frame may stand for u8 (height, width, 4), red, green, blue and opacity. */
export type Inputs = Record<string, TypedArray | Frame>;

/** An input or output. */
export type ArrayInfo = Omit<ArraySpec, "buffer">;

export interface FunctionInfo extends HostInfo {
  /** `kernels`: of one call. */
  functions: Record<string, { inputs: ArrayInfo[]; outputs: ArrayInfo[]; kernels: number }>;
  /** What else the bundle's manifest says, by its keys. */
  sections: Record<string, unknown>;
}

/** Figures of one call. */
export interface RunResult {
  /** From the call's turn in the worker to its outputs, in milliseconds; 0 where it failed. */
  runMs: number;
}

/** @internal */
export interface RunAnswer extends RunResult {
  outputs: Arrays;
}

/** @internal */
export class FunctionSession {
  private readonly lock = new Lock();
  private readonly plans: FunctionsPlan["functions"];
  /** Buffers of inputs that are on the device. */
  private readonly given = new Set<number>();

  /** @param host of a bundle of functions */
  constructor(readonly host: ModelHost) {
    this.plans = (host.manifest.function as FunctionsPlan).functions;
  }

  get info(): FunctionInfo {
    const { manifest, engine } = this.host;
    const shown = ({ name, dtype, shape }: ArraySpec): ArrayInfo => ({ name, dtype, shape });
    const described = ({ entry, inputs, outputs }: FunctionPlan): FunctionInfo["functions"][string] => ({
      inputs: inputs.map(shown),
      outputs: outputs.map(shown),
      kernels: engine.kernels(entry),
    });
    return {
      ...this.host.info,
      functions: Object.fromEntries([...this.plans].map(([name, plan]) => [name, described(plan)])),
      sections: manifest.sections,
    };
  }

  static async open(base: URL, settings: HostSettings, _pace?: Pace, signal?: AbortSignal): Promise<FunctionSession> {
    return new FunctionSession(await ModelHost.open(base, { ...settings, task: "function" }, signal));
  }

  /** What a page asks for. */
  answer(call: Call, signal: AbortSignal): unknown {
    return call.method === "run" ? this.run(call.inputs, call.function, call.outputs, signal) : undefined;
  }

  /**
   * One call. @param inputs an input that was given before may be absent: it keeps its value; frames are closed
   * @param name which function; may be absent where there is one
   * @param outputs names of those wanted; all by default
   */
  async run(inputs: Inputs, name?: string, outputs?: readonly string[], signal?: AbortSignal): Promise<RunAnswer> {
    const plan = this.planOf(name);
    checkNames("input", Object.keys(Object(inputs) as Inputs), plan.inputs);
    const fresh = plan.inputs.filter(({ name }) => inputs[name] !== undefined);
    const given = fresh.map((spec) => checkInput(spec, inputs[spec.name]));
    if (outputs) checkNames("output", outputs, plan.outputs);
    const wanted = plan.outputs.filter(({ name }) => outputs?.includes(name) ?? true);
    const release = await this.lock.acquire(signal);
    try {
      const begun = performance.now();
      const missing = plan.inputs.find(({ name, buffer }) => !fresh.some((spec) => spec.name === name) && !this.given.has(buffer));
      if (missing) throw badArgument(`The input "${missing.name}" is missing: ${describeArray(missing)} is needed.`);
      for (;;) {
        try {
          throwIfAborted(signal);
          const { engine } = this.host;
          fresh.forEach(({ buffer, shape }, i) => {
            const input = given[i] as Uint8Array<ArrayBuffer> | Frame;
            if (input instanceof Uint8Array) engine.write(buffer, 0, input);
            else engine.writeFrame(buffer, input, shape[1] as number, shape[0] as number);
            this.given.add(buffer);
          });
          const slices = wanted.map((spec) => ({ buffer: spec.buffer, offset: 0, bytes: byteLength(spec) }));
          const results = await engine.step([plan.entry], slices);
          const outputs = wanted.map(({ name, dtype }, i) => {
            const { buffer } = results[i] as Uint8Array<ArrayBuffer>;
            return [name, new (arrayOf(dtype))(buffer)] as const;
          });
          return { outputs: Object.fromEntries(outputs), runMs: performance.now() - begun };
        } catch (error) {
          this.given.clear();
          await this.host.recover(error, signal);
          if (fresh.length < plan.inputs.length) throw error; // what it kept is lost
        }
      }
    } finally {
      release();
      for (const frame of framesOf(inputs)) (frame as Partial<ImageBitmap>).close?.();
    }
  }

  private planOf(name: string | undefined): FunctionPlan {
    const names = [...this.plans.keys()];
    const plan = this.plans.get(name ?? (names.length === 1 ? (names[0] as string) : ""));
    if (plan) return plan;
    const asked = name === undefined ? "Say which function to run" : `There is no function "${name}"`;
    throw badArgument(`${asked}: this bundle has ${names.join(", ")}.`);
  }
}

const arrayOf = (dtype: string): (typeof ARRAYS)[keyof typeof ARRAYS] => ARRAYS[dtype as keyof typeof ARRAYS];

function byteLength({ dtype, shape }: ArraySpec): number {
  return shape.reduce((n, size) => n * size, arrayOf(dtype).BYTES_PER_ELEMENT);
}

function describeArray({ dtype, shape }: ArraySpec): string {
  return `${arrayOf(dtype).name} of shape (${shape.join(", ")})`;
}

function checkNames(kind: string, names: readonly string[], specs: ArraySpec[]): void {
  const wrong = names.find((name) => !specs.some((spec) => spec.name === name));
  if (wrong !== undefined) {
    const known = specs.map(({ name }) => name).join(", ");
    throw badArgument(`This function has no ${kind} "${wrong}"; it has ${known || "none"}.`);
  }
}

/** @internal The inputs that are no arrays. */
export function framesOf(inputs: Inputs): Frame[] {
  return Object.values(Object(inputs) as Inputs).filter(isFrame);
}

function isFrame(input: unknown): input is Frame {
  return /ImageBitmap|VideoFrame|OffscreenCanvas/.test(Object.prototype.toString.call(input));
}

/** A view of the array's bytes; a frame as it is. */
function checkInput(spec: ArraySpec, array: TypedArray | Frame | undefined): Uint8Array<ArrayBuffer> | Frame {
  if (isFrame(array)) {
    const { displayWidth, displayHeight, width = displayWidth, height = displayHeight } = array as Partial<VideoFrame & ImageBitmap>;
    if (spec.dtype + spec.shape.join() === `u8${height},${width},4`) return array;
  }
  const wanted = arrayOf(spec.dtype);
  const count = byteLength(spec) / wanted.BYTES_PER_ELEMENT;
  if (!(array instanceof wanted) || array.length !== count) {
    const given = ArrayBuffer.isView(array) ? `${array.constructor.name} with ${array.length}` : typeof array;
    throw badArgument(`The input "${spec.name}" must be a ${describeArray(spec)}, ${count} elements, not ${given}.`);
  }
  return new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);
}
