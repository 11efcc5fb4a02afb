/** The origin's private file system in memory, as far as the shards' storage uses it: one writer for a file, names that may be absent. */

export class Folder {
  readonly kind = "directory";
  readonly files = new Map<string, File_>();
  readonly folders = new Map<string, Folder>();
  /** Names that cannot be removed, as when another tab uses them. */
  readonly held = new Set<string>();

  async getDirectoryHandle(name: string, { create = false } = {}): Promise<Folder> {
    return this.get(this.folders, name, create && (() => new Folder()));
  }
  async getFileHandle(name: string, { create = false } = {}): Promise<File_> {
    return this.get(this.files, name, create && (() => new File_()));
  }
  async removeEntry(name: string, { recursive = false } = {}): Promise<void> {
    if (this.held.has(name)) throw new DOMException("held", "NoModificationAllowedError");
    const folder = this.folders.get(name);
    if (folder && !recursive && folder.files.size + folder.folders.size > 0)
      throw new DOMException("not empty", "InvalidModificationError");
    if (!this.folders.delete(name) && !this.files.delete(name)) throw new DOMException("absent", "NotFoundError");
  }
  async *entries(): AsyncGenerator<[string, Folder | File_]> {
    yield* [...this.folders, ...this.files];
  }
  private get<T>(all: Map<string, T>, name: string, make: false | (() => T)): T {
    const entry = all.get(name) ?? (make === false ? undefined : make());
    if (!entry) throw new DOMException("absent", "NotFoundError");
    all.set(name, entry);
    return entry;
  }
}

export class File_ {
  readonly kind = "file";
  content = new Uint8Array();
  lastModified = 0;
  open = false;
  flushed = 0;
  /** Most bytes there is room for. */
  room = Infinity;
  /** The disk's own trouble. */
  broken = false;

  async getFile(): Promise<File> {
    const { content, lastModified } = this;
    return new File([content.slice()], "", { lastModified });
  }

  async createSyncAccessHandle(): Promise<object> {
    if (this.open) throw new DOMException("open", "NoModificationAllowedError");
    this.open = true;
    const resized = (size: number): void => {
      const content = new Uint8Array(size);
      content.set(this.content.subarray(0, size));
      this.content = content;
    };
    return {
      truncate: resized,
      write: (bytes: Uint8Array, { at = 0 } = {}): number => {
        if (this.broken) throw new DOMException("full", "QuotaExceededError");
        const count = Math.max(0, Math.min(bytes.length, this.room - at));
        if (at + count > this.content.length) resized(at + count);
        this.content.set(bytes.subarray(0, count), at);
        this.lastModified += 1;
        return count;
      },
      flush: (): void => {
        if (this.broken) throw new DOMException("full", "QuotaExceededError");
        this.flushed += 1;
      },
      close: (): void => void (this.open = false),
    };
  }
}
