/**
 * The page's conduct: draws pictures, keeps them, takes settings from files. Knows nothing of how it looks; the interface draws
 * `state` and calls the methods.
 */

import { describeBreak, errorCode, formatBytes, Store, type LoadProgress, type Shell, type ShellSettings } from "tinyweb-shell";
import type { GeneratedImage, ImageModel, ImageModelInfo, Rgba, SchedulerName, Stage } from "../model-api";
import { embedRecipe, readRecipe } from "../picture/metadata";
import type { Gallery, Picture } from "../store/gallery";
import { complete, draftOf, parseDraft, UNKNOWN_OFFER, type Draft, type Offer } from "./draft";
import { parseFacts } from "./facts";
import type { Recipe } from "./recipe";

export interface Job {
  prompt: string;
  /** "waiting": for the model. */
  stage: Stage | "waiting";
  /** Steps done, and in all; 0 before the first. */
  step: number;
  steps: number;
  secondsLeft: number | null;
  preview: Rgba | null;
  /** Of parts that are loaded meanwhile. */
  loading: LoadProgress | null;
  width: number;
  height: number;
}

/** A picture to begin from. */
export interface Start {
  name: string;
  blob: Blob;
  url: string;
}

/** What is shown large. */
export interface Shown {
  id: string;
  recipe: Recipe;
  url: string;
  /** The end of the prompt that the model did not read. */
  cut: string;
}

export interface Problem {
  code: string;
  text: string;
}

export interface State {
  draft: Draft;
  start: Start | null;
  job: Job | null;
  shown: Shown | null;
  gallery: readonly Picture[];
  problem: Problem | null;
  /** Just deleted, and can be brought back. */
  deleted: { picture: Picture; file: Uint8Array<ArrayBuffer> } | null;
}

export interface StudioSurroundings {
  shell: Shell<ImageModel, ShellSettings>;
  gallery: Promise<Gallery>;
  newId(): string;
  newSeed(): number;
  now(): number;
  /** PNG and thumbnail of pixels. */
  filesOf(picture: Rgba): Promise<{ file: Uint8Array<ArrayBuffer>; thumb: Uint8Array<ArrayBuffer> }>;
  toUrl(blob: Blob): string;
  freeUrl(url: string): void;
  /** Tells other tabs of this site that the gallery has changed. */
  tell(): void;
  /** Asks the browser not to clear this site's storage by itself. */
  persist(): void;
}

const DRAFT = "draft";
/** Files larger than this are no pictures that anybody wants to begin from. */
const MAX_FILE = 64 * 2 ** 20;

export class Studio extends Store<State> {
  readonly shell: Shell<ImageModel, ShellSettings>;
  private running: AbortController | null = null;
  private persisted = false;

  constructor(private readonly env: StudioSurroundings) {
    super({
      draft: parseDraft(env.shell.storage.get(DRAFT), env.newSeed()),
      start: null,
      job: null,
      shown: null,
      gallery: [],
      problem: null,
      deleted: null,
    });
    this.shell = env.shell;
    env.shell.subscribe(() => this.changed());
    void this.refreshGallery();
  }

  /** The model's figures: of the loaded one, else what its loader says beforehand. */
  get offer(): Offer {
    const { engine, facts } = this.shell.model.state;
    const info: Partial<ImageModelInfo> = engine.phase === "ready" ? (engine.info as ImageModelInfo) : parseFacts(facts);
    return { ...UNKNOWN_OFFER, ...info };
  }

  // ---- what the next picture is made with

  get recipe(): Omit<Recipe, "model"> {
    return complete(this.state.draft, this.offer);
  }

  edit(change: Partial<Draft>): void {
    this.change({ draft: { ...this.state.draft, ...change } });
    this.shell.storage.set(DRAFT, this.state.draft);
  }

  rollSeed(): void {
    this.edit({ seed: this.env.newSeed() });
  }

  /** Takes a picture's settings. */
  use(recipe: Recipe): void {
    this.edit(draftOf(recipe, this.state.draft));
    this.shell.announce("The settings of the picture are taken.");
  }

