/**
 * What the page does: takes documents in, has their passages embedded piece by piece (stopped and gone on with at any time), and
 * finds the passages that answer a query. Knows nothing of how the page looks.
 */

import { describeBreak, errorCode, Store, type Shell, type ShellSettings } from "tinyweb-shell";
import { factsOf, type Passage, type SearchModel } from "../model-api";
import { EXAMPLE_NAME, EXAMPLE_TEXT } from "../text/example";
import { keywords } from "../text/words";
import type { Library, Doc } from "./library";
import { rank, rankPictures, type Hit, type PictureHit } from "./rank";

export const WORDS = { kept: "your documents are kept", next: "your next search" };

export interface Work {
  doc: Doc;
  /** Passages of all documents that wait, this one's included, and how many of them are done since work began. */
  done: number;
  total: number;
  secondsLeft: number | undefined;
}

export interface FinderState {
  docs: Doc[];
  /** Whether storage has been read. */
  opened: boolean;
  query: string;
  /** The passage, or the picture, that others are to be like; goes before the query. */
  like: { doc: Doc; index: number; text: string } | null;
  /** Null while nothing is looked for. */
  hits: Hit[] | null;
  pictures: PictureHit[];
  searching: boolean;
  work: Work | null;
  /** Stopped by the reader. */
  paused: boolean;
  problem: { code: string; text: string } | null;
}

export interface Surroundings {
  shell: Shell<SearchModel, ShellSettings>;
  library: Promise<Library>;
  newId(): string;
  /** Milliseconds since 1970. */
  now(): number;
  /** A monotonic clock, milliseconds. */
  ticks(): number;
  /** Other tabs of this page. */
  tell(): void;
  /** Asks the browser not to clear what is stored. */
  persist(): void;
}

export const LIMIT = 12;
const PICTURES_LIMIT = 60;
/** Passages that are embedded in one go take about so long, so that a search does not wait behind them. */
const TURN_MS = 350;
const MOST_AT_ONCE = 64;
/** How long the page does nothing else at a time. */
const SLICE_MS = 12;
const SAVE_MS = 3000;
const TYPING_MS = 140;
const WELCOMED = "welcomed";

