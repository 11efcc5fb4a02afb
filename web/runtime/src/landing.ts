/** Where the bytes of a shard of weights go as they come, before it is known whether they are right. */

import type { Slice } from "./engine.js";
import { TinywebError } from "./errors.js";
import { Sha256 } from "./hash.js";
import type { Segment } from "./manifest.js";

export interface WeightsTarget {
  write(buffer: number, offset: number, bytes: Uint8Array<ArrayBuffer>): void;
  /** Memory that bytes can be put into as they come. */
  place?(slice: Slice): Uint8Array;
  flush(): Promise<void>;
}

export interface Placement extends Segment {
  buffer: number;
}

export interface Landing {
  /** Takes the next bytes; those at 0 begin anew. */
  put(part: Uint8Array, at: number): void;
  /** SHA-256 of what came. @param hash of bytes in one piece */
  sha256(hash: (bytes: Uint8Array<ArrayBuffer>) => Promise<string>): Promise<string>;
  /** What came, in one piece. */
  whole(): Uint8Array<ArrayBuffer>;
  /** Brings what came to the device, where it is not there yet. */
  accept(): void;
}

/** @param scratch memory for a shard, which is asked for only where the device has no place for what is not yet known to be right */
export function landingFor(
  target: WeightsTarget,
  placements: readonly Placement[],
  bytes: number,
  scratch: () => Uint8Array<ArrayBuffer>,
): Landing {
  return target.place
    ? new InPlace(target.place.bind(target), placements, bytes)
    : new Scratch(target, placements, scratch().subarray(0, bytes));
}

/** Writes a whole shard to its places. */
function write(target: WeightsTarget, placements: readonly Placement[], shard: Uint8Array<ArrayBuffer>): void {
  for (const p of placements) target.write(p.buffer, p.at, shard.subarray(p.offset, p.offset + p.bytes));
}

/**
 * Gives memory back at once: what is only let go is collected late, and the memory of a model is tight. (Chromium keeps what `transfer`
 * gives up as long as it was hashed, not what is sent away.)
 */
export function release(bytes: Uint8Array<ArrayBuffer> | undefined): void {
  if (!bytes) return;
  const { port1, port2 } = new MessageChannel();
  port1.postMessage(0, [bytes.buffer]);
  port2.close();
}

/** Of bytes that come together before they go to the device: browsers hash one piece several times as fast as `Sha256` many. */
export class Scratch implements Landing {
  constructor(
    private readonly target: WeightsTarget,
    private readonly placements: readonly Placement[],
    private readonly bytes: Uint8Array<ArrayBuffer>,
  ) {}

  put(part: Uint8Array, at: number): void {
    this.bytes.set(part, at);
  }

  sha256(hash: (bytes: Uint8Array<ArrayBuffer>) => Promise<string>): Promise<string> {
    return hash(this.bytes);
  }

  whole(): Uint8Array<ArrayBuffer> {
    return this.bytes;
  }

  accept(): void {
    write(this.target, this.placements, this.bytes);
  }
}

/** Straight into the device's memory: no shard is in memory a second time, nor a third where it is hashed. */
class InPlace implements Landing {
  private hash = new Sha256();
  private readonly places: { offset: number; memory: Uint8Array }[];

  constructor(
    place: (slice: Slice) => Uint8Array,
    placements: readonly Placement[],
    private readonly bytes: number,
  ) {
    this.places = placements.map(({ buffer, at, offset, bytes: size }) => ({ offset, memory: place({ buffer, offset: at, bytes: size }) }));
  }

  put(part: Uint8Array, at: number): void {
    if (at === 0) this.hash = new Sha256();
    this.hash.update(part);
    for (const { offset, memory } of this.places) {
      const [begin, end] = [Math.max(at, offset), Math.min(at + part.length, offset + memory.length)];
      if (begin < end) memory.set(part.subarray(begin - at, end - at), begin - offset);
    }
  }

  async sha256(): Promise<string> {
    return this.hash.hex();
  }

  /** What no buffer has is 0. */
  whole(): Uint8Array<ArrayBuffer> {
    const found = allocate(this.bytes);
    for (const { offset, memory } of this.places) found.set(memory, offset);
    return found;
  }

  accept(): void {}
}

export function allocate(bytes: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (error) {
    throw new TinywebError("out-of-memory", `The browser could not allocate the ${bytes} bytes a part of this model needs.`, error);
  }
}
