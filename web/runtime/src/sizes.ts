/** Sizes that vary: read from the inputs of a call, and how arrays of such shapes lie in memory. */

import { badArgument } from "./arguments.js";
import type { Value } from "./check.js";
import { TinywebError } from "./errors.js";
import { compileExpression, type Evaluate, type Expression } from "./expression.js";
import { INT32_MAX, type Variable } from "./manifest.js";
import type { ArraySpec } from "./tasks.js";

/** Of one axis: its size for the variables' values, and the variable of which it is so many times as much, if it is that alone. */
interface Axis {
  size: Evaluate;
  slot: number | undefined;
  times: number;
}

/** The sizes of an array some of which vary. */
export interface Sizes {
  /** As the manifest has them. */
  told: Expression[];
  axes: Axis[];
}

/** Arrays with their shapes. */
export interface Shaped<Data> {
  data: Data;
  shape: readonly number[];
}

/** @param list `sizes` of an input or output whose largest shape is `shape`; absent where nothing varies */
export function parseSizes(list: Value, shape: readonly number[], slots: ReadonlyMap<string, number>): Sizes | undefined {
  if (!list.present) return undefined;
  const told: Expression[] = [];
  const axes = list.list((v): Axis => {
    return v.raw((tree, fail) => {
      const size = compileExpression(tree, slots, fail);
      told.push(tree as Expression);
      return { size, ...multiple(tree as Expression, slots) };
    });
  });
  if (axes.length !== shape.length) list.fail(`must be ${shape.length} sizes`);
  return { told, axes };
}

/** The variable, and how many times it a size is. */
function multiple(tree: Expression, slots: ReadonlyMap<string, number>): Pick<Axis, "slot" | "times"> {
  const [a, b] = typeof tree === "object" && "op" in tree && tree.op === "mul" ? tree.args : [tree, 1];
  const times = typeof b === "number" && b > 0 ? b : 1;
  return { slot: times === b && typeof a === "object" && "var" in a ? slots.get(a.var) : undefined, times };
}

/** The values of variables, as far as the inputs of a call tell them. */
export class Told {
  readonly values: Int32Array;
  private readonly by: string[] = [];

  constructor(private readonly variables: readonly Variable[]) {
    this.values = new Int32Array(variables.length).fill(-1);
  }

  /** Takes the variables from a shape. @throws TinywebError "bad-argument" where it is none that the input can have */
  take({ name, shape: room, sizes }: ArraySpec, shape: readonly number[]): void {
    if (!Array.isArray(shape) || shape.length !== room.length || !shape.every((n) => Number.isInteger(n) && n >= 0 && n <= INT32_MAX)) {
      throw badArgument(`The shape of the input "${name}" must be ${room.length} sizes, not ${JSON.stringify(shape)}.`);
    }
    sizes?.axes.forEach(({ slot, times }, i) => {
      if (slot !== undefined) this.set(slot, (shape[i] as number) / times, name, times);
    });
  }

  /** Works out the only variable that is not known from the number of elements. */
  infer({ name, sizes }: ArraySpec, elements: number): void {
    const open = (sizes?.axes ?? []).filter(({ slot }) => slot !== undefined && (this.values[slot] as number) < 0);
    if (open.length === 0) return;
    const [axis, more] = open as [Axis, Axis?];
    const others = (sizes as Sizes).axes.filter((other) => other !== axis).reduce((n, { size }) => n * size(this.values), 1);
    if (more || others <= 0 || elements % (others * axis.times)) {
      throw badArgument(`The input "${name}" has sizes that its ${elements} elements do not tell: give { data, shape }.`);
    }
    this.set(axis.slot as number, elements / others / axis.times, name, axis.times);
  }

  private set(slot: number, value: number, by: string, times: number): void {
    const { name, min, max } = this.variables[slot] as Variable;
    if (!Number.isInteger(value)) throw badArgument(`The input "${by}" has a size of ${value * times}, which is no multiple of ${times}.`);
    const before = this.values[slot] as number;
    if (value < min || value > max) {
      throw badArgument(`The input "${by}" has ${name} = ${value}; this model takes ${min} … ${max}.`);
    }
    if (before >= 0 && before !== value) {
      throw badArgument(`The inputs "${this.by[slot]}" and "${by}" have ${name} = ${before} and ${name} = ${value}.`);
    }
    this.values[slot] = value;
    this.by[slot] = by;
  }
}

/** The shape for the variables' values. */
export function shapeOf({ name, shape, sizes }: ArraySpec, values: Int32Array): number[] {
  if (!sizes) return shape;
  const found = sizes.axes.map(({ size }) => size(values));
  if (found.every((n, i) => n >= 0 && n <= (shape[i] as number))) return found;
  throw new TinywebError("bad-manifest", `"${name}" has no room for the shape (${found.join(", ")}).`);
}

/** For people: numbers, names, and what is made of them. */
export function sizeText(size: Expression): string {
  if (typeof size === "number") return String(size);
  if ("var" in size) return size.var;
  const [a, b] = size.args.map(sizeText) as [string, string];
  const sign = { add: "+", mul: "·", floordiv: "/", mod: "mod" } as Record<string, string>;
  return sign[size.op] ? `(${a} ${sign[size.op]} ${b})` : `${size.op}(${a}, ${b})`;
}

/** Elements from the first to the one behind the last of an array of `shape` in memory that holds `room`. */
export function extent(shape: readonly number[], room: readonly number[]): number {
  let last = 0;
  for (let i = 0; i < shape.length; i++) {
    if (shape[i] === 0) return 0;
    last = last * (room[i] as number) + (shape[i] as number) - 1;
  }
  return last + 1;
}

/**
 * Copies an array of `shape` between memory that holds just that and memory that holds `room`.
 * @param width bytes of an element
 */
function copyRows(
  shape: readonly number[],
  room: readonly number[],
  width: number,
  copy: (tight: number, wide: number, bytes: number) => void,
): void {
  let axis = shape.length;
  let run = width; // bytes that lie together in both
  let wide = width;
  for (let whole = true; axis > 0 && whole; wide *= room[axis] as number) {
    axis--;
    run *= shape[axis] as number;
    whole = shape[axis] === room[axis];
  }
  const outer = shape.slice(0, axis);
  const count = run && outer.reduce((n, size) => n * size, 1);
  for (let i = 0; i < count; i++) {
    let [rest, at, step] = [i, 0, wide];
    for (let a = axis - 1; a >= 0; step *= room[a--] as number) {
      at += (rest % (outer[a] as number)) * step;
      rest = Math.floor(rest / (outer[a] as number));
    }
    copy(i * run, at, run);
  }
}

/** The bytes of an array as they lie in memory that holds `room`; what is between rows is 0. */
export function spread(
  bytes: Uint8Array<ArrayBuffer>,
  shape: readonly number[],
  room: readonly number[],
  width: number,
): Uint8Array<ArrayBuffer> {
  const wide = new Uint8Array(extent(shape, room) * width);
  copyRows(shape, room, width, (from, to, n) => wide.set(bytes.subarray(from, from + n), to));
  return wide;
}

/** `spread` the other way. */
export function gathered(
  wide: Uint8Array<ArrayBuffer>,
  shape: readonly number[],
  room: readonly number[],
  width: number,
): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(shape.reduce((n, size) => n * size, width));
  copyRows(shape, room, width, (to, from, n) => bytes.set(wide.subarray(from, from + n), to));
  return bytes;
}
