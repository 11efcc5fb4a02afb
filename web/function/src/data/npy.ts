/** NumPy's .npy files (NumPy Enhancement Proposal 1), versions 1 to 3, of numbers. */

import { count, fromHalf, type Numeric, shapeText } from "./arrays";
import { FeedError } from "./problem";

const MAGIC = "\x93NUMPY";

type Read = (view: DataView, at: number, little: boolean) => number | bigint;
const READERS: Record<string, [bytes: number, read: Read]> = {
  f8: [8, (v, at, little) => v.getFloat64(at, little)],
  f4: [4, (v, at, little) => v.getFloat32(at, little)],
  f2: [2, (v, at, little) => fromHalf(v.getUint16(at, little))],
  i8: [8, (v, at, little) => v.getBigInt64(at, little)],
  u8: [8, (v, at, little) => v.getBigUint64(at, little)],
  i4: [4, (v, at, little) => v.getInt32(at, little)],
  u4: [4, (v, at, little) => v.getUint32(at, little)],
  i2: [2, (v, at, little) => v.getInt16(at, little)],
  u2: [2, (v, at, little) => v.getUint16(at, little)],
  i1: [1, (v, at) => v.getInt8(at)],
  u1: [1, (v, at) => v.getUint8(at)],
  b1: [1, (v, at) => v.getUint8(at)],
};

export interface Numbers {
  values: Numeric;
  shape: number[];
}

/** @throws FeedError for what is no such file, of other elements than numbers, or cut */
export function parseNpy(bytes: Uint8Array): Numbers {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const latin = (from: number, to: number): string => String.fromCharCode(...bytes.subarray(from, Math.min(to, from + 4096)));
  if (bytes.length < 12 || latin(0, 6) !== MAGIC) throw new FeedError("This is no .npy file.");
  const long = (bytes[6] as number) > 1;
  const start = long ? 12 : 10;
  const length = long ? view.getUint32(8, true) : view.getUint16(8, true);
  const head = latin(start, start + length);
  const descr = /'descr':\s*'([<>|=])?(\w+)'/u.exec(head);
  const sizes = /'shape':\s*\(([\d,\sL]*)\)/u.exec(head);
  const reader = READERS[descr?.[2] ?? ""];
  if (reader === undefined || sizes === null) throw new FeedError("This .npy file is not of numbers.");
  const shape = (sizes[1] as string)
    .split(",")
    .map((size) => size.trim())
    .filter((size) => size !== "")
    .map((size) => Number.parseInt(size, 10));
  const [size, read] = reader;
  const total = count(shape);
  if (start + length + total * size > bytes.length) throw new FeedError("This .npy file is cut: its numbers do not all lie in it.");
  const little = descr?.[1] !== ">";
  const values = memory(descr?.[2], total);
  for (let i = 0; i < total; i++) values[i] = read(view, start + length + i * size, little);
  return { values: /'fortran_order':\s*True/u.test(head) ? rowMajor(values, memory(descr?.[2], total), shape) : values, shape };
}

interface Writable {
  readonly length: number;
  [at: number]: number | bigint;
}

/** For elements of a type with all their digits. */
function memory(descr: string | undefined, total: number): Writable {
  if (descr === "i8") return new BigInt64Array(total);
  return descr === "u8" ? new BigUint64Array(total) : new Float64Array(total);
}

function rowMajor(values: Numeric, made: Writable, shape: readonly number[]): Numeric {
  const place = new Array<number>(shape.length).fill(0);
  for (let i = 0; i < values.length; i++) {
    let at = 0;
    for (let axis = shape.length - 1; axis >= 0; axis--) at = at * (shape[axis] as number) + (place[axis] as number);
    made[i] = values[at] as number | bigint;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      place[axis] = (place[axis] as number) + 1;
      if ((place[axis] as number) < (shape[axis] as number)) break;
      place[axis] = 0;
    }
  }
  return made;
}

/** The elements for an input of `wanted`: axes of size 1 may be missing, or be more. @throws FeedError where they are others */
export function fitted({ values, shape }: Numbers, wanted: readonly number[]): Numeric {
  const whole = (sizes: readonly number[]): string => sizes.filter((size) => size !== 1).join();
  if (whole(shape) !== whole(wanted)) throw new FeedError(`The file has the shape ${shapeText(shape)}; ${shapeText(wanted)} goes in.`);
  return values;
}

const CODES: Record<string, string> = {
  f32: "<f4",
  f16: "<f2",
  i32: "<i4",
  u32: "<u4",
  i16: "<i2",
  u16: "<u2",
  i8: "|i1",
  u8: "|u1",
  bool: "|b1",
  i64: "<i8",
  u64: "<u8",
};

/** A .npy file, version 1. @param data little-endian, as everywhere that browsers run */
export function writeNpy(data: ArrayBufferView<ArrayBuffer>, dtype: string, shape: readonly number[]): Uint8Array<ArrayBuffer> {
  const sizes = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const head = `{'descr': '${CODES[dtype] ?? "<f4"}', 'fortran_order': False, 'shape': (${sizes}), }`;
  const length = Math.ceil((10 + head.length + 1) / 64) * 64;
  const made = new Uint8Array(length + data.byteLength);
  const text = `${MAGIC}\x01\x00\0\0${head.padEnd(length - 11)}\n`;
  for (let i = 0; i < text.length; i++) made[i] = text.charCodeAt(i);
  new DataView(made.buffer).setUint16(8, length - 10, true);
  made.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), length);
  return made;
}
