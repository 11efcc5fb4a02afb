/**
 * The weights store: brings every shard from browser storage or the network to its place on the device, verified.
 * At most two shards are on their way at a time. Where the device's memory can be written to at once, no copy of them is held.
 */

import { differs } from "./bundle.js";
import { fetchSized, readChunks, type DownloadSettings } from "./download.js";
import { throwIfAborted, together, TinywebError } from "./errors.js";
import { sha256Hex } from "./hash.js";
import { allocate, landingFor, release, Scratch, type Landing, type Placement, type WeightsTarget } from "./landing.js";
import type { Manifest, Shard } from "./manifest.js";
import type { ShardCache } from "./shard-cache.js";

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
/** Shards that are still to come while others may be in memory a second and a third time: their places are not in use yet. */
const SPARE = 2 * IN_FLIGHT;

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
  let left = manifest.weights.bytes;
  const lane = async (loader: ShardLoader, stop: AbortSignal): Promise<void> => {
    // One for all downloads of a lane: memory that is only let go is collected too late.
    let scratch: Uint8Array<ArrayBuffer> | undefined;
    while (next < shards.length && !stop.aborted) {
      const index = next++;
      const shard = shards[index] as Shard;
      left -= shard.bytes;
      const spare = left > SPARE * largest;
      if (target.place && !spare) {
        release(scratch);
        scratch = undefined;
      }
      await loader.load(shard, index, placements[index] as Placement[], () => (scratch ??= allocate(largest)), spare);
      await target.flush();
    }
    release(scratch);
  };
  meter.report(true);
  await together(settings.signal, (stop) => {
    const loader = new ShardLoader({ ...settings, signal: stop }, target, meter);
    return Array.from({ length: IN_FLIGHT }, () => lane(loader, stop));
  });
  meter.report(true);
}

class ShardLoader {
  private cache: ShardCache | undefined;
  private verified: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly settings: StoreSettings,
    private readonly target: WeightsTarget,
    private readonly meter: Meter,
  ) {
    this.cache = settings.cache;
  }

  /** Brings a verified shard to its places, with `spare` memory by way of another one: from storage, from a broken download and the rest of it, or from the network. */
  async load(
    shard: Shard,
    index: number,
    placements: readonly Placement[],
    scratch: () => Uint8Array<ArrayBuffer>,
    spare: boolean,
  ): Promise<void> {
    const stored = await this.cache?.read(shard.sha256);
    const { hash = sha256Hex } = this.settings;
    const whole = spare && stored?.size === shard.bytes;
    const landing = whole
      ? new Scratch(this.target, placements, scratch().subarray(0, shard.bytes))
      : landingFor(this.target, placements, shard.bytes, scratch);
    if (stored?.size === shard.bytes) {
      if ((await this.take(stored, landing)) && !(await this.verify(shard, () => landing.sha256(hash)))) {
        this.meter.set(index, shard.bytes, false);
        return landing.accept();
      }
      await this.cache?.remove(shard.sha256);
    }
    if (stored && stored.size < shard.bytes && (await this.take(stored, landing))) {
      // A beginning that does not lead to the right hash is thrown away; that is not the server's fault.
      if (!(await this.fetch(shard, index, landing, stored.size, "default"))) return landing.accept();
    }
    let failure: TinywebError | undefined;
    for (const mode of ["default", "reload"] as const) {
      failure = await this.fetch(shard, index, landing, 0, mode);
      if (!failure) return landing.accept();
    }
    throw failure as TinywebError;
  }

  /** Reads what is stored, through the same memory again and again. @returns false where it went away meanwhile */
  private async take(stored: Blob, landing: Landing): Promise<boolean> {
    const { signal = new AbortController().signal } = this.settings;
    let at = 0;
    try {
      await readChunks(new Response(stored), signal, (chunk) => {
        landing.put(chunk, at);
        at += chunk.length;
      });
    } catch {
      throwIfAborted(signal);
    }
    return at === stored.size;
  }

  /** Downloads what is behind the first `start` bytes; what came in place of the shard, if it is not the shard. */
  private async fetch(shard: Shard, index: number, landing: Landing, start: number, mode: RequestCache): Promise<TinywebError | undefined> {
    const url = new URL(shard.file, this.settings.baseUrl).href;
    let writer = await this.cache?.open(shard.sha256, start);
    let full = false;
    let verified = false;
    let failure: TinywebError | undefined;
    this.meter.set(index, start, false);
    try {
      const chunk = (part: Uint8Array, at: number): void => {
        landing.put(part, at);
        if (writer && !full) full = !writer.write(part, at);
        this.meter.set(index, at + part.length, true);
      };
      await fetchSized(url, shard.bytes, { start, chunk }, this.settings, mode);
      failure = await this.verify(shard, () => landing.sha256(this.settings.hash ?? sha256Hex));
      verified = !failure;
    } catch (error) {
      if (!(error instanceof TinywebError) || error.code !== "hash-mismatch") throw error;
      failure = error;
    } finally {
      await writer?.close();
      writer = undefined;
      if (full) await this.makeRoom(shard, verified ? landing.whole() : undefined);
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
      await writer.close();
      if (kept) return;
      await cache.remove(shard.sha256);
    }
    if (bytes) this.cache = undefined;
  }

  /** One after the other: browsers copy what they hash. */
  private async verify(shard: Shard, hash: () => Promise<string>): Promise<TinywebError | undefined> {
    const result = this.verified.then(async () => differs(shard.file, shard, { bytes: shard.bytes, sha256: await hash() }));
    this.verified = result.catch(() => undefined);
    const failure = await result;
    throwIfAborted(this.settings.signal);
    return failure;
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
