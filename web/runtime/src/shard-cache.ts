/**
 * Browser storage for weights, one folder per model (named by the hash of its weights), one file per shard (named by its
 * hash): in OPFS, which all browsers have that this library is made for. Whatever is read back is verified by the caller.
 */

import { sleep } from "./download.js";

/** Writes one shard; chunks come in order. */
export interface ShardWriter {
  /** @returns false when the storage is full: the shard is then not kept */
  write(chunk: Uint8Array, at: number): boolean;
  /** What was written is kept, also where it is the beginning of a download that broke off. */
  close(): Promise<void>;
}

export interface ShardCache {
  /** What is stored of a shard: all of it, or the beginning of a broken download. It is on the disk until it is read. */
  read(sha256: string): Promise<Blob | undefined>;
  /** A writer that keeps the first `keep` bytes, or undefined when it cannot be written now (another tab does). */
  open(sha256: string, keep: number): Promise<ShardWriter | undefined>;
  remove(sha256: string): Promise<void>;
  /** Deletes the least recently used other model; false when there is none. */
  evictOther(): Promise<boolean>;
}

const FOLDER = "tinyweb-weights";
const USED = "last-used";
/** Now and then Chromium never settles `createSyncAccessHandle()` where two pages write: so long is waited for it. */
const PATIENCE_MS = 5000;

/** Storage for one model; undefined where the browser offers none, or refuses it: private windows and blocked cookies do, with many kinds of errors. */
export function openShardCache(model: string): Promise<ShardCache | undefined> {
  return openOpfs(model).catch(() => undefined);
}

async function openOpfs(model: string): Promise<ShardCache> {
  const root = await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  const folder = await root.getDirectoryHandle(model, { create: true });
  const access = async (name: string): Promise<FileSystemSyncAccessHandle> => {
    const opening = (await folder.getFileHandle(name, { create: true })).createSyncAccessHandle();
    const handle = await Promise.race([opening, sleep(PATIENCE_MS)]);
    if (handle) return handle;
    void opening.then((late) => late.close()); // nobody else could write it
    throw Error();
  };
  try {
    const marker = await access(USED);
    marker.write(new Uint8Array(1)); // for its time
    marker.close();
  } catch {
    // Another tab may hold the marker; it is fresh then.
  }
  return {
    async read(sha256) {
      try {
        const file = await (await folder.getFileHandle(sha256)).getFile();
        return file.size > 0 ? file : undefined;
      } catch {
        return undefined;
      }
    },

    async open(sha256, keep) {
      try {
        const handle = await access(sha256);
        handle.truncate(keep);
        return opfsWriter(handle);
      } catch {
        return undefined;
      }
    },

    async remove(sha256) {
      await folder.removeEntry(sha256).catch(() => undefined);
    },

    async evictOther() {
      let oldest: { name: string; used: number } | undefined;
      for await (const [name, handle] of root.entries()) {
        if (name === model || handle.kind !== "directory") continue;
        const marker = await (handle as FileSystemDirectoryHandle).getFileHandle(USED).catch(() => undefined);
        const used = (await marker?.getFile().catch(() => undefined))?.lastModified ?? 0;
        if (!oldest || used < oldest.used) oldest = { name, used };
      }
      if (!oldest) return false;
      try {
        await root.removeEntry(oldest.name, { recursive: true });
        return true;
      } catch {
        return false; // another tab is using it
      }
    },
  };
}

function opfsWriter(handle: FileSystemSyncAccessHandle): ShardWriter {
  return {
    write(chunk, at) {
      try {
        return handle.write(chunk as Uint8Array<ArrayBuffer>, { at }) === chunk.length;
      } catch {
        return false;
      }
    },

    async close() {
      try {
        handle.flush();
      } finally {
        handle.close();
      }
    },
  };
}
