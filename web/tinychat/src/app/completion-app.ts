/**
 * The page of a base model: one text, which the model continues. Knows nothing of how it looks.
 */

import { describeBreak, errorCode, Store, type Shell } from "tinyweb-shell";
import type { AnswerFigures, Chat, PromptMessage } from "../model-api";
import { FALLBACK_SAMPLING, HIDDEN_TOKENS_PER_SECOND, samplingOf, type Settings } from "../store/settings";
import { parseFacts, type ModelFacts } from "./facts";

export interface Writing {
  text: string;
  /** The text is being continued, or will be as soon as the model is ready. */
  phase: "idle" | "queued" | "reading" | "writing";
  /** Why the last continuation broke off; "" where it did not. */
  problem: string;
  /** What else there is to say of it. */
  ended: string;
  /** While it is written; 0 until there is something to measure. */
  tokensPerSecond: number;
  figures: Readonly<AnswerFigures> | null;
  canUndo: boolean;
  canRetry: boolean;
}

export interface Surroundings {
  shell: Shell<Chat, Settings>;
  ticks(): number;
  newSeed(): number;
  nextFrame(callback: () => void): void;
}

const TEXT = "text";
const SAVE_EVERY = 1000;
const UNDO_DEPTH = 50;
/** Characters of a piece, about. */
const PIECE = 160;
const AT_END = "The model sees an end here.";
const FORGOTTEN = "The beginning no longer fits into what the model sees at once.";

/** The messages of a text that a base model is to continue: pieces, so that the oldest of what is too long can be left out. */
export function pieces(text: string): PromptMessage[] {
  const found: PromptMessage[] = [];
  for (let start = 0; start < text.length; ) {
    const space = text.slice(start + PIECE, start + 2 * PIECE).search(/\s/u);
    let end = space < 0 ? start + 2 * PIECE : start + PIECE + space;
    if (/[\uD800-\uDBFF]/u.test(text.charAt(end - 1)) && end < text.length) end++; // no half of a character
    found.push({ role: "user", content: text.slice(start, end) });
    start = end;
  }
  return found.length > 0 ? found : [{ role: "user", content: "" }];
}

export class CompletionApp extends Store<Writing> {
  readonly shell: Shell<Chat, Settings>;
  /** Texts before what was done to them, the latest last. */
  private past: string[] = [];
  /** What the last continuation made of the text; another continuation may take its place as long as it is that. */
  private made: string | null = null;
  private anew = false;
  private abort: AbortController | null = null;
  private savedAt = 0;
  private saved = "";

  constructor(private readonly env: Surroundings) {
    const kept = env.shell.storage.get(TEXT);
    super({
      text: typeof kept === "string" ? kept : "",
      phase: "idle",
      problem: "",
      ended: "",
      tokensPerSecond: 0,
      figures: null,
      canUndo: false,
      canRetry: false,
    });
    this.saved = this.state.text;
    this.shell = env.shell;
    this.shell.subscribe(() => this.changed());
    this.shell.model.onReady(() => {
      if (this.state.phase === "queued") void this.run();
    });
  }

  get facts(): ModelFacts {
    return parseFacts(this.shell.model.state.facts);
  }

  get busy(): boolean {
    return this.state.phase !== "idle";
  }

  /** The reader writes. */
  write(text: string): void {
    if (this.busy) return;
    this.put({ text, problem: "", ended: "" });
    this.save(false);
  }

  /** Lets the model go on; it waits for the model where that is not ready. */
  continue(): void {
    if (!this.busy) this.begin(this.state.text);
  }

  /** Another continuation in place of the last. */
  retry(): void {
    const before = this.past.at(-1);
    if (this.busy || !this.state.canRetry || before === undefined) return;
    this.past.pop();
    this.begin(before, true);
  }

  undo(): void {
    if (this.busy) return;
    const before = this.past.pop();
    if (before === undefined) return;
    this.made = null;
    this.put({ text: before, problem: "", ended: "" });
    this.save(true);
    this.shell.announce("Undone.");
  }

  /** An empty text; what was there can be had back. */
  clear(): void {
    if (this.busy || this.state.text === "") return;
    this.remember(this.state.text);
    this.made = null;
    this.put({ text: "", problem: "", ended: "" });
    this.save(true);
  }

