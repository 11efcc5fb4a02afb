/** Noise from a seed, the same on every device (docs/image.md): a pure function of the seed, the draw and the place. */

const PARITY = 0x1bd11bda;
const ROTATIONS = [
  [13, 15, 26, 6],
  [17, 29, 16, 24],
] as const;

/**
 * Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011).
 * @returns two unsigned words for two words of key and two of counter
 */
export function threefry(key0: number, key1: number, counter0: number, counter1: number): [number, number] {
  const keys = [key0, key1, key0 ^ key1 ^ PARITY] as const;
  let a = (counter0 + key0) | 0;
  let b = (counter1 + key1) | 0;
  for (let block = 0; block < 5; block++) {
    for (const turn of ROTATIONS[(block % 2) as 0 | 1]) {
      a = (a + b) | 0;
      b = ((b << turn) | (b >>> (32 - turn))) ^ a;
    }
    a = (a + (keys[(block + 1) % 3] as number)) | 0;
    b = (b + (keys[(block + 2) % 3] as number) + block + 1) | 0;
  }
  return [a >>> 0, b >>> 0];
}

/**
 * `count` standard normals by the cosine of Box and Muller (1958): value i comes from the seed as key and (i, draw) as counter.
 * @param seed 0 … 2⁵³ − 1 @param draw 0 for the noise a picture begins from, k for step k
 */
export function normals(seed: number, draw: number, count: number): Float32Array<ArrayBuffer> {
  const low = seed | 0; // modulo 2³²
  const high = Math.floor(seed / 2 ** 32) | 0;
  return Float32Array.from({ length: count }, (_, i) => {
    const [a, b] = threefry(low, high, i, draw);
    return Math.sqrt(-2 * Math.log((a + 0.5) / 2 ** 32)) * Math.cos((2 * Math.PI * b) / 2 ** 32);
  });
}