  /** A file that was chosen, dropped or pasted: settings if it holds some, else a picture to begin from. */
  async take(file: Blob, name: string): Promise<void> {
    if (!file.type.startsWith("image/"))
      return this.tellProblem("bad-argument", `${name} is no picture: PNG, JPEG, WebP and what else this browser shows can be used.`);
    if (file.size > MAX_FILE)
      return this.tellProblem(
        "bad-argument",
        `${name} has ${formatBytes(file.size)}: pictures up to ${formatBytes(MAX_FILE)} can be used.`,
      );
    let recipe: Recipe | null = null;
    try {
      recipe = file.type === "image/png" ? readRecipe(new Uint8Array(await file.arrayBuffer())) : null;
    } catch {
      return this.tellProblem("bad-argument", `${name} could not be read.`);
    }
    if (recipe === null) return this.beginFrom(file, name);
    this.use(recipe);
    const model = recipe.model !== "" && recipe.model !== this.offerName ? ` It was made with another model, ${recipe.model}.` : "";
    const { width, height } = this.recipe;
    const size =
      recipe.width > 0 && (recipe.width !== width || recipe.height !== height)
        ? ` This model does not paint ${recipe.width} × ${recipe.height}: it will be ${width} × ${height}.`
        : "";
    this.shell.model.note({
      id: "settings",
      tone: "good",
      text: `The settings of ${name} are taken.${model}${size}`,
      ...(this.offer.imageToImage
        ? {
            action: {
              label: "Begin from it",
              testId: "begin-from-it",
              act: () => {
                this.shell.model.dropNote("settings");
                void this.beginFrom(file, name);
              },
            },
          }
        : {}),
    });
  }

  private get offerName(): string {
    const { engine } = this.shell.model.state;
    return engine.phase === "ready" ? (engine.info as ImageModelInfo).model : "";
  }

  async beginFrom(blob: Blob, name: string): Promise<void> {
    if (!this.offer.imageToImage) return this.tellProblem("bad-argument", "This model cannot begin from a picture.");
    this.dropStart();
    this.change({ start: { name, blob, url: this.env.toUrl(blob) }, problem: null });
    this.shell.announce(`${name} is what the next picture begins from.`);
  }

  /** Begins the next picture from one of the gallery. */
  async vary(id: string): Promise<void> {
    const file = await (await this.env.gallery).file(id);
    if (file !== undefined) await this.beginFrom(new Blob([file], { type: "image/png" }), "The picture");
  }

  dropStart(): void {
    const { start } = this.state;
    if (start === null) return;
    this.env.freeUrl(start.url);
    this.change({ start: null });
  }

  // ---- drawing

  get busy(): boolean {
    return this.running !== null;
  }

  /** Draws a picture; while the model is loading it waits for it. Returns false if there is nothing to draw. */
  generate(): boolean {
    if (this.running !== null || this.state.draft.prompt.trim() === "") return false;
    if (!this.state.draft.seedLocked) this.rollSeed();
    const running = new AbortController();
    this.running = running;
    void this.draw(running.signal).finally(() => {
      if (this.running === running) this.running = null;
      this.changed();
    });
    return true;
  }

  stop(): void {
    const { running } = this;
    if (running === null) return;
    running.abort();
    // At once, whatever the model is doing: the reader has decided. A next picture waits until the step is done.
    this.running = null;
    this.change({ job: null });
    this.shell.announce("Stopped.");
  }

