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