/** Until the page has done what waits: input, frames. Timers would be slow in a hidden page. */
function otherTasks(): Promise<void> {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

const isAbort = (error: unknown): boolean => errorCode(error) === "aborted";

export class Finder extends Store<FinderState> {
  private library: Library | undefined;
  private working: AbortController | null = null;
  /** Until what was read of a stopped document is stored. */
  private keeping: Promise<void> | undefined;
  private search: AbortController | null = null;
  private typing: ReturnType<typeof setTimeout> | undefined;
  /** Of the last query. */
  private vector: Float32Array | null = null;
  private stems: ReadonlySet<string> = new Set();
  private atOnce = 4;

  constructor(private readonly env: Surroundings) {
    super({
      docs: [],
      opened: false,
      query: "",
      like: null,
      hits: null,
      pictures: [],
      searching: false,
      work: null,
      paused: false,
      problem: null,
    });
    env.shell.subscribe(() => {
      this.changed();
      void this.welcome();
    });
    env.shell.model.onReady(() => {
      void this.work();
      if (this.state.hits === null) this.ask(0);
    });
  }

  get shell(): Surroundings["shell"] {
    return this.env.shell;
  }

  /** Reads what is stored; on the first visit there is an example. */
  async open(): Promise<void> {
    this.library = await this.env.library;
    await this.readAll();
    this.change({ opened: true });
    this.explainTrouble();
    await this.welcome();
    void this.work();
  }

  /** Whether the model reads pictures, too. */
  get readsPictures(): boolean {
    return factsOf(this.env.shell.model.state.facts).pictures;
  }

  /** On the first visit, as soon as it is known what the model reads. */
  private async welcome(): Promise<void> {
    const { storage, model } = this.env.shell;
    if (!this.state.opened || model.state.facts === undefined || storage.get(WELCOMED) !== undefined) return;
    storage.set(WELCOMED, true);
    if (this.state.docs.length === 0 && !this.readsPictures) await this.add(EXAMPLE_NAME, EXAMPLE_TEXT, false);
  }

  /** Another tab has changed the documents. */
  async refresh(): Promise<void> {
    if (this.working !== null) return; // what is being worked on here is newer
    await this.readAll();
    this.rankAgain();
    void this.work();
  }

  private async readAll(): Promise<void> {
    const docs = (await this.library?.list()) ?? [];
    this.change({ docs });
  }

  // ---- documents

  /** @param wanted by the reader just now: then a failed load is tried again @returns whether there was anything to add */
  async add(name: string, text: string, wanted = true): Promise<boolean> {
    if (text.trim() === "") return false;
    return this.addDoc({ name, text }, wanted);
  }

  /** @param picture a small copy of what is in `file` */
  addPicture(name: string, file: Blob, picture: Blob): Promise<boolean> {
    return this.addDoc({ name, text: "", file, picture }, true);
  }

  private async addDoc(given: Pick<Doc, "name" | "text" | "picture" | "file">, wanted: boolean): Promise<boolean> {
    if (this.library === undefined) return false;
    const { env } = this;
    const doc: Doc = { id: env.newId(), addedAt: env.now(), passages: [], vectors: new Float32Array(), done: 0, model: "", ...given };
    this.change({ docs: [doc, ...this.state.docs], paused: false, problem: null });
    await this.library.put(doc);
    this.explainTrouble();
    this.env.tell();
    this.env.persist();
    void this.work(wanted);
    return true;
  }

  async remove(id: string): Promise<void> {
    if (this.state.work?.doc.id === id) this.working?.abort();
    this.change({ docs: this.state.docs.filter((doc) => doc.id !== id) });
    if (this.state.like?.doc.id === id) this.query("");
    this.rankAgain();
    await this.library?.remove(id);
    this.env.tell();
  }

  async removeAll(): Promise<void> {
    this.working?.abort();
    this.change({ docs: [] });
    this.query("");
    await this.library?.clear();
    this.env.tell();
  }

  /** Brings the example back. */
  addExample(): Promise<boolean> {
    return this.add(EXAMPLE_NAME, EXAMPLE_TEXT);
  }

  /** @param text what went wrong, in sentences */
  fail(code: string, text: string): void {
    this.change({ problem: { code, text } });
  }

  closeProblem(): void {
    this.change({ problem: null });
  }

  private explainTrouble(): void {
    const trouble = this.library?.trouble ?? null;
    const { model } = this.env.shell;
    if (trouble === null) {
      model.dropNote("storage");
      return;
    }
    const why = trouble === "full" ? "This device's storage is full" : "This browser lets the page store nothing";
    model.note({ id: "storage", tone: "info", text: `${why}: your documents are here until you close the page.` });
  }

  // ---- embedding

  /** Names the vectors' model: what it is called, and how its weights are stored. */
  private modelName(): string {
    const { engine, facts } = this.env.shell.model.state;
    if (engine.phase !== "ready") return "";
    const { model, dimensions, modelBytes } = engine.info;
    return JSON.stringify([model, dimensions, modelBytes ?? 0, (facts as { quant?: string } | undefined)?.quant ?? ""]);
  }

  private isWhole(doc: Doc, model: string): boolean {
    return doc.model === model && doc.passages.length > 0 && doc.done === doc.passages.length;
  }

  /** Documents of this model's vectors only; all while there is no model. */
  private usable(): Doc[] {
    const model = this.modelName();
    return this.state.docs.filter((doc) => doc.model === model);
  }

  stop(): void {
    const doc = this.state.docs.find(({ id }) => id === this.state.work?.doc.id);
    this.change({ paused: true });
    this.working?.abort();
    if (doc !== undefined) this.keeping = this.library?.put(doc); // also what was read since it was last kept
  }

  goOn(): void {
    this.change({ paused: false, problem: null });
    void this.work(true);
  }

  /** Embeds what waits, until nothing does. @param wanted by the reader just now: then a failed load is tried again */
  private async work(wanted = false): Promise<void> {
    const { model } = this.env.shell;
    if (this.working !== null || this.state.paused || (!wanted && model.state.engine.phase !== "ready")) return;
    const work = new AbortController();
    this.working = work;
    const begun = this.env.ticks();
    let done = 0;
    let failed = false;
    try {
      while (this.state.docs.some((doc) => !this.isWhole(doc, this.modelName()))) {
        const id = this.state.docs.findLast((doc) => !this.isWhole(doc, this.modelName()))?.id;
        await model.run(async (loaded, signal) => {
          for (;;) {
            const doc = this.state.docs.find((other) => other.id === id);
            if (doc === undefined || this.isWhole(doc, this.modelName())) return;
            const show = (now: Doc): void => this.showWork(now, done, begun);
            done += await (doc.picture === undefined ? this.turn(loaded, doc, signal, show) : this.pictureTurn(loaded, doc, signal, show));
          }
        }, work.signal);
      }
    } catch (error) {
      // the document was removed, or the work stopped: what is done is kept
      if (!isAbort(error)) {
        failed = true;
        // a load that failed is the shell's to tell, also if it is tried again by now; work goes on when the model is there
        if (model.state.engine.phase !== "ready") return;
        const text = describeBreak(error, WORDS, "The documents could not be read");
        this.change({ paused: true, problem: { code: errorCode(error), text } });
      }
    } finally {
      await this.keeping; // that reading was stopped is said once nothing of it can be lost
      this.working = null;
      this.change({ work: null });
      this.explainTrouble();
      this.rankAgain();
    }
    const waiting = this.state.docs.some((doc) => !this.isWhole(doc, this.modelName()));
    if (waiting && !failed && !this.state.paused && model.state.engine.phase === "ready") void this.work();
    else if (!waiting && done > 0) {
      this.env.shell.announce(this.readsPictures ? "All pictures and documents can be searched." : "All documents can be searched.");
    }
  }

  private lastSave = 0;

  /** Some passages of a document. @returns how many */
  private async turn(model: SearchModel, doc: Doc, signal: AbortSignal, show: (doc: Doc) => void): Promise<number> {
    const name = this.modelName();
    const { dimensions } = model.info;
    if (doc.model !== name || doc.passages.length === 0) {
      doc = { ...doc, passages: [], done: 0 };
      show(doc);
      const all = await this.split(model, doc, signal);
      doc = { ...doc, passages: all, vectors: new Float32Array(all.length * dimensions), done: 0, model: name };
    }
    show(doc);
    const now = doc.passages.slice(doc.done, doc.done + this.atOnce);
    const begun = this.env.ticks();
    const vectors = await model.embed(
      now.map(({ start, end }) => doc.text.slice(start, end)),
      { kind: "passage", signal },
    );
    const took = this.env.ticks() - begun;
    if (signal.aborted) return 0;
    if (now.length === this.atOnce) {
      this.atOnce = Math.round(Math.min(MOST_AT_ONCE, 2 * this.atOnce, Math.max(1, (this.atOnce * TURN_MS) / Math.max(took, 1))));
    }
    vectors.forEach((vector, i) => doc.vectors.set(vector, (doc.done + i) * dimensions));
    const next = { ...doc, done: doc.done + now.length };
    this.change({ docs: this.state.docs.map((other) => (other.id === doc.id ? next : other)) });
    const whole = next.done === next.passages.length;
    if (whole || this.env.ticks() - this.lastSave > SAVE_MS) {
      await this.library?.put(next);
      this.lastSave = this.env.ticks();
      // removed meanwhile
      if (!this.state.docs.some(({ id }) => id === next.id)) await this.library?.remove(next.id);
      this.rankAgain();
      if (whole) this.env.tell();
    }
    return now.length;
  }

  /** Some pictures that wait. @returns how many */
  private async pictureTurn(model: SearchModel, doc: Doc, signal: AbortSignal, show: (doc: Doc) => void): Promise<number> {
    const name = this.modelName();
    show(doc);
    const batch = model.info.pictures?.batch ?? 1;
    const waiting = this.state.docs.filter((other) => other.picture !== undefined && !this.isWhole(other, name)).reverse();
    const now = waiting.slice(0, 2 * waiting.length > batch ? batch : 1);
    const vectors = await this.pictureVectors(model, now, signal);
    if (signal.aborted) return 0;
    for (const [i, { id }] of now.entries()) {
      const other = this.state.docs.find((one) => one.id === id);
      if (other === undefined) continue; // removed meanwhile
      const { file: _, ...kept } = other;
      const passages = [{ start: 0, end: 0 }];
      const next: Doc = { ...kept, passages, vectors: vectors[i] ?? new Float32Array(model.info.dimensions), done: 1, model: name };
      this.change({ docs: this.state.docs.map((one) => (one.id === id ? next : one)) });
      await this.library?.put(next);
      if (!this.state.docs.some((one) => one.id === id)) await this.library?.remove(id);
    }
    if (this.env.ticks() - this.lastSave > SAVE_MS) {
      this.lastSave = this.env.ticks();
      this.rankAgain();
      this.env.tell();
    }
    return now.length;
  }

  /** One picture that cannot be read is no reason to read no other: its vector is of zeros, and nothing finds it. */
  private async pictureVectors(model: SearchModel, docs: Doc[], signal: AbortSignal): Promise<(Float32Array<ArrayBuffer> | undefined)[]> {
    const read = async (given: Doc[]): Promise<Float32Array<ArrayBuffer>[]> => {
      const files = given.map(({ file, picture }) => (file ?? picture) as Blob);
      return (await model.embedImages(files, { signal })).map((vector) => Float32Array.from(vector));
    };
    const unreadable = (error: unknown): boolean => errorCode(error) === "bad-argument" && !signal.aborted;
    try {
      return await read(docs);
    } catch (error) {
      if (!unreadable(error)) throw error;
    }
    const found: (Float32Array<ArrayBuffer> | undefined)[] = [];
    for (const doc of docs) {
      try {
        found.push(...(await read([doc])));
      } catch (error) {
        if (!unreadable(error)) throw error;
        found.push(undefined);
      }
    }
    return found;
  }

  /** Passages of a document. The page stays responsive meanwhile. */
  private async split(model: SearchModel, { text }: Doc, signal: AbortSignal): Promise<Passage[]> {
    const found: Passage[] = [];
    let begun = this.env.ticks();
    for (const { start, end } of model.passages(text)) {
      found.push({ start, end });
      if (this.env.ticks() - begun < SLICE_MS) continue;
      await otherTasks();
      signal.throwIfAborted();
      begun = this.env.ticks();
    }
    // a text without words is one passage of nothing
    return found.length > 0 ? found : [{ start: 0, end: text.length }];
  }

  private showWork(doc: Doc, done: number, begun: number): void {
    const name = this.modelName();
    // documents that are not split yet: by the length of their text
    const left = this.state.docs.reduce((sum, other) => {
      const now = other.id === doc.id ? doc : other;
      if (now.model === name && now.passages.length > 0) return sum + now.passages.length - now.done;
      if (now.picture !== undefined) return sum + 1;
      return sum + Math.ceil(now.text.length / 350);
    }, 0);
    const seconds = (this.env.ticks() - begun) / 1000;
    const secondsLeft = done > 0 && seconds > 1 ? (seconds / done) * left : undefined;
    this.change({ work: { doc, done, total: done + left, secondsLeft } });
  }

  // ---- searching

  /** As the reader types. */
  query(query: string): void {
    if (query === this.state.query && this.state.like === null) return;
    this.change({ query, like: null });
    this.ask(TYPING_MS);
  }

  /** Passages that say something similar, pictures that look like one. */
  similar(hit: { doc: Doc; index: number }): void {
    const doc = this.state.docs.find(({ id }) => id === hit.doc.id);
    const passage = doc?.passages[hit.index];
    if (doc === undefined || passage === undefined || hit.index >= doc.done) return;
    this.search?.abort();
    clearTimeout(this.typing);
    const width = doc.vectors.length / doc.passages.length;
    this.vector = doc.vectors.slice(hit.index * width, (hit.index + 1) * width);
    this.stems = new Set();
    this.change({
      query: "",
      like: { doc, index: hit.index, text: doc.text.slice(passage.start, passage.end) || doc.name },
      searching: false,
    });
    this.rankAgain(true);
  }

  private ask(after: number): void {
    clearTimeout(this.typing);
    this.search?.abort();
    if (this.state.like !== null) return;
    const query = this.state.query.trim();
    if (query === "") {
      this.vector = null;
      this.change({ hits: null, pictures: [], searching: false });
      return;
    }
    this.change({ searching: true });
    this.typing = setTimeout(() => void this.embedQuery(query), after);
  }

  private async embedQuery(query: string): Promise<void> {
    const search = new AbortController();
    this.search = search;
    try {
      const [vector] = await this.env.shell.model.run((model, signal) => model.embed([query], { kind: "query", signal }), search.signal);
      if (search.signal.aborted || vector === undefined) return;
      this.vector = vector;
      this.stems = keywords(query);
      this.rankAgain(true);
      this.change({ searching: false, problem: null });
    } catch (error) {
      if (search.signal.aborted) return; // whoever ended it says what comes next
      this.change({ searching: false });
      if (isAbort(error) || this.env.shell.model.state.engine.phase === "failed") return;
      this.change({ problem: { code: errorCode(error), text: describeBreak(error, WORDS, "The search broke off") } });
    }
  }

  /** The words to highlight. */
  get marked(): ReadonlySet<string> {
    return this.stems;
  }

  private rankAgain(announce = false): void {
    const { vector } = this;
    if (vector === null) return;
    const { like } = this.state;
    const { engine } = this.env.shell.model.state;
    const docs = this.usable();
    const hits = rank(docs, vector, this.stems, LIMIT, like === null ? undefined : { doc: like.doc.id, index: like.index });
    const scale = engine.phase === "ready" ? engine.info.logitScale : 1;
    const pictures = rankPictures(docs, vector, scale, PICTURES_LIMIT, like?.doc.id);
    this.change({ hits, pictures });
    if (!announce) return;
    const told = (n: number, one: string): string => (n === 0 ? "" : `${n} ${one}${n === 1 ? "" : "s"}`);
    const found = [told(pictures.length, "picture"), told(hits.length, "passage")].filter(Boolean);
    this.env.shell.announce(found.length === 0 ? "Nothing was found." : `${found.join(" and ")} found.`);
  }
}
