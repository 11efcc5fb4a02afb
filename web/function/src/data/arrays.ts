/** Arrays as the runtime takes and gives them, and their elements as numbers. */

import type { ArrayInfo, TypedArray } from "../model-api";

const KINDS = {
  f32: Float32Array,
  f16: Uint16Array,
  i32: Int32Array,
  u32: Uint32Array,
  i16: Int16Array,
  u16: Uint16Array,
  i8: Int8Array,
  u8: Uint8Array,
  bool: Uint8Array,
  i64: BigInt64Array,
  u64: BigUint64Array,
} as const;
type Kind = keyof typeof KINDS;

/** Least and largest value of the types of integers. */
const RANGES: Partial<Record<string, [number, number]>> = {
  i32: [-(2 ** 31), 2 ** 31 - 1],
  u32: [0, 2 ** 32 - 1],
  i16: [-(2 ** 15), 2 ** 15 - 1],
  u16: [0, 2 ** 16 - 1],
  i8: [-128, 127],
  u8: [0, 255],
  bool: [0, 1],
};

/** Numbers; those of 64 bits may be bigints, which a double would round. */
export type Numeric = ArrayLike<number | bigint>;

export const isFloat = (dtype: string): boolean => dtype === "f32" || dtype === "f16";

export const count = (shape: readonly number[]): number => shape.reduce((n, size) => n * size, 1);

/** "1 × 3 × 224 × 224"; "one number". */
export function shapeText(shape: readonly (number | string | null)[]): string {
  return shape.length === 0 ? "one number" : shape.map((size) => size ?? "?").join(" × ");
}

const NAMES: Record<string, string> = {
  f32: "float32",
  f16: "float16",
  i32: "int32",
  u32: "uint32",
  i16: "int16",
  u16: "uint16",
  i8: "int8",
  u8: "uint8",
  bool: "bool",
  i64: "int64",
  u64: "uint64",
};
export const dtypeName = (dtype: string): string => NAMES[dtype] ?? dtype;

/** "Float32Array": what holds elements of a type. */
export const arrayName = (dtype: string): string => (KINDS[dtype as Kind] ?? Float32Array).name;

const floats = new Float32Array(1);
const bits = new Uint32Array(floats.buffer);

/** The half float nearest to a number, as its bits; ties go to even (IEEE 754, 4.3.1). */
export function toHalf(value: number): number {
  floats[0] = value;
  const word = bits[0] as number;
  const sign = (word >>> 16) & 0x8000;
  const magnitude = word & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // 2 ** -24 is the least: halfway cases of these small numbers are exact in a double
    const units = Math.abs(value) * 2 ** 24;
    const low = Math.floor(units);
    const rest = units - low;
    return sign | (low + (rest > 0.5 || (rest === 0.5 && low % 2 === 1) ? 1 : 0));
  }
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
}

export function fromHalf(half: number): number {
  const exponent = (half >>> 10) & 31;
  const fraction = half & 1023;
  const value =
    exponent === 0
      ? fraction * 2 ** -24
      : exponent === 31
        ? fraction === 0
          ? Infinity
          : Number.NaN
        : (1 + fraction / 1024) * 2 ** (exponent - 15);
  return half & 0x8000 ? -value : value;
}

/** Numbers as the array that an input takes: rounded and kept within the type's range where that is of integers. */
export function toArray(values: Numeric, dtype: string): TypedArray {
  const Kept = KINDS[dtype as Kind] ?? Float32Array;
  const made = new Kept(values.length);
  if (made instanceof BigInt64Array || made instanceof BigUint64Array) return fillWhole(made, values);
  const range = RANGES[dtype];
  for (let i = 0; i < values.length; i++) {
    const value = Number(values[i]);
    if (range === undefined) made[i] = dtype === "f16" ? toHalf(value) : value;
    else made[i] = dtype === "bool" ? Number(value !== 0) : Math.min(range[1], Math.max(range[0], Math.round(value) || 0));
  }
  return made;
}

function fillWhole<A extends BigInt64Array | BigUint64Array>(made: A, values: Numeric): A {
  const [least, largest] = made instanceof BigInt64Array ? [-(2n ** 63n), 2n ** 63n - 1n] : [0n, 2n ** 64n - 1n];
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number | bigint;
    const whole = typeof value === "bigint" ? value : BigInt(Math.min(2 ** 64, Math.max(-(2 ** 63), Math.round(value) || 0)));
    made[i] = whole < least ? least : whole > largest ? largest : whole;
  }
  return made;
}

/** The elements of an array as numbers. */
export function toNumbers(array: TypedArray, dtype: string): Float64Array {
  const made = new Float64Array(array.length);
  for (let i = 0; i < array.length; i++) made[i] = dtype === "f16" ? fromHalf(array[i] as number) : Number(array[i]);
  return made;
}

/** An output: a typed array, which may have a shape of its own. */
export function unpacked(given: unknown, spec: ArrayInfo): { data: TypedArray; shape: number[] } {
  const told = given as TypedArray & { data?: TypedArray; shape?: number[] };
  return { data: spec.texts === undefined ? (told.data ?? told) : told, shape: [...(told.shape ?? spec.shape)] };
}

export interface Range {
  least: number;
  largest: number;
  mean: number;
  /** Elements that are no finite numbers, which the others leave out. */
  odd: number;
}

export function rangeOf(values: Float64Array): Range {
  let [least, largest, sum, odd] = [Infinity, -Infinity, 0, 0];
  for (const value of values) {
    if (!Number.isFinite(value)) {
      odd++;
      continue;
    }
    least = Math.min(least, value);
    largest = Math.max(largest, value);
    sum += value;
  }
  const known = values.length - odd;
  return known === 0 ? { least: 0, largest: 0, mean: 0, odd } : { least, largest, mean: sum / known, odd };
}

/** A number as people read it: six digits at most, of integers of 64 bits all. */
export function numberText(value: number | bigint): string {
  if (typeof value === "bigint") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value);
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  return size !== 0 && (size < 1e-4 || size >= 1e6) ? value.toExponential(3) : String(Number(value.toPrecision(5)));
}
