/**
 * Pictures kept on this device: in IndexedDB, figures and thumbnails apart from the files, so that the list is read quickly.
 * What cannot be stored (storage refused or full) is kept in memory until the page is closed, so that nothing is lost at once.
 */

import { parseRecipe, type Recipe } from "../app/recipe";

export interface Picture {
  id: string;
  /** Milliseconds since 1970. */
  createdAt: number;
  recipe: Recipe;
  /** A small PNG. */
  thumb: Uint8Array<ArrayBuffer>;
}

export interface Kept {
  picture: Picture;
  /** The whole PNG, with its settings inside. */
  file: Uint8Array<ArrayBuffer>;
}

/** Why pictures do not last: null while all is well. */
export type Trouble = "refused" | "full" | null;

const LISTED = "pictures";
const FILES = "files";

function done<Result>(request: IDBRequest<Result>): Promise<Result> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("storage failed"));
  });
}

function finished(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    // A full disk aborts the transaction without failing any of its requests.
    transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error("storage failed"));
  });
}

function parsePicture(value: unknown): Picture | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { id, createdAt, recipe, thumb } = value as Record<string, unknown>;
  const parsed = parseRecipe(recipe);
  if (typeof id !== "string" || typeof createdAt !== "number" || parsed === null || !(thumb instanceof Uint8Array)) return undefined;
  return { id, createdAt, recipe: parsed, thumb: thumb as Uint8Array<ArrayBuffer> };
}

const newestFirst = (a: Picture, b: Picture): number => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1);

export class Gallery {
  trouble: Trouble = null;
  /** What is kept here only. */
  private readonly memory = new Map<string, Kept>();

  private constructor(private readonly database: IDBDatabase | null) {
    if (database === null) this.trouble = "refused";
  }

  /** Opens the store of the site in this folder; never fails. @param idb is replaced in tests */
  static async open(folder: string, idb: IDBFactory | undefined = globalThis.indexedDB): Promise<Gallery> {
    try {
      if (idb === undefined) return new Gallery(null);
      const request = idb.open(`tinyweb-image:${folder}`, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore(LISTED, { keyPath: "id" });
        request.result.createObjectStore(FILES);
      };
      const database = await done(request);
      const gallery = new Gallery(database);
      // Another tab with a newer page waits for this one to let go.
      database.onversionchange = () => database.close();
      return gallery;
    } catch {
      return new Gallery(null);
    }
  }

  /** All pictures, newest first. */
  async list(): Promise<Picture[]> {
    const found = [...this.memory.values()].map(({ picture }) => picture);
    try {
      const stored = this.database === null ? [] : await done(this.database.transaction(LISTED).objectStore(LISTED).getAll());
      found.push(...stored.map(parsePicture).filter((picture) => picture !== undefined));
    } catch {
      this.trouble ??= "refused";
    }
    return found.sort(newestFirst);
  }

  /** Keeps a picture; in memory where storage fails. */
  async put(kept: Kept): Promise<void> {
    this.memory.set(kept.picture.id, kept);
    if (this.database === null) return;
    try {
      const transaction = this.database.transaction([LISTED, FILES], "readwrite");
      const end = finished(transaction);
      transaction.objectStore(LISTED).put(kept.picture);
      transaction.objectStore(FILES).put(kept.file, kept.picture.id);
      await end;
      this.memory.delete(kept.picture.id);
      if (this.trouble === "full") this.trouble = null;
    } catch (error) {
      this.trouble = (error as Partial<DOMException> | null)?.name === "QuotaExceededError" ? "full" : "refused";
    }
  }

  /** The whole file; undefined when it is gone, as when another tab has deleted it. */
  async file(id: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const kept = this.memory.get(id);
    if (kept !== undefined || this.database === null) return kept?.file;
    try {
      const found: unknown = await done(this.database.transaction(FILES).objectStore(FILES).get(id));
      return found instanceof Uint8Array ? (found as Uint8Array<ArrayBuffer>) : undefined;
    } catch {
      return undefined;
    }
  }

  async remove(id: string): Promise<void> {
    this.memory.delete(id);
    await this.change((listed, files) => {
      listed.delete(id);
      files.delete(id);
    });
  }

  async clear(): Promise<void> {
    this.memory.clear();
    await this.change((listed, files) => {
      listed.clear();
      files.clear();
    });
  }

  private async change(act: (listed: IDBObjectStore, files: IDBObjectStore) => void): Promise<void> {
    if (this.database === null) return;
    try {
      const transaction = this.database.transaction([LISTED, FILES], "readwrite");
      const end = finished(transaction);
      act(transaction.objectStore(LISTED), transaction.objectStore(FILES));
      await end;
      if (this.trouble === "full") this.trouble = null; // there is room again
    } catch {
      this.trouble ??= "refused";
    }
  }
}
