/**
 * SHA-256 as lowercase hex: the browser's own in secure contexts. Pages served over plain http (a phone that visits a
 * laptop) have none, so the algorithm of FIPS 180-4 stands here too; a library's would take 2 KB more of every page.
 */

/** @param native overrides what the platform offers; `null` forces the implementation below */
export async function sha256Hex(
  bytes: Uint8Array<ArrayBuffer>,
  native: Pick<SubtleCrypto, "digest"> | null = globalThis.crypto?.subtle ?? null,
): Promise<string> {
  if (native) return hex(new DataView(await native.digest("SHA-256", bytes)));
  const hash = new Sha256();
  hash.update(bytes);
  return hash.hex();
}

function hex(digest: DataView): string {
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

/** Of bytes that come in pieces: the browser's own wants all of them at once, and makes a copy. */
export class Sha256 {
  private readonly state = INITIAL.slice();
  private readonly words = new Int32Array(64);
  /** The beginning of a block. */
  private readonly held = new Uint8Array(BLOCK);
  private length = 0;

  update(bytes: Uint8Array): void {
    const held = this.length % BLOCK;
    const first = held > 0 ? Math.min(BLOCK - held, bytes.length) : 0;
    this.length += bytes.length;
    this.held.set(bytes.subarray(0, first), held);
    if (held + first === BLOCK) this.blocks(this.held);
    else if (held > 0) return;
    const rest = bytes.subarray(first);
    this.blocks(rest);
    this.held.set(rest.subarray(rest.length - (rest.length % BLOCK)));
  }

  /** Lowercase hex, of all that came; nothing may come behind. */
  hex(): string {
    // Padding: one 1 bit, zeros, the length in bits as a 64-bit integer at the end of a block.
    const held = this.length % BLOCK;
    const tail = new Uint8Array(held + 9 <= BLOCK ? BLOCK : 2 * BLOCK);
    tail.set(this.held.subarray(0, held));
    tail[held] = 0x80;
    const view = new DataView(tail.buffer);
    view.setUint32(tail.length - 8, Math.floor(this.length / 2 ** 29));
    view.setUint32(tail.length - 4, this.length << 3);
    this.blocks(tail);
    this.state.forEach((word, i) => view.setInt32(4 * i, word));
    return hex(view);
  }

  private blocks(bytes: Uint8Array): void {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let at = 0; at + BLOCK <= bytes.length; at += BLOCK) compress(this.state, this.words, view, at);
  }
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
  // one by one: a list of them for each block would be three times as much memory as what is hashed
  state[0]! += a;
  state[1]! += b;
  state[2]! += c;
  state[3]! += d;
  state[4]! += e;
  state[5]! += f;
  state[6]! += g;
  state[7]! += h;
}

function rotate(x: number, by: number): number {
  return (x >>> by) | (x << (32 - by));
}
