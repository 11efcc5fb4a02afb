/** What the page does: opens sources, has the detector look at them as fast as it can, and keeps what it found. */

import { describeBreak, errorCode, Store, type Shell } from "tinyweb-shell";
import { parseFacts, type Detection, type DetectorModel, type Times } from "../model-api";
import type { Settings } from "./settings";
import { cameraOf, close, openCamera, openFile, SourceError, type Source } from "./sources";
import { Tracks } from "./tracks";

export interface ViewerState {
  source: Source | null;
  /** A source is being opened. */
  opening: boolean;
  /** What was found last, of the labels that are shown; null before the first look at a source. */
  found: Detection[] | null;
  /** Looks per second, of what moves. */
  fps: number;
  times: Times | null;
  paused: boolean;
  problem: { code: string; text: string } | null;
}

const SPOKEN_MS = 3000;
/** Of a new interval between two looks in their mean. */
const WEIGHT = 0.2;

export class Viewer extends Store<ViewerState> {
  readonly tracks = new Tracks();
  private all: Detection[] = [];
  /** The same frame is to be looked at again, or one that was not shown before. */
  private due = false;
  private wake = (): void => undefined;
  private opened = 0;
  private stopping = new AbortController();
  private lastLook = 0;
  private spoken = { text: "", at: -Infinity };

  constructor(readonly shell: Shell<DetectorModel, Settings>) {
    super({ source: null, opening: false, found: null, fps: 0, times: null, paused: false, problem: null });
    shell.model.onReady(() => this.again());
    document.addEventListener("visibilitychange", () => this.wake());
  }

  get facts(): ReturnType<typeof parseFacts> {
    return parseFacts(this.shell.model.state.facts);
  }

  get confidence(): number {
    return this.shell.settings.confidence ?? this.facts.confidence;
  }

  get iou(): number {
    return this.shell.settings.iou ?? this.facts.iou;
  }

  /** Settings of the detector; what is shown is looked at again. */
  set(change: Partial<Pick<Settings, "confidence" | "iou">>): void {
    this.shell.changeSettings(change);
    this.again();
  }

  /** Which labels are shown. */
  hide(hidden: string[]): void {
    this.shell.changeSettings({ hidden });
    if (this.state.found !== null) this.show(this.all);
  }

  openFile(file: File): Promise<void> {
    return this.open(() => openFile(file));
  }

  openCamera(): Promise<void> {
    return this.open(() => openCamera(this.shell.settings.facing));
  }

  flipCamera(): Promise<void> {
    const now = this.state.source === null ? undefined : cameraOf(this.state.source);
    this.shell.changeSettings({ facing: this.shell.settings.facing === "user" ? "environment" : "user" });
    this.stop(); // phones give one camera at a time
    return this.open(() => openCamera(this.shell.settings.facing, now));
  }

  togglePause(): void {
    const { source } = this.state;
    if (source === null || source.kind === "image") return;
    const { element } = source;
    if (element.paused) void element.play().catch(() => undefined);
    else element.pause();
  }

  stop(): void {
    this.opened++;
    this.stopping.abort();
    if (this.state.source !== null) close(this.state.source);
    this.all = [];
    this.tracks.update([], true);
    this.change({ source: null, opening: false, found: null, fps: 0, times: null, paused: false });
    this.wake();
  }

  closeProblem(): void {
    this.change({ problem: null });
  }

  /** What the status line says. */
  get busy(): string | null {
    const { source, opening, found, paused } = this.state;
    if (opening) return "Opening…";
    if (source === null) return null;
    if (source.kind === "image") return found === null && this.shell.model.state.engine.phase === "ready" ? "Looking…" : null;
    return paused || this.shell.model.state.engine.phase !== "ready" ? null : "Watching…";
  }

  private async open(open: () => Promise<Source>): Promise<void> {
    const mine = ++this.opened;
    this.change({ opening: true, problem: null });
    let source: Source;
    try {
      source = await open();
    } catch (error) {
      if (mine !== this.opened) return;
      const code = error instanceof SourceError ? error.code : "unknown";
      this.change({ opening: false, problem: { code, text: error instanceof Error ? error.message : String(error) } });
      return;
    }
    if (mine !== this.opened) return close(source);
    this.stop();
    this.stopping = new AbortController();
    this.listen(source);
    this.change({ source });
    this.lastLook = 0;
    this.due = true;
    void this.watch(source);
  }

