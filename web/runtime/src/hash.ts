/**
 * SHA-256 as lowercase hex: the browser's own in secure contexts. Pages served over plain http (a phone that visits a
 * laptop) have none, so the algorithm of FIPS 180-4 stands here too; a library's would take 2 KB more of every page.
 */

/** @param native overrides what the platform offers; `null` forces the implementation below */
export async function sha256Hex(
  bytes: Uint8Array<ArrayBuffer>,
  native: Pick<SubtleCrypto, "digest"> | null = globalThis.crypto?.subtle ?? null,
): Promise<string> {
  const digest = native ? new Uint8Array(await native.digest("SHA-256", bytes)) : sha256(bytes);
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
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

function sha256(message: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
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
  return new Uint8Array(digest.buffer);
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
  const v = state.slice();
  for (let i = 0; i < 64; i++) {
    // The standard moves each of the eight words on by one place per round; here the places move.
    const word = (place: number): number => v[(place - i) & 7] as number;
    const [a, e] = [word(0), word(4)];
    const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const t1 = (word(7) + s1 + ((e & word(5)) ^ (~e & word(6))) + (ROUND[i] as number) + (w[i] as number)) | 0;
    const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    const t2 = (s0 + ((a & word(1)) ^ (a & word(2)) ^ (word(1) & word(2)))) | 0;
    v[(3 - i) & 7]! += t1;
    v[(7 - i) & 7] = t1 + t2;
  }
  v.forEach((word, i) => (state[i]! += word));
}

function rotate(x: number, by: number): number {
  return (x >>> by) | (x << (32 - by));
}
