/** Browser storage in memory: keeps beginnings as OPFS does, with a capacity, shared by several models. */

import type { ShardCache } from "../src/shard-cache.js";

export class MemoryStorage {
  readonly models = new Map<string, Map<string, Uint8Array<ArrayBuffer>>>();
  capacity = Infinity;
  /** Refuses to open anything for writing, as when another tab holds the file. */
  locked = false;

  get used(): number {
    return [...this.models.values()].flatMap((model) => [...model.values()]).reduce((sum, bytes) => sum + bytes.length, 0);
  }

  open(model: string): ShardCache {
    const shards = this.models.get(model) ?? new Map<string, Uint8Array<ArrayBuffer>>();
    this.models.delete(model); // most recently used goes last
    this.models.set(model, shards);
    return {
      read: async (sha256) => {
        const found = shards.get(sha256);
        return found && new Blob([found]);
      },
      open: async (sha256, keep) => {
        if (this.locked) return undefined;
        let content = (shards.get(sha256) ?? new Uint8Array()).slice(0, keep);
        shards.set(sha256, content);
        return {
          write: (chunk, at) => {
            if (this.used - content.length + Math.max(content.length, at + chunk.length) > this.capacity) return false;
            const grown = new Uint8Array(Math.max(content.length, at + chunk.length));
            grown.set(content);
            grown.set(chunk, at);
            shards.set(sha256, (content = grown));
            return true;
          },
          close: async () => undefined,
        };
      },
      remove: async (sha256) => void shards.delete(sha256),
      evictOther: async () => {
        const other = [...this.models.keys()].find((name) => name !== model);
        return other !== undefined && this.models.delete(other);
      },
    };
  }
}
