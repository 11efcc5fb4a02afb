/**
 * Browser storage for weights, one folder per model (named by the hash of its weights), one file per shard (named by its
 * hash). OPFS where workers have it, else the Cache API, else nothing. Whatever is read back is verified by the caller.
 */

/** Writes one shard; chunks come in order. */
export interface ShardWriter {
  /** @returns false when the storage is full: the shard is then not kept */
  write(chunk: Uint8Array, at: number): boolean;
  /** @param whole the verified shard; undefined when the download broke off: its beginning may be kept */
  close(whole?: Uint8Array<ArrayBuffer>): Promise<void>;
}

export interface ShardCache {
  /** What is stored of a shard: all of it, or the beginning of a broken download. */
  read(sha256: string): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** A writer that keeps the first `keep` bytes, or undefined when it cannot be written now (another tab does). */
  open(sha256: string, keep: number): Promise<ShardWriter | undefined>;
  remove(sha256: string): Promise<void>;
  /** Deletes the least recently used other model; false when there is none. */
  evictOther(): Promise<boolean>;
}

const FOLDER = "tinyweb-weights";
const USED = "last-used";

/** The best storage that works here, opened for one model; undefined where the browser offers none. */
export async function openShardCache(model: string): Promise<ShardCache | undefined> {
  for (const open of [openOpfs, openCacheStorage]) {
    try {
      const cache = await open(model);
      if (cache) return cache;
    } catch {
      // Private windows and blocked cookies refuse storage with many kinds of errors; the next kind may work.
    }
  }
  return undefined;
}

async function openOpfs(model: string): Promise<ShardCache | undefined> {
  if (typeof navigator === "undefined" || !navigator.storage?.getDirectory) return undefined;
  if (typeof FileSystemFileHandle === "undefined" || !("createSyncAccessHandle" in FileSystemFileHandle.prototype)) return undefined;
  const root = await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  const folder = await root.getDirectoryHandle(model, { create: true });
  const cache = new OpfsCache(root, folder, model);
  await cache.touch().catch(() => undefined); // another tab may hold the marker; it is fresh then
  return cache;
}

class OpfsCache implements ShardCache {
  constructor(
    private readonly root: FileSystemDirectoryHandle,
    private readonly folder: FileSystemDirectoryHandle,
    private readonly model: string,
  ) {}

  async touch(): Promise<void> {
    const handle = await (await this.folder.getFileHandle(USED, { create: true })).createSyncAccessHandle();
    handle.truncate(0);
    handle.write(new TextEncoder().encode(String(Date.now())));
    handle.close();
  }

  async read(sha256: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    try {
      const file = await (await this.folder.getFileHandle(sha256)).getFile();
      return file.size > 0 ? new Uint8Array(await file.arrayBuffer()) : undefined;
    } catch {
      return undefined;
    }
  }

  async open(sha256: string, keep: number): Promise<ShardWriter | undefined> {
    try {
      const handle = await (await this.folder.getFileHandle(sha256, { create: true })).createSyncAccessHandle();
      handle.truncate(keep);
      return new OpfsWriter(handle);
    } catch {
      return undefined;
    }
  }

  async remove(sha256: string): Promise<void> {
    await this.folder.removeEntry(sha256).catch(() => undefined);
  }

  async evictOther(): Promise<boolean> {
    let oldest: { name: string; used: number } | undefined;
    for await (const [name, handle] of this.root.entries()) {
      if (name === this.model || handle.kind !== "directory") continue;
      const marker = await (handle as FileSystemDirectoryHandle).getFileHandle(USED).catch(() => undefined);
      const used = (await marker?.getFile().catch(() => undefined))?.lastModified ?? 0;
      if (!oldest || used < oldest.used) oldest = { name, used };
    }
    if (!oldest) return false;
    try {
      await this.root.removeEntry(oldest.name, { recursive: true });
      return true;
    } catch {
      return false; // another tab is using it
    }
  }
}

class OpfsWriter implements ShardWriter {
  constructor(private readonly handle: FileSystemSyncAccessHandle) {}

  write(chunk: Uint8Array, at: number): boolean {
    try {
      return this.handle.write(chunk as Uint8Array<ArrayBuffer>, { at }) === chunk.length;
    } catch {
      return false;
    }
  }

  async close(): Promise<void> {
    try {
      this.handle.flush();
    } finally {
      this.handle.close();
    }
  }
}

async function openCacheStorage(model: string): Promise<ShardCache | undefined> {
  if (typeof caches === "undefined") return undefined;
  return new CacheStorageCache(await caches.open(`${FOLDER}-${model}`), model);
}

class CacheStorageCache implements ShardCache {
  constructor(
    private readonly cache: Cache,
    private readonly model: string,
  ) {}

  async read(sha256: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const response = await this.cache.match(key(sha256)).catch(() => undefined);
    return response ? new Uint8Array(await response.arrayBuffer()) : undefined;
  }

  async open(sha256: string, keep: number): Promise<ShardWriter | undefined> {
    if (keep > 0) return undefined; // entries are written whole, so a beginning is never stored
    const { cache } = this;
    return {
      write: () => true,
      async close(whole) {
        if (whole) await cache.put(key(sha256), new Response(whole)).catch(() => undefined);
      },
    };
  }

  async remove(sha256: string): Promise<void> {
    await this.cache.delete(key(sha256)).catch(() => undefined);
  }

  async evictOther(): Promise<boolean> {
    const own = `${FOLDER}-${this.model}`;
    const other = (await caches.keys()).find((name) => name.startsWith(`${FOLDER}-`) && name !== own);
    return other !== undefined && (await caches.delete(other));
  }
}

/** Cache entries are addressed by URL; this one is never fetched. */
function key(sha256: string): string {
  return new URL(`/${FOLDER}/${sha256}`, globalThis.location?.href ?? "http://localhost/").href;
}
