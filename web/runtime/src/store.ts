/**
 * The weights store: brings every shard from browser storage or the network to its place on the device, verified.
 * At most two shards are held at a time; each is dropped as soon as it is written.
 */

import { wrong } from "./bundle.js";
import { fetchSized, type DownloadSettings } from "./download.js";
import { throwIfAborted, together, TinywebError } from "./errors.js";
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
  private verified: Promise<unknown> = Promise.resolve();

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
      if (!(await this.verify(stored, shard))) {
        this.meter.set(index, shard.bytes, false);
        return stored;
      }
      await this.cache?.remove(shard.sha256);
    }
    const bytes = scratch().subarray(0, shard.bytes);
    if (stored && stored.length < shard.bytes) {
      bytes.set(stored);
      // A beginning that does not lead to the right hash is thrown away; that is not the server's fault.
      if (!(await this.fetch(shard, index, bytes, stored.length, "default"))) return bytes;
    }
    let failure: TinywebError | undefined;
    for (const mode of ["default", "reload"] as const) {
      failure = await this.fetch(shard, index, bytes, 0, mode);
      if (!failure) return bytes;
    }
    throw failure as TinywebError;
  }

  /** Downloads into `bytes` behind the first `start`; what came in place of the shard, if it is not the shard. */
  private async fetch(
    shard: Shard,
    index: number,
    bytes: Uint8Array<ArrayBuffer>,
    start: number,
    mode: RequestCache,
  ): Promise<TinywebError | undefined> {
    const url = new URL(shard.file, this.settings.baseUrl).href;
    let writer = await this.cache?.open(shard.sha256, start);
    let full = false;
    let verified = false;
    let failure: TinywebError | undefined;
    this.meter.set(index, start, false);
    try {
      const chunk = (part: Uint8Array, at: number): void => {
        bytes.set(part, at);
        if (writer && !full) full = !writer.write(part, at);
        this.meter.set(index, at + part.length, true);
      };
      await fetchSized(url, shard.bytes, { start, chunk }, this.settings, mode);
      failure = await this.verify(bytes, shard);
      verified = !failure;
    } catch (error) {
      if (!(error instanceof TinywebError) || error.code !== "hash-mismatch") throw error;
      failure = error;
    } finally {
      await writer?.close(verified ? bytes : undefined);
      writer = undefined;
      if (full) await this.makeRoom(shard, verified ? bytes : undefined);
    }
    if (!verified) await this.settings.cache?.remove(shard.sha256);
    return failure;
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

  /** One after the other: browsers copy what they hash. */
  private async verify(bytes: Uint8Array<ArrayBuffer>, shard: Shard): Promise<TinywebError | undefined> {
    const result = this.verified.then(() => wrong(shard.file, shard, bytes, this.settings.hash));
    this.verified = result.catch(() => undefined);
    const failure = await result;
    throwIfAborted(this.settings.signal);
    return failure;
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

  /** Bytes count once, however often they come. @param loaded bytes of this shard that are here @param network whether the last of them just came over it */
  set(shard: number, loaded: number, network: boolean): void {
    const fresh = Math.max(0, loaded - (this.loaded[shard] ?? 0));
    this.loaded[shard] = (this.loaded[shard] ?? 0) + fresh;
    if (network) this.network += fresh;
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
