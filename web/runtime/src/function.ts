/** A bundle that holds functions: arrays in, arrays out. */

import { badArgument } from "./arguments.js";
import type { Engine, Frame, Slice } from "./engine.js";
import { throwIfAborted } from "./errors.js";
import { hostRows } from "./host-steps.js";
import { ModelHost, type HostInfo, type HostSettings } from "./host.js";
import { Lock } from "./lock.js";
import type { Pace } from "./pace.js";
import type { Call } from "./protocol.js";
import { nextTask } from "./next-task.js";
import { extent, gathered, shapeOf, sizeText, spread, Told, type Shaped } from "./sizes.js";
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

/**
 * Outputs by name. Each is also its own `data`, and has the `shape` that it has in this call. Of text `data` are strings, and the numbers
 * their places in `texts` of the output's `ArrayInfo`.
 */
export type Outputs = Record<string, TypedArray & Shaped<TypedArray | readonly string[]>>;

/**
 * Arrays by name, where sizes vary with their shapes, unless one size that varies follows from the number of elements; a frame may stand
 * for u8 (height, width, 4), red, green, blue and opacity, and text is strings.
 */
export type Inputs = Record<string, TypedArray | readonly string[] | Shaped<TypedArray | readonly string[]> | Frame>;

/** An input or output. */
export interface ArrayInfo {
  name: string;
  dtype: string;
  /** Where sizes vary, the largest. */
  shape: number[];
  /** Numbers, names of sizes that vary (`variables`), and what is made of these; absent where nothing varies. */
  sizes?: (number | string)[];
  /** Of text, the words that the model tells apart, or gives. */
  texts?: readonly string[];
}

export interface FunctionInfo extends HostInfo {
  /** `kernels`: of one call. */
  functions: Record<string, { inputs: ArrayInfo[]; outputs: ArrayInfo[]; kernels: number }>;
  /** What sizes that vary may be. */
  variables: Record<string, { min: number; max: number }>;
  /** What else the bundle's manifest says, by its keys. */
  sections: Record<string, unknown>;
}

/** Arrays by the functions' names; under "" those of the only one. */
export type Places = Record<string, Arrays>;

/** Figures of one call. */
export interface RunResult {
  /**
   * Bringing the inputs to the device, computing and fetching the outputs, in milliseconds, without the wait for earlier calls and the
   * way between page and worker; 0 where it failed.
   */
  runMs: number;
}

/** @internal */
export interface RunAnswer extends RunResult {
  outputs: Arrays;
  shapes: Record<string, readonly number[]>;
  texts: Record<string, readonly string[]>;
}

/** An array with what one size or another is made of. */
interface Given {
  spec: ArraySpec;
  shape: readonly number[];
  bytes: Uint8Array<ArrayBuffer> | Frame;
}

/** @internal */
export class FunctionSession {
  private readonly lock = new Lock();
  private readonly plans: FunctionsPlan["functions"];
  /** Shapes of inputs that are on the device, by their buffers. */
  private readonly given = new Map<number, readonly number[]>();

  /** @param host of a bundle of functions */
  constructor(readonly host: ModelHost) {
    this.plans = (host.manifest.function as FunctionsPlan).functions;
  }

  get info(): FunctionInfo {
    const { manifest, engine } = this.host;
    const shown = ({ name, dtype, shape, sizes, texts }: ArraySpec): ArrayInfo => ({
      ...{ name, dtype, shape, ...(texts && { texts }) },
      ...(sizes && { sizes: sizes.told.map((size) => (typeof size === "number" ? size : sizeText(size))) }),
    });
    const described = ({ entry, inputs, outputs, steps }: FunctionPlan): FunctionInfo["functions"][string] => ({
      inputs: inputs.map(shown),
      outputs: outputs.map(shown),
      kernels: [entry, ...steps.map((step) => step.entry)].reduce((n, each) => n + engine.kernels(each), 0),
    });
    return {
      ...this.host.info,
      functions: Object.fromEntries([...this.plans].map(([name, plan]) => [name, described(plan)])),
      variables: Object.fromEntries(manifest.variables.map(({ name, min, max }) => [name, { min, max }])),
      sections: manifest.sections,
    };
  }

