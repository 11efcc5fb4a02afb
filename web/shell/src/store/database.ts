/** What IndexedDB lacks: promises, and why something was not kept. */

/** Why things do not last: storage is refused, or full; null while all is well. */
export type Trouble = "refused" | "full" | null;

/** The result of a request. */
export function done<Result>(request: IDBRequest<Result>): Promise<Result> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("storage failed"));
  });
}

/** Resolves when a transaction has been kept. Ask before anything else is awaited, or its end is missed. */
export function finished(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    // A full disk aborts the transaction without failing any of its requests.
    transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error("storage failed"));
  });
}

export function troubleOf(error: unknown): NonNullable<Trouble> {
  return (error as Partial<DOMException> | null)?.name === "QuotaExceededError" ? "full" : "refused";
}

/** Opens a database of version 1. Lets go of it when another tab with a newer page asks. @throws where storage is refused */
export async function openDatabase(idb: IDBFactory, name: string, create: (database: IDBDatabase) => void): Promise<IDBDatabase> {
  const request = idb.open(name, 1);
  request.onupgradeneeded = () => create(request.result);
  const database = await done(request);
  database.onversionchange = () => database.close();
  return database;
}

const ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz";

/** A new name for something that is kept. */
export function newId(): string {
  // crypto.randomUUID needs a secure context; a page on the local network has none.
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => ALPHABET[byte % ALPHABET.length]).join("");
}
