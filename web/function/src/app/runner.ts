/** What the page does: keeps what goes into each input, runs the model on it, and keeps what came out, and how long that took. */

import { describeBreak, errorCode, Store, type Shell } from "tinyweb-shell";
import { count, rangeOf, toNumbers, unpacked } from "../data/arrays";
import { decodeSound } from "../data/audio";
import { parseNpy } from "../data/npy";
import { FeedError } from "../data/problem";
import { openTokenizer, type TextReader } from "../data/text";
import {
  parseFacts,
  parseGraph,
  settled,
  variableOf,
  type ArrayInfo,
  type FunctionFacts,
  type Facts,
  type GraphFacts,
  type RunModel,
  type TypedArray,
} from "../model-api";
import { closeSource, openCamera } from "./camera";
import { FILE_KINDS, FILE_WORDS, given, kindOf, kindsFor, newFeed, type Feed, type FeedKind } from "./feeds";
import { parseLabels, type Shown, type View } from "./views";

/** Milliseconds. */
export interface Times {
  /** Making numbers of what was given. */
  prepareMs: number;
  /** Inputs to the device, kernels, and outputs back. */
  runMs: number;
  /** Between the page and the worker that the model runs in. */
  transferMs: number;
}

export interface RunnerState {
  /** The function that is called. */
  chosen: string;
  feeds: Record<string, Feed>;
  /** Of the sizes that vary. */
  sizes: Record<string, number>;
  outputs: Shown[] | null;
  /** The picture that went in last. */
  seen: ImageData | null;
  views: Record<string, View>;
  labels: string[];
  /** Of the last runs, the latest last. */
  times: Times[];
  running: boolean;
  problem: { code: string; text: string } | null;
}

const KEPT = 50;
/** Of a size that varies, until it is chosen. */
const USUAL = 128;
export const WORDS = { kept: "what you gave is kept", next: "the next run" };

export class Runner extends Store<RunnerState> {
  private reader: TextReader | null = null;
  private facts: GraphFacts = parseGraph(undefined);
  private stopping = new AbortController();

  constructor(readonly shell: Shell<RunModel>) {
    super({ chosen: "", feeds: {}, sizes: {}, outputs: null, seen: null, views: {}, labels: [], times: [], running: false, problem: null });
    shell.subscribe(() => this.adopt());
    shell.model.onReady((model) => {
      this.facts = parseGraph(model.info.sections);
      this.change({ labels: this.state.labels.length > 0 ? this.state.labels : this.facts.labels });
      if (this.facts.tokenizer && this.reader === null) void this.bundled();
    });
  }

  get functions(): FunctionFacts[] {
    return parseFacts(this.shell.model.state.facts).functions;
  }

  /** Sizes that vary, with what they may be. */
  get variables(): Facts["variables"] {
    return parseFacts(this.shell.model.state.facts).variables;
  }

  get current(): FunctionFacts | undefined {
    const { functions } = this;
    const found = functions.find(({ name }) => name === this.state.chosen) ?? functions[0];
    return found && settled(found, this.state.sizes);
  }

  get graph(): GraphFacts {
    return this.facts;
  }

  get reads(): boolean {
    return this.reader !== null;
  }

  feedOf(spec: ArrayInfo): Feed {
    return this.state.feeds[spec.name] ?? newFeed(spec, this.reads, this.current?.outputs ?? []);
  }

  kindsOf(spec: ArrayInfo): FeedKind[] {
    return kindsFor(spec, this.reads, this.current?.outputs ?? []);
  }

  /** Whether a picture or the camera goes into any input. */
  get looks(): boolean {
    return this.current?.inputs.some((spec) => /picture|camera/u.test(this.feedOf(spec).kind)) ?? false;
  }

  /** The model's facts are there: every input is fed with what suggests itself. */
  private adopt(): void {
    const [first] = this.functions;
    if (first === undefined || this.state.chosen !== "") {
      this.changed();
      return;
    }
    const sizes = Object.entries(this.variables).map(([name, { min, max }]) => [
      name,
      /batch/iu.test(name) ? min : Math.min(max, Math.max(min, USUAL)),
    ]);
    this.change({ sizes: Object.fromEntries(sizes) });
    this.choose(first.name);
  }

  choose(chosen: string): void {
    const found = this.functions.find(({ name }) => name === chosen);
    if (found === undefined) return;
    const { inputs, outputs } = settled(found, this.state.sizes);
    const feeds = Object.fromEntries(
      inputs.map((spec): [string, Feed] => {
        const before = this.state.feeds[spec.name];
        const kept = before !== undefined && kindsFor(spec, this.reads, outputs).includes(before.kind);
        return [spec.name, kept ? before : newFeed(spec, this.reads, outputs)];
      }),
    );
    // a camera that no input keeps would stay on
    const kept = new Set(Object.values(feeds));
    for (const feed of Object.values(this.state.feeds)) if (!kept.has(feed)) closeSource(feed.source);
    this.change({ chosen, feeds, outputs: null, times: [] });
  }