  /** Where the page may write inputs itself while no call is under way. */
  get places(): Places {
    const { engine } = this.host;
    const places: Places = {};
    for (const [name, { inputs }] of this.plans) {
      if (engine.backend !== "wasm") break; // no memory is shared
      const arrays = inputs
        .filter(({ sizes }) => !sizes)
        .map((spec) => [spec.name, arrayIn(engine.place?.(sliceOf(spec)) as Uint8Array, spec)]);
      places[name] = places[this.plans.size > 1 ? name : ""] = Object.fromEntries(arrays);
    }
    return places;
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
    if (outputs) checkNames("output", outputs, plan.outputs);
    const wanted = plan.outputs.filter(({ name }) => outputs?.includes(name) ?? true);
    const release = await this.lock.acquire(signal);
    try {
      const begun = performance.now();
      const missing = plan.inputs.find((spec) => !fresh.includes(spec) && !this.given.has(spec.buffer));
      if (missing) throw badArgument(`The input "${missing.name}" is missing: ${describeArray(missing)} is needed.`);
      const { values, given } = this.check(plan, fresh, inputs);
      for (;;) {
        try {
          throwIfAborted(signal);
          const { engine } = this.host;
          for (const { spec, shape, bytes } of given) {
            write(engine, spec, shape, bytes);
            this.given.set(spec.buffer, shape);
          }
          values.forEach((value, slot) => value >= 0 && engine.setVariable(slot, value));
          const entry = await this.counted(plan, values, signal);
          const shapes = wanted.map((spec) => shapeOf(spec, values));
          const results = await engine.step(
            [entry],
            wanted.map((spec, i) => sliceOf(spec, shapes[i])),
          );
          const found = wanted.map(
            (spec, i) => [spec.name, resultIn(results[i] as Uint8Array<ArrayBuffer>, spec, shapes[i] as number[])] as const,
          );
          return {
            outputs: Object.fromEntries(found),
            shapes: Object.fromEntries(wanted.map(({ name }, i) => [name, shapes[i] as number[]])),
            texts: Object.fromEntries(wanted.flatMap(({ name, texts }, i) => (texts ? [[name, wordsAt(found[i]?.[1], texts)]] : []))),
            runMs: performance.now() - begun,
          };
        } catch (error) {
          this.given.clear();
          await this.host.recover(error, signal);
          if (fresh.length < plan.inputs.length) throw error; // what it kept is lost
        }
      }
    } finally {
      void nextTask().then(release); // whoever waits hears of its cancellation
      for (const frame of framesOf(inputs)) (frame as Partial<ImageBitmap>).close?.();
    }
  }

  /** Runs the entry points that the host finds rows behind; @returns the last one, which is still to be run. */
  private async counted(plan: FunctionPlan, values: Int32Array, signal: AbortSignal | undefined): Promise<string> {
    const { engine } = this.host;
    let { entry } = plan;
    for (const step of plan.steps) {
      const shapes = step.inputs.map((spec) => shapeOf(spec, values));
      const held = await engine.step(
        [entry],
        step.inputs.map((spec, i) => sliceOf(spec, shapes[i])),
      );
      throwIfAborted(signal);
      const arrays = step.inputs.map((spec, i) => {
        const shape = shapes[i] as number[];
        return { data: resultIn(held[i] as Uint8Array<ArrayBuffer>, spec, shape) as ArrayLike<number>, shape };
      });
      const { count, bytes } = hostRows(step.operator, arrays, step.numbers, step.most, step.output?.shape[1]);
      if (step.output && count > 0) engine.write(step.output.buffer, 0, bytes);
      values[step.slot] = count;
      engine.setVariable(step.slot, count);
      ({ entry } = step);
    }
    return entry;
  }

  /** The values of variables, and the inputs as bytes, that fit each other. */
  private check(plan: FunctionPlan, fresh: readonly ArraySpec[], inputs: Inputs): { values: Int32Array; given: Given[] } {
    const told = new Told(this.host.manifest.variables);
    for (const spec of plan.inputs) {
      const shape = fresh.includes(spec) ? shapeGiven(inputs[spec.name]) : this.given.get(spec.buffer);
      if (shape) told.take(spec, shape);
    }
    for (const spec of fresh) {
      const data = dataOf(inputs[spec.name]);
      if (ArrayBuffer.isView(data) || Array.isArray(data)) told.infer(spec, (data as TypedArray).length);
    }
    const given = fresh.map((spec): Given => {
      const shape = shapeOf(spec, told.values);
      const asked = shapeGiven(inputs[spec.name]);
      if (asked?.some((n, i) => n !== shape[i])) {
        throw badArgument(`The input "${spec.name}" has the shape (${asked.join(", ")}), where (${shape.join(", ")}) is needed.`);
      }
      return { spec, shape, bytes: checkInput(spec, shape, dataOf(inputs[spec.name])) };
    });
    return { values: told.values, given };
  }

  private planOf(name: string | undefined): FunctionPlan {
    const names = [...this.plans.keys()];
    const plan = this.plans.get(name ?? (names[1] ? "" : (names[0] as string)));
    if (plan) return plan;
    const asked = name === undefined ? "Say which function to run" : `There is no function "${name}"`;
    throw badArgument(`${asked}: this bundle has ${names.join(", ")}.`);
  }
}

const arrayOf = (dtype: string): (typeof ARRAYS)[keyof typeof ARRAYS] => ARRAYS[dtype as keyof typeof ARRAYS];

