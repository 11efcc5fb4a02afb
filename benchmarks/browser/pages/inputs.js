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
