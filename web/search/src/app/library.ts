/**
 * Documents kept on this device: texts, passages and vectors in IndexedDB. What cannot be stored (storage refused or full) is kept
 * in memory until the page is closed.
 */

import { done, finished, openDatabase, troubleOf, type Trouble } from "tinyweb-shell";
import type { Passage } from "../model-api";

export interface Doc {
  id: string;
  name: string;
  /** "" of a picture. */
  text: string;
  /** A small copy of a picture. */
  picture?: Blob;
  /** The picture itself, until the page is closed. */
  file?: Blob;
  /** Milliseconds since 1970. */
  addedAt: number;
  /** Empty until the model has been there to split the text; a picture is one. */
  passages: Passage[];
  /** A row for each passage; rows from `done` on are not there yet. */
  vectors: Float32Array<ArrayBuffer>;
  done: number;
  /** The model whose vectors these are; vectors of two models say nothing of each other. */
  model: string;
}

const STORE = "documents";

const isPassage = (p: unknown): p is Passage =>
  typeof p === "object" && p !== null && Number.isInteger((p as Passage).start) && Number.isInteger((p as Passage).end);

/** What storage holds may be of an older page, or damaged: the text is what counts, the rest can be made again. */
export function parseDoc(value: unknown): Doc | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { id, name, text, picture, addedAt, passages, vectors, done: count, model } = value as Record<string, unknown>;
  if (typeof id !== "string" || typeof name !== "string" || typeof text !== "string" || typeof addedAt !== "number") return undefined;
  const doc: Doc = { id, name, text, addedAt, passages: [], vectors: new Float32Array(), done: 0, model: "" };
  if (picture instanceof Blob) doc.picture = picture;
  const whole =
    Array.isArray(passages) &&
    passages.every(isPassage) &&
    vectors instanceof Float32Array &&
    typeof model === "string" &&
    Number.isInteger(count) &&
    (count as number) >= 0 &&
    (count as number) <= passages.length &&
    (passages.length === 0 || (vectors.length > 0 && vectors.length % passages.length === 0));
  if (!whole) return doc;
  return { ...doc, passages: passages as Passage[], vectors: vectors as Float32Array<ArrayBuffer>, done: count as number, model };
}

const newestFirst = (a: Doc, b: Doc): number => b.addedAt - a.addedAt || (a.id < b.id ? 1 : -1);

export class Library {
  trouble: Trouble = null;
  /** What is kept here only. */
  private readonly memory = new Map<string, Doc>();

  private constructor(private readonly database: IDBDatabase | null) {
    if (database === null) this.trouble = "refused";
  }

  /** Opens the store of the site in this folder; never fails. */
  static async open(folder: string): Promise<Library> {
    try {
      const { indexedDB } = globalThis; // where storage is blocked even asking for it may throw
      if (indexedDB == null) return new Library(null);
      return new Library(
        await openDatabase(indexedDB, `tinyweb-search:${folder}`, (database) => database.createObjectStore(STORE, { keyPath: "id" })),
      );
    } catch {
      return new Library(null);
    }
  }

  /** All documents, newest first. */
  async list(): Promise<Doc[]> {
    const found = [...this.memory.values()];
    try {
      const stored: unknown[] = this.database === null ? [] : await done(this.database.transaction(STORE).objectStore(STORE).getAll());
      found.push(...stored.map(parseDoc).filter((doc) => doc !== undefined));
    } catch {
      this.trouble ??= "refused";
    }
    return found.sort(newestFirst);
  }

  /** Keeps a document as it is now; in memory where storage fails. */
  async put(doc: Doc): Promise<void> {
    this.memory.set(doc.id, doc);
    await this.store();
  }

  /** Stores what is in memory only, as far as there is room. */
  private async store(): Promise<void> {
    for (const [id, doc] of [...this.memory]) {
      if (this.memory.get(id) !== doc) continue; // deleted or replaced meanwhile
      const { file: _, ...kept } = doc;
      if (!(await this.change((store) => store.put(kept)))) return;
      if (this.memory.get(id) === doc) this.memory.delete(id);
    }
  }

  async remove(id: string): Promise<void> {
    this.memory.delete(id);
    if (await this.change((store) => store.delete(id))) await this.store(); // there may be room now
  }

  async clear(): Promise<void> {
    this.memory.clear();
    await this.change((store) => store.clear());
  }

  private async change(act: (store: IDBObjectStore) => void): Promise<boolean> {
    if (this.database === null) return false;
    try {
      const transaction = this.database.transaction(STORE, "readwrite");
      const end = finished(transaction);
      act(transaction.objectStore(STORE));
      await end;
      this.trouble = null;
      return true;
    } catch (error) {
      this.trouble = troubleOf(error);
      return false;
    }
  }
}