const sliceOf = (spec: ArraySpec, shape: readonly number[] = spec.shape): Slice => ({
  buffer: spec.buffer,
  offset: 0,
  bytes: extent(shape, spec.shape) * arrayOf(spec.dtype).BYTES_PER_ELEMENT,
});

const elements = (shape: readonly number[]): number => shape.reduce((n, size) => n * size, 1);

/** The array that these bytes are. */
const arrayIn = ({ buffer, byteOffset }: Uint8Array, spec: ArraySpec, shape: readonly number[] = spec.shape): TypedArray =>
  new (arrayOf(spec.dtype))(buffer as ArrayBuffer, byteOffset, elements(shape));

function resultIn(bytes: Uint8Array<ArrayBuffer>, spec: ArraySpec, shape: readonly number[]): TypedArray {
  const tight =
    elements(shape) === extent(shape, spec.shape) ? bytes : gathered(bytes, shape, spec.shape, arrayOf(spec.dtype).BYTES_PER_ELEMENT);
  return arrayIn(tight, spec, shape);
}

function describeArray(
  { dtype, shape, sizes, texts }: ArraySpec,
  now: readonly (number | string)[] = sizes?.told.map(sizeText) ?? shape,
): string {
  return `${texts ? "list of strings" : arrayOf(dtype).name} of shape (${now.join(", ")})`;
}

type Data = TypedArray | readonly string[];

const isShaped = (input: Inputs[string] | undefined): input is Shaped<Data> =>
  Object(input) === input && Object.getPrototypeOf(input) === Object.prototype && "data" in (input as object);

const dataOf = (input: Inputs[string] | undefined): Data | Frame | undefined => (isShaped(input) ? input.data : (input as Data | Frame));

const shapeGiven = (input: Inputs[string] | undefined): readonly number[] | undefined => (isShaped(input) ? input.shape : undefined);

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

/** Whether they are the same memory: what is sent is another object each time, but shows what is written to it. */
function isSame(sent: Uint8Array, place: Uint8Array): boolean {
  const before = sent[0] as number;
  place[0] = ~before;
  const same = sent[0] !== before;
  place[0] = before;
  return same;
}

function write(engine: Engine, spec: ArraySpec, shape: readonly number[], input: Uint8Array<ArrayBuffer> | Frame): void {
  const { buffer } = spec;
  const [height, width] = shape as [number, number];
  if (input instanceof Uint8Array) {
    const place = spec.sizes ? undefined : engine.place?.(sliceOf(spec));
    const apart = elements(shape) !== extent(shape, spec.shape);
    if (apart) engine.write(buffer, 0, spread(input, shape, spec.shape, arrayOf(spec.dtype).BYTES_PER_ELEMENT));
    else if (!place || !isSame(input, place)) engine.write(buffer, 0, input);
  } else if (engine.writeFrame) engine.writeFrame(buffer, input, width, height);
  else engine.write(buffer, 0, pixelsOf(input, width, height));
}

function pixelsOf(frame: Frame, width: number, height: number): Uint8Array<ArrayBuffer> {
  const canvas = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true }) as OffscreenCanvasRenderingContext2D;
  canvas.drawImage(frame, 0, 0);
  return new Uint8Array(canvas.getImageData(0, 0, width, height).data.buffer);
}

/** A view of the array's bytes; a frame as it is. */
function checkInput(spec: ArraySpec, shape: readonly number[], input: Data | Frame | undefined): Uint8Array<ArrayBuffer> | Frame {
  const array = spec.texts ? placesOf(input, spec.texts) : input;
  if (isFrame(array)) {
    const { displayWidth, displayHeight, width = displayWidth, height = displayHeight } = array as Partial<VideoFrame & ImageBitmap>;
    if (spec.dtype + spec.shape.join() === `u8${height},${width},4`) return array;
  }
  const wanted = arrayOf(spec.dtype);
  const count = elements(shape);
  if (!(array instanceof wanted) || array.length !== count) {
    const given = ArrayBuffer.isView(input) ? `${input.constructor.name} with ${(input as TypedArray).length}` : typeof input;
    throw badArgument(`The input "${spec.name}" must be a ${describeArray(spec, shape)}, ${count} elements, not ${given}.`);
  }
  return new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);
}

const wordsAt = (places: TypedArray | undefined, texts: readonly string[]): string[] =>
  Array.from((places ?? []) as Int32Array, (place) => texts[place] ?? "");

/** The places of strings in a list; of those that are not in it, the one behind its end. Undefined for what is no list of strings. */
function placesOf(input: Data | Frame | undefined, texts: readonly string[]): Int32Array | undefined {
  const places = new Map(texts.map((text, i) => [text, i]));
  return Array.isArray(input) && input.every((text) => typeof text === "string")
    ? Int32Array.from(input, (text: string) => places.get(text) ?? texts.length)
    : undefined;
}
