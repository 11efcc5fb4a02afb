/**
 * Pictures kept on this device: in IndexedDB, figures and thumbnails apart from the files, so that the list is read quickly.
 * What cannot be stored (storage refused or full) is kept in memory until the page is closed, so that nothing is lost at once.
 */

import { done, finished, openDatabase, troubleOf, type Trouble } from "tinyweb-shell";
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

const LISTED = "pictures";
const FILES = "files";

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

  /** Opens the store of the site in this folder; never fails. */
  static async open(folder: string): Promise<Gallery> {
    try {
      const { indexedDB } = globalThis; // where storage is blocked even asking for it may throw
      if (indexedDB == null) return new Gallery(null);
      return new Gallery(
        await openDatabase(indexedDB, `tinyweb-image:${folder}`, (database) => {
          database.createObjectStore(LISTED, { keyPath: "id" });
          database.createObjectStore(FILES);
        }),
      );
    } catch {
      return new Gallery(null);
    }
  }

  /** All pictures, newest first. */
  async list(): Promise<Picture[]> {
    const found = new Map<string, Picture>();
    try {
      const stored = this.database === null ? [] : await done(this.database.transaction(LISTED).objectStore(LISTED).getAll());
      for (const picture of stored.map(parsePicture)) if (picture !== undefined) found.set(picture.id, picture);
    } catch {
      this.trouble ??= "refused";
    }
    // One that is being stored just now may be in both places.
    for (const { picture } of this.memory.values()) found.set(picture.id, picture);
    return [...found.values()].sort(newestFirst);
  }

  /** Keeps a picture; in memory where storage fails. */
  async put(kept: Kept): Promise<void> {
    this.memory.set(kept.picture.id, kept);
    await this.store();
  }

  /** Stores what is in memory only, the oldest first, as far as there is room. */
  private async store(): Promise<void> {
    if (this.database === null) return;
    try {
      for (const { picture, file } of [...this.memory.values()]) {
        if (!this.memory.has(picture.id)) continue; // deleted meanwhile
        const transaction = this.database.transaction([LISTED, FILES], "readwrite");
        const end = finished(transaction);
        transaction.objectStore(LISTED).put(picture);
        transaction.objectStore(FILES).put(file, picture.id);
        await end;
        this.memory.delete(picture.id);
      }
      if (this.trouble === "full") this.trouble = null;
    } catch (error) {
      this.trouble = troubleOf(error);
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
    } catch {
      this.trouble ??= "refused";
      return;
    }
    await this.store(); // there may be room now
  }
}
