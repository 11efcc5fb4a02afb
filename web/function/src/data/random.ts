/** Random numbers that a seed repeats. */

/** Numbers in 0 … 1: a Weyl sequence whose words are mixed (the finaliser of MurmurHash3). */
export function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let word = state;
    word = Math.imul(word ^ (word >>> 16), 0x85ebca6b);
    word = Math.imul(word ^ (word >>> 13), 0xc2b2ae35);
    return ((word ^ (word >>> 16)) >>> 0) / 2 ** 32;
  };
}

export type Spread = "uniform" | "normal" | "integers" | "zeros" | "ones";

/** @param most of integers, exclusive */
export function randomValues(length: number, spread: Spread, seed: number, most: number): Float64Array {
  const next = generator(seed);
  const values = new Float64Array(length);
  if (spread === "zeros") return values;
  if (spread === "ones") return values.fill(1);
  for (let i = 0; i < length; i++) {
    if (spread === "uniform") values[i] = next();
    else if (spread === "integers") values[i] = Math.floor(next() * most);
    // Box and Muller 1958
    else values[i] = Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  }
  return values;
}
