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

/** Where the runtime keeps weights: a folder for each bundle, named by the hash of its weights. */
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

/** Bytes of each model that is kept, by the hash of its weights. */
async function modelBytes(): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  const folder = await weightsFolder();
  if (folder !== undefined) {
    for await (const [name, handle] of folder.entries()) {
      if (handle.kind === "directory") found.set(name, await folderBytes(handle as Folder).catch(() => 0));
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
  }
}
