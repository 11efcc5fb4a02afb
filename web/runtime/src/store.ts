/**
 * The weights store: brings every shard from browser storage or the network to its place on the device, verified.
 * At most two shards are held at a time; each is dropped as soon as it is written.
 */

import { fetchSized, type DownloadSettings } from "./download.js";
import { throwIfAborted, together, TinywebError } from "./errors.js";
import { sha256Hex } from "./hash.js";
import type { Manifest, Segment, Shard } from "./manifest.js";
import type { ShardCache } from "./shard-cache.js";

export interface WeightsTarget {
  write(buffer: number, offset: number, bytes: Uint8Array<ArrayBuffer>): void;
  flush(): Promise<void>;
}

export interface WeightsProgress {
  loadedBytes: number;
  totalBytes: number;
  /** True as long as nothing came over the network. */
  fromCache: boolean;
  /** Estimated from the network's speed over the last seconds; absent until there is a speed. */
  secondsLeft?: number;
}

export interface StoreSettings extends DownloadSettings {
  baseUrl: URL;
  cache: ShardCache | undefined;
  onProgress?: (progress: WeightsProgress) => void;
  /** Replaces SHA-256 in tests. */
  hash?: (bytes: Uint8Array<ArrayBuffer>) => Promise<string>;
}

const IN_FLIGHT = 2;

/** @throws TinywebError "download-failed" | "hash-mismatch" | "out-of-memory" | "aborted" */
export async function loadWeights(manifest: Manifest, target: WeightsTarget, settings: StoreSettings): Promise<void> {
  const { shards } = manifest.weights;
  const placements = shards.map((): Placement[] => []);
  for (const { id, segments } of manifest.buffers) {
    for (const segment of segments) placements[segment.shard]?.push({ buffer: id, ...segment });
  }
  const meter = new Meter(manifest.weights.bytes, settings.onProgress);
  const largest = Math.max(0, ...shards.map(({ bytes }) => bytes));
  let next = 0;
  const lane = async (loader: ShardLoader, stop: AbortSignal): Promise<void> => {
    // One for all downloads of a lane: memory that is only let go is collected too late.
    let scratch: Uint8Array<ArrayBuffer> | undefined;
    while (next < shards.length && !stop.aborted) {
      const index = next++;
      const bytes = await loader.load(shards[index] as Shard, index, () => (scratch ??= allocate(largest)));
      for (const p of placements[index] as Placement[]) {
        target.write(p.buffer, p.at, bytes.subarray(p.offset, p.offset + p.bytes));
      }
      await target.flush();
    }
  };
  meter.report(true);
  await together(settings.signal, (stop) => {
    const loader = new ShardLoader({ ...settings, signal: stop }, meter);
    return Array.from({ length: IN_FLIGHT }, () => lane(loader, stop));
  });
  meter.report(true);
}

interface Placement extends Segment {
  buffer: number;
}

class ShardLoader {
  private cache: ShardCache | undefined;

  constructor(
    private readonly settings: StoreSettings,
    private readonly meter: Meter,
  ) {
    this.cache = settings.cache;
  }

  /** A verified shard: from storage, from a broken download and the rest of it, or from the network into `scratch`. */
  async load(shard: Shard, index: number, scratch: () => Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
    const stored = await this.cache?.read(shard.sha256);
    if (stored?.length === shard.bytes) {
      if (await this.verify(stored, shard)) {
        this.meter.set(index, shard.bytes, 0);
        return stored;
      }
      await this.cache?.remove(shard.sha256);
    }
    const bytes = scratch().subarray(0, shard.bytes);
    if (stored && stored.length < shard.bytes) {
      bytes.set(stored);
      // A beginning that does not lead to the right hash is thrown away; that is not the server's fault.
      if (await this.fetch(shard, index, bytes, stored.length, "default")) return bytes;
    }
    for (const mode of ["default", "reload"] as const) {
      if (await this.fetch(shard, index, bytes, 0, mode)) return bytes;
    }
    throw new TinywebError(
      "hash-mismatch",
      `${shard.file} arrived damaged twice: the site's files are mixed up, or changed on the way.`,
    );
  }

