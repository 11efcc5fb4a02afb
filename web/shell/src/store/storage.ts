/**
 * JSON values under a prefix in the browser's local storage. Where that is blocked or full, values live in memory until
 * the page is closed, so that nothing else has to care.
 */

export interface KeyValueStore {
  /** False when what is written will not survive a reload. */
  readonly lasting: boolean;
  keys(): string[];
  get(key: string): unknown;
  /** What does not fit is kept in memory, and stored as soon as there is room. */
  set(key: string, value: unknown): void;
  remove(key: string): void;
  /** False while something did not fit and would not survive a reload. */
  readonly complete: boolean;
}

export class MemoryStore implements KeyValueStore {
  readonly lasting: boolean = false;
  readonly complete = true;
  private readonly values = new Map<string, string>();

  keys(): string[] {
    return [...this.values.keys()];
  }

  get(key: string): unknown {
    return parse(this.values.get(key) ?? null);
  }

  set(key: string, value: unknown): void {
    this.values.set(key, JSON.stringify(value));
  }

  remove(key: string): void {
    this.values.delete(key);
  }
}

export class LocalStore implements KeyValueStore {
  readonly lasting = true;
  /** What did not fit yet. */
  private readonly overflow = new MemoryStore();

  constructor(
    private readonly storage: Storage,
    private readonly prefix: string,
  ) {}

  keys(): string[] {
    const found = new Set(this.overflow.keys());
    for (let i = 0; i < this.storage.length; i++) {
      const key = this.storage.key(i);
      if (key?.startsWith(this.prefix)) found.add(key.slice(this.prefix.length));
    }
    return [...found];
  }

  get(key: string): unknown {
    return this.overflow.get(key) ?? parse(this.storage.getItem(this.prefix + key));
  }

  set(key: string, value: unknown): void {
    this.overflow.set(key, value);
    this.flush();
  }

  remove(key: string): void {
    this.overflow.remove(key);
    this.storage.removeItem(this.prefix + key);
    this.flush();
  }

  get complete(): boolean {
    return this.overflow.keys().length === 0;
  }

  /** Stores what is in memory, as far as there is room. */
  private flush(): void {
    for (const key of this.overflow.keys()) {
      try {
        this.storage.setItem(this.prefix + key, JSON.stringify(this.overflow.get(key)));
        this.overflow.remove(key);
      } catch {
        // It waits for more room.
      }
    }
  }
}

function parse(text: string | null): unknown {
  if (text === null) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** Several sites can share one origin (as on most free hosts), so what they store is named after their folder. */
export function folderOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/") + 1);
}

/** The store of the page at `path`. @param app the page's own name, such as "tinychat" */
export function openStore(path: string, app: string): KeyValueStore {
  const prefix = `${app}:${folderOf(path)}:`;
  try {
    const probe = `${prefix}probe`;
    localStorage.setItem(probe, "1");
    localStorage.removeItem(probe);
    return new LocalStore(localStorage, prefix);
  } catch {
    return new MemoryStore();
  }
}