  private async draw(signal: AbortSignal): Promise<void> {
    const { start } = this.state;
    const { recipe } = this;
    const job: Job = {
      prompt: recipe.prompt,
      stage: "waiting",
      step: 0,
      steps: recipe.steps,
      secondsLeft: null,
      preview: null,
      loading: null,
      width: recipe.width,
      height: recipe.height,
    };
    this.change({ job, problem: null });
    this.shell.announce("Drawing.");
    const progress = (change: Partial<Job>): void => {
      if (!signal.aborted && this.state.job !== null) this.change({ job: { ...this.state.job, ...change } });
    };
    try {
      await this.shell.model.run(async (model, stop) => {
        // The model may only be known now, and with it its sizes.
        const made = { ...complete({ ...this.state.draft, ...recipe }, this.offer), model: model.info.model };
        progress({ step: 0, steps: made.steps, width: made.width, height: made.height });
        const { prompt, strength, scheduler, model: _known, ...options } = made;
        const image = await model.generateRgba(prompt, {
          ...options,
          scheduler: scheduler as SchedulerName, // one that the model has not is its error
          signal: stop,
          ...(start === null ? {} : { image: start.blob, strength: strength ?? 1 }),
          onStage: (stage) => progress({ stage, loading: null }),
          onProgress: (loading) => progress({ loading }),
          onStep: ({ step, steps, preview, secondsLeft }) =>
            progress({ step, steps, secondsLeft: secondsLeft ?? null, ...(preview === undefined ? {} : { preview }) }),
        });
        // Within the run: the page is at work until the picture is kept.
        if (!stop.aborted) await this.keep(image, { ...made, guidance: image.guidance, strength: start === null ? null : made.strength });
      }, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (errorCode(error) === "aborted") {
        this.change({ job: null }); // another backend was chosen meanwhile
        return;
      }
      this.tellProblem(errorCode(error), describeBreak(error, this.shell.options.words, "The picture broke off"));
    } finally {
      if (!signal.aborted) this.change({ job: null });
    }
  }

  private tellProblem(code: string, text: string): void {
    this.change({ problem: { code, text } });
    this.shell.announce(text);
  }

  closeProblem(): void {
    this.change({ problem: null });
  }

  /** Shows a finished picture and puts it into the gallery. */
  private async keep(image: GeneratedImage, recipe: Recipe): Promise<void> {
    const { file, thumb } = await this.env.filesOf(image);
    const kept = embedRecipe(file, recipe);
    const picture: Picture = { id: this.env.newId(), createdAt: this.env.now(), recipe, thumb };
    this.show(picture, kept, image.cut);
    this.change({ job: null });
    this.shell.announce(`The picture is ready: ${recipe.prompt}`);
    const gallery = await this.env.gallery;
    await gallery.put({ picture, file: kept });
    if (!this.persisted) this.env.persist();
    this.persisted = true;
    this.env.tell();
    await this.refreshGallery();
  }

  // ---- the gallery

  private show({ id, recipe }: Picture, file: Uint8Array<ArrayBuffer>, cut = ""): void {
    if (this.state.shown !== null) this.env.freeUrl(this.state.shown.url);
    this.change({ shown: { id, recipe, cut, url: this.env.toUrl(new Blob([file], { type: "image/png" })) } });
  }

  async open(picture: Picture): Promise<void> {
    const file = await (await this.env.gallery).file(picture.id);
    if (file === undefined) return this.refreshGallery();
    this.show(picture, file);
  }

  /** Also when another tab has changed it. */
  async refreshGallery(): Promise<void> {
    const gallery = await this.env.gallery;
    const list = await gallery.list();
    this.change({ gallery: list });
    const { trouble } = gallery;
    if (trouble === null) this.shell.model.dropNote("gallery");
    else {
      const why = trouble === "full" ? "This device's storage is full." : "This browser does not let the page store anything.";
      this.shell.model.note({
        id: "gallery",
        tone: "info",
        text: `${why} New pictures stay here until the page is closed: download those you want to keep.`,
      });
    }
    const last = list[0];
    if (this.state.shown === null && this.state.job === null && last !== undefined) await this.open(last);
  }

  async remove(id: string): Promise<void> {
    const gallery = await this.env.gallery;
    const picture = this.state.gallery.find((other) => other.id === id);
    const file = await gallery.file(id);
    await gallery.remove(id);
    this.env.tell();
    if (picture !== undefined && file !== undefined) this.change({ deleted: { picture, file } });
    this.forgetShown(id);
    await this.refreshGallery();
    this.shell.announce("The picture is deleted.");
  }

  private forgetShown(id?: string): void {
    const { shown } = this.state;
    if (shown === null || (id !== undefined && shown.id !== id)) return;
    this.env.freeUrl(shown.url);
    this.change({ shown: null });
  }

  async undoRemove(): Promise<void> {
    const { deleted } = this.state;
    this.forgetRemoved();
    if (deleted === null) return;
    await (await this.env.gallery).put(deleted);
    this.env.tell();
    await this.refreshGallery();
  }

  forgetRemoved(): void {
    this.change({ deleted: null });
  }

  async removeAll(): Promise<void> {
    await (await this.env.gallery).clear();
    this.env.tell();
    this.forgetRemoved();
    this.forgetShown();
    await this.refreshGallery();
  }
}
