/** What this site and its neighbours keep in the browser, and deleting the model from it. */

import type { SiteBundle } from "../site";

export interface Kept {
  /** Bytes of this site's weights that are kept. */
  model: number;
  /** Bytes of other models of the same address. */
  otherModels: number;
  /** Bytes of everything that the address keeps, as the browser estimates it; undefined where it does not say. */
  usage: number | undefined;
  /** Bytes the browser allows the address. */
  quota: number | undefined;
}

/** Where the runtime keeps weights: a folder, or a cache, for each bundle, named by the hash of its weights. */
const WEIGHTS = "tinyweb-weights";

type Folder = FileSystemDirectoryHandle & { entries(): AsyncIterable<[string, FileSystemHandle]> };

async function weightsFolder(): Promise<Folder | undefined> {
  try {
    const root = await navigator.storage.getDirectory();
    return (await root.getDirectoryHandle(WEIGHTS)) as Folder;
  } catch {
    return undefined; // not supported, refused, or nothing was kept yet
  }
}

async function folderBytes(folder: Folder): Promise<number> {
  let bytes = 0;
  for await (const [, handle] of folder.entries()) {
    if (handle.kind === "file") bytes += (await (handle as FileSystemFileHandle).getFile()).size;
  }
  return bytes;
}

async function cacheBytes(name: string): Promise<number> {
  const cache = await caches.open(name);
  let bytes = 0;
  for (const key of await cache.keys()) bytes += (await (await cache.match(key))?.blob())?.size ?? 0;
  return bytes;
}

/** Bytes of each model that is kept, by the hash of its weights. */
async function modelBytes(): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  const add = (name: string, bytes: number): void => void found.set(name, (found.get(name) ?? 0) + bytes);
  const folder = await weightsFolder();
  if (folder !== undefined) {
    for await (const [name, handle] of folder.entries()) {
      if (handle.kind === "directory") add(name, await folderBytes(handle as Folder).catch(() => 0));
    }
  }
  if (typeof caches !== "undefined") {
    for (const name of await caches.keys()) {
      if (name.startsWith(`${WEIGHTS}-`)) add(name.slice(WEIGHTS.length + 1), await cacheBytes(name));
    }
  }
  return found;
}

/** Never throws: what cannot be measured counts as nothing. */
export async function measureKept(bundles: readonly SiteBundle[]): Promise<Kept> {
  const models = await modelBytes().catch(() => new Map<string, number>());
  const own = new Set(bundles.map(({ sha256 }) => sha256));
  const sum = (wanted: boolean): number => [...models].reduce((total, [name, bytes]) => total + (own.has(name) === wanted ? bytes : 0), 0);
  const { usage, quota } = (await navigator.storage?.estimate?.().catch(() => undefined)) ?? {};
  return { model: sum(true), otherModels: sum(false), usage, quota };
}

/** Deletes the weights of these bundles. A model that is loaded goes on; the next visit downloads it again. */
export async function deleteModel(bundles: readonly SiteBundle[]): Promise<void> {
  const folder = await weightsFolder();
  for (const { sha256 } of bundles) {
    await folder?.removeEntry(sha256, { recursive: true }).catch(() => undefined);
    if (typeof caches !== "undefined") await caches.delete(`${WEIGHTS}-${sha256}`);
  }
}
