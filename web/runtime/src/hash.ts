/**
 * SHA-256 as lowercase hex: the browser's own in secure contexts. Pages served over plain http (a phone that visits a
 * laptop) have none, so the algorithm of FIPS 180-4 stands here too; a library's would take 2 KB more of every page.
 */

/** @param native overrides what the platform offers; `null` forces the implementation below */
export async function sha256Hex(
  bytes: Uint8Array<ArrayBuffer>,
  native: Pick<SubtleCrypto, "digest"> | null = globalThis.crypto?.subtle ?? null,
): Promise<string> {
  const digest = native ? new DataView(await native.digest("SHA-256", bytes)) : sha256(bytes);
  return Array.from({ length: 8 }, (_, i) =>
    digest
      .getUint32(4 * i)
      .toString(16)
      .padStart(8, "0"),
  ).join("");
}

const BLOCK = 64;

/** First 32 bits of the fractional part. */
const fraction = (x: number): number => ((x - Math.floor(x)) * 2 ** 32) | 0;

/** The standard's constants: fractions of the cube roots, and of the square roots, of the first primes. */
const [ROUND, INITIAL] = ((): [Int32Array, Int32Array] => {
  const primes: number[] = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p !== 0)) primes.push(n);
  return [Int32Array.from(primes, (p) => fraction(Math.cbrt(p))), Int32Array.from(primes.slice(0, 8), (p) => fraction(Math.sqrt(p)))];
})();

function sha256(message: Uint8Array<ArrayBuffer>): DataView {
  const state = INITIAL.slice();
  const words = new Int32Array(64);
  const whole = message.length - (message.length % BLOCK);
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  for (let at = 0; at < whole; at += BLOCK) compress(state, words, view, at);
  // Padding: one 1 bit, zeros, the length in bits as a 64-bit integer at the end of a block.
  const rest = message.length - whole;
  const tail = new Uint8Array(rest + 9 <= BLOCK ? BLOCK : 2 * BLOCK);
  tail.set(message.subarray(whole));
  tail[rest] = 0x80;
  const tailView = new DataView(tail.buffer);
  tailView.setUint32(tail.length - 8, Math.floor(message.length / 2 ** 29));
  tailView.setUint32(tail.length - 4, message.length << 3);
  for (let at = 0; at < tail.length; at += BLOCK) compress(state, words, tailView, at);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setInt32(4 * i, word));
  return digest;
}

function compress(state: Int32Array, w: Int32Array, view: DataView, at: number): void {
  for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15] as number;
    const y = w[i - 2] as number;
    const s0 = rotate(x, 7) ^ rotate(x, 18) ^ (x >>> 3);
    const s1 = rotate(y, 17) ^ rotate(y, 19) ^ (y >>> 10);
    w[i] = ((w[i - 16] as number) + s0 + (w[i - 7] as number) + s1) | 0;
  }
  let a = state[0] as number;
  let b = state[1] as number;
  let c = state[2] as number;
  let d = state[3] as number;
  let e = state[4] as number;
  let f = state[5] as number;
  let g = state[6] as number;
  let h = state[7] as number;
  for (let i = 0; i < 64; i++) {
    const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + (ROUND[i] as number) + (w[i] as number)) | 0;
    const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i]! += word));
}

function rotate(x: number, by: number): number {
  return (x >>> by) | (x << (32 - by));
}