  /** Downloads into `bytes` behind the first `start`; false when the hash is wrong. */
  private async fetch(
    shard: Shard, index: number, bytes: Uint8Array<ArrayBuffer>, start: number, mode: RequestCache,
  ): Promise<boolean> {
    const url = new URL(shard.file, this.settings.baseUrl).href;
    let writer = await this.cache?.open(shard.sha256, start);
    let full = false;
    let verified = false;
    this.meter.set(index, start, 0);
    try {
      const chunk = (part: Uint8Array, at: number): void => {
        bytes.set(part, at);
        if (writer && !full) full = !writer.write(part, at);
        this.meter.set(index, at + part.length, part.length);
      };
      await fetchSized(url, shard.bytes, { start, chunk }, this.settings, mode);
      verified = await this.verify(bytes, shard);
    } catch (error) {
      if (!(error instanceof TinywebError) || error.code !== "hash-mismatch") throw error;
    } finally {
      await writer?.close(verified ? bytes : undefined);
      writer = undefined;
      if (full) await this.makeRoom(shard, verified ? bytes : undefined);
    }
    if (!verified) await this.settings.cache?.remove(shard.sha256);
    return verified;
  }

  /** Storage was full: gives up other models' weights for this one, then does without storage. */
  private async makeRoom(shard: Shard, bytes: Uint8Array<ArrayBuffer> | undefined): Promise<void> {
    const { cache } = this.settings;
    await cache?.remove(shard.sha256);
    while (cache && bytes && (await cache.evictOther())) {
      const writer = await cache.open(shard.sha256, 0);
      if (!writer) return; // another tab writes it
      const kept = writer.write(bytes, 0);
      await writer.close(bytes);
      if (kept) return;
      await cache.remove(shard.sha256);
    }
    if (bytes) this.cache = undefined;
  }

  private async verify(bytes: Uint8Array<ArrayBuffer>, shard: Shard): Promise<boolean> {
    const digest = await (this.settings.hash ?? sha256Hex)(bytes);
    throwIfAborted(this.settings.signal);
    return digest === shard.sha256;
  }
}

function allocate(bytes: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (error) {
    throw new TinywebError("out-of-memory", `The browser could not allocate the ${bytes} bytes a part of this model needs.`, error);
  }
}

const REPORT_MS = 100;
const WINDOW_MS = 5000;

/** Adds up what is loaded and estimates the time left. */
class Meter {
  /** Bytes of each shard. */
  private readonly loaded: number[] = [];
  private network = 0;
  private samples: { time: number; network: number }[] = [];
  private reported = -Infinity;

  constructor(
    private readonly total: number,
    private readonly listener: ((progress: WeightsProgress) => void) | undefined,
  ) {}

  /** @param loaded bytes of this shard that are here; @param network how many of them just came over the network */
  set(shard: number, loaded: number, network: number): void {
    this.loaded[shard] = loaded;
    this.network += network;
    this.report(false);
  }

  report(now: boolean): void {
    const time = performance.now();
    if (!this.listener || (!now && time - this.reported < REPORT_MS)) return;
    this.reported = time;
    const loadedBytes = this.loaded.reduce((sum, bytes) => sum + bytes, 0);
    const progress: WeightsProgress = { loadedBytes, totalBytes: this.total, fromCache: this.network === 0 };
    this.samples = this.samples.filter((sample) => time - sample.time < WINDOW_MS);
    const first = this.samples[0];
    if (first && this.network > first.network) {
      const bytesPerMs = (this.network - first.network) / (time - first.time);
      progress.secondsLeft = (this.total - loadedBytes) / bytesPerMs / 1000;
    }
    this.samples.push({ time, network: this.network });
    this.listener(progress);
  }
}