  private listen(source: Source): void {
    if (source.kind === "image") return;
    const { element } = source;
    const update = (): void => {
      if (this.state.source === source) this.change({ paused: element.paused });
      this.wake();
    };
    for (const event of ["play", "pause"]) element.addEventListener(event, update);
    element.addEventListener("seeked", () => this.again());
    if (element.srcObject instanceof MediaStream) {
      element.srcObject.getVideoTracks()[0]?.addEventListener("ended", () => {
        if (this.state.source !== source) return;
        this.stop();
        this.change({ problem: { code: "no-camera", text: "The camera was switched off. Start it again to go on." } });
      });
    }
  }

  private again(): void {
    this.due = true;
    this.wake();
  }

  /** Looks at a source until there is another. One frame is on its way at a time; what is shown meanwhile is skipped. */
  private async watch(source: Source): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      await this.nextFrame(source, signal);
      if (signal.aborted) return;
      this.due = false;
      const { confidence, iou } = this;
      try {
        const found = await this.shell.model.run((model, stop) => model.detect(source.element, { confidence, iou, signal: stop }), signal);
        if (signal.aborted) return;
        const now = performance.now();
        const interval = now - this.lastLook;
        const fps = source.kind === "image" || this.lastLook === 0 ? 0 : 1000 / interval;
        this.lastLook = now;
        this.change({ times: found.times, fps: this.state.fps === 0 || fps === 0 ? fps : this.state.fps * (1 - WEIGHT) + fps * WEIGHT });
        this.show(found);
      } catch (error) {
        if (signal.aborted) return;
        // Another backend was chosen: the new one looks again as soon as it is ready.
        if (errorCode(error) === "aborted") this.due = true;
        else if (this.shell.model.state.engine.phase !== "failed") {
          const text = describeBreak(error, this.shell.options.words, "The picture could not be searched");
          this.change({ problem: { code: errorCode(error), text } });
          if (source.kind !== "image") source.element.pause();
        }
      }
    }
  }

  /** Until there is something to look at: a new frame of a video that plays in a page that is seen, or `again`. */
  private async nextFrame(source: Source, signal: AbortSignal): Promise<void> {
    let fresh = false;
    let asked = false;
    while (!signal.aborted && !this.due && !fresh) {
      const waiting = new Promise<void>((resolve) => (this.wake = resolve));
      const { element } = source;
      if (element instanceof HTMLVideoElement && !element.paused && !document.hidden && !asked) {
        asked = true;
        const shown = (): void => {
          // a look would load a model that cannot be loaded once more with every frame; `again` comes with the model
          fresh = !document.hidden && this.shell.model.state.engine.phase !== "failed";
          asked = false;
          this.wake();
        };
        if ("requestVideoFrameCallback" in element) element.requestVideoFrameCallback(shown);
        else requestAnimationFrame(shown);
      }
      await waiting;
    }
  }

  private show(all: Detection[]): void {
    const { source } = this.state;
    const hidden = new Set(this.shell.settings.hidden);
    this.all = all;
    const found = all.filter(({ label }) => !hidden.has(label));
    this.tracks.update(found, source?.kind === "image");
    this.change({ found });
    const text = summary(found);
    const now = performance.now();
    if (text !== this.spoken.text && (source?.kind === "image" || now - this.spoken.at > SPOKEN_MS)) {
      this.spoken = { text, at: now };
      this.shell.announce(text);
    }
  }
}

/** "3 found: cat, 2 × dog" */
export function summary(found: readonly Detection[]): string {
  if (found.length === 0) return "Nothing found";
  const counts = new Map<string, number>();
  for (const { label } of found) counts.set(label, (counts.get(label) ?? 0) + 1);
  const names = [...counts].map(([label, count]) => (count === 1 ? label : `${count} × ${label}`));
  return `${found.length} found: ${names.join(", ")}`;
}