  feed(name: string, change: Partial<Feed>): void {
    const before = this.state.feeds[name];
    if (before === undefined) return;
    if ("source" in change || (change.kind !== undefined && before.kind === "camera")) closeSource(before.source);
    const source = change.kind !== undefined && before.kind === "camera" ? { source: null } : {};
    this.change({ feeds: { ...this.state.feeds, [name]: { ...before, ...source, ...change } }, problem: null });
  }

  size(name: string, value: number): void {
    this.change({ sizes: { ...this.state.sizes, [name]: value }, problem: null });
  }

  /** A text says how long it is, where that may vary. */
  private measure(): void {
    const { reader } = this;
    for (const spec of this.current?.inputs ?? []) {
      const [feed, name] = [this.feedOf(spec), variableOf(spec, this.variables)];
      const range = name === undefined ? undefined : this.variables[name];
      if (name === undefined || range === undefined || feed.kind !== "text" || reader === null) continue;
      this.size(name, Math.min(range.max, Math.max(range.min, reader.ids(feed.text).length)));
    }
  }

  /** The next run begins without what came out of the last one. */
  forget(): void {
    this.change({ outputs: null });
  }

  view(name: string, view: View): void {
    this.change({ views: { ...this.state.views, [name]: view } });
  }

  closeProblem(): void {
    this.change({ problem: null });
  }

  private tell(error: unknown, what: string): void {
    const own = error instanceof FeedError;
    this.change({
      problem: { code: own ? "bad-input" : errorCode(error), text: own ? `${what}: ${error.message}` : describeBreak(error, WORDS, what) },
    });
  }

  // ---- what goes in

  /** A file for an input, by what it is. */
  async file(spec: ArrayInfo, file: File): Promise<void> {
    const kind = kindOf(file);
    try {
      if (kind === "npy") {
        this.feed(spec.name, { kind: "npy", numbers: parseNpy(new Uint8Array(await file.arrayBuffer())), file: file.name });
      } else if (kind === "json") {
        this.feed(spec.name, { kind: "json", json: await file.text(), file: file.name });
      } else if (this.feedOf(spec).kind === "sound") {
        this.feed(spec.name, { sound: await decodeSound(file, this.feedOf(spec).rate), from: 0, file: file.name });
      } else {
        const element = await createImageBitmap(file).catch(() => {
          throw new FeedError("This is no picture that this browser can show.");
        });
        this.feed(spec.name, { kind: "picture", source: { element, name: file.name }, file: file.name });
      }
      await this.run();
    } catch (error) {
      this.tell(error, `“${file.name}” cannot go into “${spec.name}”`);
    }
  }

  /** A file that is dropped or pasted: labels, a tokenizer, or for the first input that takes such files. */
  async drop(file: File): Promise<void> {
    if (file.name === "tokenizer.json") return this.tokenizer(file);
    if (/\.txt$|(label|class|names).*\.json$/iu.test(file.name)) return this.labelsFile(file);
    const inputs = this.current?.inputs ?? [];
    const kind = kindOf(file);
    // what no ending and no type tells may be what is awaited
    const awaited = kind ?? inputs.map((spec) => this.feedOf(spec).kind).find((one) => one === "picture" || one === "sound");
    const spec = inputs.find((one) => awaited !== undefined && this.kindsOf(one).includes(awaited));
    if (awaited === undefined || spec === undefined) {
      const taken = FILE_KINDS.filter((one) => inputs.some((other) => this.kindsOf(other).includes(one)));
      const named = taken.map((one) => FILE_WORDS[one]).join(", ");
      this.tell(new FeedError(named === "" ? "The model takes no files." : `The model takes ${named}.`), `“${file.name}” cannot go in`);
      return;
    }
    if (awaited === "sound") this.feed(spec.name, { kind: awaited });
    await this.file(spec, file);
  }

  async tokenizer(file: File): Promise<void> {
    try {
      this.reader = openTokenizer(await file.text());
      this.readTexts();
    } catch (error) {
      this.tell(error, `“${file.name}” cannot be used`);
    }
  }

  private async bundled(): Promise<void> {
    try {
      const response = await fetch("./model/tokenizer.json");
      if (!response.ok) return;
      this.reader = openTokenizer(await response.text());
      this.readTexts();
    } catch {
      // texts are read as soon as the reader of the page gives a tokenizer
    }
  }

