/** What task files name of a page's own types: the library is checked with a worker's types, which know none of them. */

interface HTMLImageElement {
  readonly complete: boolean;
  readonly naturalWidth: number;
  readonly naturalHeight: number;
  decode(): Promise<void>;
}

interface HTMLVideoElement {
  readonly readyState: number;
  readonly videoWidth: number;
  readonly videoHeight: number;
}

interface HTMLCanvasElement {
  readonly width: number;
  readonly height: number;
}

/** Undefined where there is no page: in workers, in Node. */
declare var document:
  | {
      readonly hidden: boolean;
      addEventListener(type: string, listener: () => void): void;
      removeEventListener(type: string, listener: () => void): void;
    }
  | undefined;

interface Storage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

declare var localStorage: Storage;
declare var sessionStorage: Storage;
