/**
 * JSON values under a prefix in the browser's local storage. Where that is blocked or full, values live in memory until
 * the page is closed, so that nothing else has to care.
 */

export interface KeyValueStore {
  /** False when what is written will not survive a reload. */
  readonly lasting: boolean;
  keys(): string[];
  get(key: string): unknown;
  /** Returns false when the value did not fit and is kept in memory only. */
  set(key: string, value: unknown): boolean;
  remove(key: string): void;
  /** Whether the value of `key` did not fit and will not survive a reload. */
  overflows(key: string): boolean;
}

export class MemoryStore implements KeyValueStore {
  readonly lasting: boolean = false;
  private readonly values = new Map<string, string>();

  keys(): string[] {
    return [...this.values.keys()];
  }

  get(key: string): unknown {
    return parse(this.values.get(key) ?? null);
  }

  set(key: string, value: unknown): boolean {
    this.values.set(key, JSON.stringify(value));
    return true;
  }

  remove(key: string): void {
    this.values.delete(key);
  }

  overflows(): boolean {
    return false;
  }
}

export class LocalStore implements KeyValueStore {
  readonly lasting = true;
  /** What did not fit. */
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

  set(key: string, value: unknown): boolean {
    try {
      this.storage.setItem(this.prefix + key, JSON.stringify(value));
      this.overflow.remove(key);
      return true;
    } catch {
      this.overflow.set(key, value);
      return false;
    }
  }

  remove(key: string): void {
    this.overflow.remove(key);
    this.storage.removeItem(this.prefix + key);
  }

  overflows(key: string): boolean {
    return this.overflow.get(key) !== undefined;
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