  /** There is a tokenizer now: inputs of ids take texts. */
  private readTexts(): void {
    const feeds = { ...this.state.feeds };
    for (const spec of this.current?.inputs ?? []) {
      const kind = this.kindsOf(spec)[0] as FeedKind;
      const feed = feeds[spec.name];
      if (feed !== undefined && (kind === "text" || kind === "mask")) feeds[spec.name] = { ...feed, kind };
    }
    this.change({ feeds, problem: null });
  }

  async labelsFile(file: File): Promise<void> {
    const labels = parseLabels(await file.text());
    if (labels === null) this.tell(new FeedError("It has no list of labels."), `“${file.name}” cannot be used`);
    else this.change({ labels, problem: null });
  }

  async camera(spec: ArrayInfo): Promise<void> {
    try {
      this.feed(spec.name, { kind: "camera", source: await openCamera() });
      while (this.feedOf(spec).kind === "camera" && this.feedOf(spec).source !== null) {
        // another run may be under way: then with the next frame
        if (!this.state.running && !(await this.run()) && this.state.problem !== null) break;
        await new Promise((resolve) => requestAnimationFrame(resolve));
      }
    } catch (error) {
      this.tell(error, "The camera cannot be used");
    }
  }

  stopCamera(spec: ArrayInfo): void {
    this.feed(spec.name, { source: null });
  }

  // ---- running

  stop(): void {
    this.stopping.abort();
  }

  /** Runs the model. @param times how often @returns whether it went well */
  async run(times = 1): Promise<boolean> {
    this.measure();
    const { current } = this;
    if (current === undefined || this.state.running) return false;
    this.stopping = new AbortController();
    const { signal } = this.stopping;
    this.change({ running: true, problem: null });
    try {
      for (let i = 0; i < times && !signal.aborted; i++) await this.once(current, signal);
      this.say(current);
      return true;
    } catch (error) {
      if (errorCode(error) !== "aborted" && this.shell.model.state.engine.phase !== "failed")
        this.tell(error, "The model could not be run");
      return false;
    } finally {
      this.change({ running: false });
    }
  }

  /** For screen readers: that something came out, not all of it; of a camera nothing, as it never ends. */
  private say({ inputs, outputs }: FunctionFacts): void {
    if (inputs.some((spec) => this.feedOf(spec).kind === "camera")) return;
    const took = Math.round(this.state.times.at(-1)?.runMs ?? 0);
    this.shell.announce(`${outputs.length} output${outputs.length === 1 ? "" : "s"} after ${took} ms.`);
  }

  private async once(current: FunctionFacts, signal: AbortSignal): Promise<void> {
    const begun = performance.now();
    const all = current.inputs.map((spec): [ArrayInfo, Feed] => [spec, this.feedOf(spec)]);
    const made = all.map(([spec, feed]) => {
      try {
        return given(spec, feed, this.reader, all, this.state.outputs ?? []);
      } catch (error) {
        throw error instanceof FeedError ? new FeedError(`“${spec.name}”: ${error.message}`) : error;
      }
    });
    const prepared = performance.now();
    const inputs = Object.fromEntries(
      current.inputs.map(({ name, shape, sizes }, i) => {
        const { array } = made[i] as { array: TypedArray | string[] };
        return [name, sizes === undefined ? array : { data: array, shape }];
      }),
    );
    const { outputs, runMs } = await this.shell.model.run(async (model, stop) => {
      const answer = model.run(inputs, { function: current.name, signal: stop });
      const outputs: Record<string, unknown> = await answer;
      return { outputs, runMs: (await answer.result).runMs };
    }, signal);
    const took: Times = { prepareMs: prepared - begun, runMs, transferMs: Math.max(0, performance.now() - prepared - runMs) };
    const shown = current.outputs.map((spec): Shown => {
      const { data, shape } = unpacked(outputs[spec.name], spec);
      const values = toNumbers(data, spec.dtype);
      const texts = spec.texts && { texts: Array.from(values, (place) => spec.texts?.[place] ?? "") };
      return { spec, shape, values, range: rangeOf(values), data: data as ArrayBufferView<ArrayBuffer>, ...texts };
    });
    const seen = made.find(({ pixels }) => pixels !== null)?.pixels ?? null;
    this.change({ outputs: shown, seen, times: [...this.state.times, took].slice(-KEPT) });
    for (const [{ name, shape }, { kind, sound, from, step }] of all)
      if (kind === "sound" && sound !== null && step > 0)
        this.feed(name, { from: Math.max(0, Math.min(from + step, sound.samples.length - count(shape))) });
  }
}
