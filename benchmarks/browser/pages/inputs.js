/** The same numbers for everybody: uniform in [0, 1), by a linear congruential generator. */
export function uniform(count, seed) {
  const values = new Float32Array(count);
  let state = (seed * 2654435761 + 12345) >>> 0;
  for (let i = 0; i < count; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[i] = state / 2 ** 32;
  }
  return values;
}

/** Typed arrays by the names of dtypes; halves are their bits. */
const ARRAYS = {
  float32: Float32Array,
  float16: Uint16Array,
  int64: BigInt64Array,
  int32: Int32Array,
  int16: Int16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

/** Inputs as a file has them, { name: { array, shape, dtype } }: `arrays` says what lies at which byte of it. */
export async function inputsFrom(file, arrays) {
  const bytes = await (await fetch(new URL(file, location.origin))).arrayBuffer();
  return Object.fromEntries(
    Object.entries(arrays).map(([name, { dtype, shape, at }]) => {
      const count = shape.reduce((n, size) => n * size, 1);
      return [name, { array: new ARRAYS[dtype](bytes, at, count), shape, dtype }];
    }),
  );
}

/** Inputs by name for { name: shape }, centred on 0. */
export function inputsOf(shapes) {
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape], i) => [
      name,
      uniform(
        shape.reduce((n, size) => n * size, 1),
        i + 1,
      ).map((value) => value - 0.5),
    ]),
  );
}