  /** Another tab has saved its text: it is shown here, too, unless this tab is ahead of storage. */
  changedElsewhere(): void {
    const kept = this.shell.storage.get(TEXT);
    if (this.busy || typeof kept !== "string" || kept === this.state.text || this.state.text !== this.saved) return;
    this.remember(this.state.text);
    this.made = null;
    this.saved = kept;
    this.put({ text: kept, problem: "", ended: "" });
  }

  stop(): void {
    this.abort?.abort();
    if (this.state.phase === "queued") this.put({ phase: "idle" });
  }

  /** Writes the text to storage. */
  save(now = true): void {
    if ((!now && this.env.ticks() - this.savedAt < SAVE_EVERY) || this.saved === this.state.text) return;
    this.savedAt = this.env.ticks();
    this.saved = this.state.text;
    this.shell.storage.set(TEXT, this.saved);
    this.shell.reportKept(this.shell.storage.complete);
  }

  /** @param anew something else is wanted than what the model says first */
  private begin(text: string, anew = false): void {
    this.remember(text);
    this.anew = anew;
    this.put({ text, problem: "", ended: "", phase: "queued" });
    const { model } = this.shell;
    if (model.state.engine.phase === "ready") void this.run();
    else if (model.state.engine.phase === "failed") void model.load();
  }

  private remember(text: string): void {
    this.past = [...this.past, text].slice(-UNDO_DEPTH);
  }

  private put(change: Partial<Writing>): void {
    const next = { ...this.state, ...change };
    next.canUndo = this.past.length > 0;
    next.canRetry = this.past.length > 0 && next.text === this.made;
    this.change(next);
  }

  /** Never throws. */
  private async run(): Promise<void> {
    const before = this.state.text;
    const abort = new AbortController();
    this.abort = abort;
    this.put({ phase: "reading", tokensPerSecond: 0 });
    let end: Partial<Writing> = {};
    try {
      const figures = await this.shell.model.run((chat, running) => this.stream(chat, before, running), abort.signal);
      const notes = [figures.droppedMessages > 0 ? FORGOTTEN : "", figures.stopReason === "end" ? AT_END : ""];
      end = { figures, ended: notes.join(" ").trim() };
    } catch (error) {
      if (!abort.signal.aborted && errorCode(error) !== "aborted") {
        end = { problem: describeBreak(error, this.shell.options.words, "The text broke off") };
      }
    }
    const { text } = this.state;
    if (text === before) this.past.pop();
    this.made = text === before ? null : text;
    this.abort = null;
    this.put({ ...end, phase: "idle" });
    this.shell.model.refresh();
    this.save(true);
    this.shell.announce(abort.signal.aborted ? "Stopped." : text === before ? (end.ended ?? "") : text.slice(before.length));
  }

  private async stream(chat: Chat, before: string, signal: AbortSignal): Promise<Readonly<AnswerFigures>> {
    let [text, tokens, firstAt, drawn] = [before, 0, 0, false];
    const draw = (): void => {
      drawn = false;
      const seconds = (this.env.ticks() - firstAt) / 1000;
      const tokensPerSecond = tokens > 4 && seconds > 0 ? (tokens - 1) / seconds : 0;
      this.put({ text, tokensPerSecond, phase: tokens > 0 ? "writing" : "reading" });
      this.save(false);
    };
    draw(); // from the start, where the model was lost on the way
    const sampling = samplingOf(this.shell.settings, this.facts);
    // A model that is not meant to be sampled would only say the same once more.
    if (this.anew && this.shell.settings.temperature === null) {
      sampling.temperature = Math.max(sampling.temperature, FALLBACK_SAMPLING.temperature);
    }
    const options = {
      ...sampling,
      seed: this.env.newSeed(),
      hiddenTokensPerSecond: HIDDEN_TOKENS_PER_SECOND,
      signal,
    };
    const parts = chat.generate(pieces(before), options);
    try {
      for await (const part of parts) {
        if (signal.aborted) break;
        if (tokens++ === 0) firstAt = this.env.ticks();
        text += part.text;
        this.shell.model.alive(chat);
        if (drawn) continue;
        drawn = true;
        this.env.nextFrame(() => {
          if (drawn) draw();
        });
      }
    } finally {
      if (drawn) draw();
    }
    return parts.progress;
  }
}
