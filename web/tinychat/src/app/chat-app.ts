/**
 * The page's conduct: sends what is written, keeps conversations. Knows nothing of how it looks;
 * the interface draws `state` and calls the methods.
 */

import { describeBreak, errorCode, isBlank, pageState, Store, type PageState, type Shell } from "tinyweb-shell";
import type { AnswerFigures, Chat, Excess, PromptMessage } from "../model-api";
import { ConversationStore, newConversation, type Conversation, type Ending, type Message } from "../store/conversations";
import { FALLBACK_SAMPLING, HIDDEN_TOKENS_PER_SECOND, samplingOf, type Sampling, type Settings } from "../store/settings";
import { displayName, parseFacts } from "./facts";
import { reduce, type Action, type State, type Talk } from "./state";

export interface Surroundings {
  shell: Shell<Chat, Settings>;
  now(): number;
  /** A monotonic clock, milliseconds. */
  ticks(): number;
  newId(): string;
  newSeed(): number;
  /** Calls back before the next frame is drawn. */
  nextFrame(callback: () => void): void;
}

/** While an answer streams it is written to storage this often, milliseconds. */
const SAVE_EVERY = 1000;
const CURRENT = "current";
/** The note that the conversation was deleted in another tab. */
const GONE = "gone";
/** What is shown in place of an answer without anything to see. */
export const EMPTY_ANSWER = "The answer is empty.";

/** The runtime's word for why an answer ended by itself, in the page's. */
const ENDINGS: Record<string, Ending> = { "max-tokens": "length", "context-full": "context" };

/** What the model is given: the system prompt if there is one, then all that was said. It drops itself what it cannot hold. */
export function promptMessages(conversation: Conversation, system: string): PromptMessage[] {
  const messages: PromptMessage[] = system.trim() === "" ? [] : [{ role: "system", content: system.trim() }];
  for (const { role, text } of conversation.messages) if (!isBlank(text)) messages.push({ role, content: text });
  return messages;
}

/** Whether the model ended an answer of its own accord without having said anything. */
export function isEmptyAnswer({ role, text, ending }: Message): boolean {
  return role === "assistant" && ending !== "stopped" && ending !== "failed" && isBlank(text);
}

const TOO_LONG: Record<Excess["of"], [what: string, todo: string]> = {
  system: ["The instructions in the settings are", "Shorten them in the settings and send the message again."],
  message: ["This message is", "Shorten it and send it again."],
  both: ["The instructions in the settings and this message together are", "Shorten one of them and send the message again."],
};

/** Why an answer broke off, in a sentence or two. */
function describeBrokenAnswer(error: unknown, words: Parameters<typeof describeBreak>[1]): string {
  const { excess } = Object(error) as { excess?: Excess };
  if (excess !== undefined) {
    const [what, todo] = TOO_LONG[excess.of];
    return `${what} too long by about ${excess.tokens} ${excess.tokens === 1 ? "token" : "tokens"} for what the model can hold. ${todo}`;
  }
  return describeBreak(error, words, "The answer broke off");
}

/** How far an answer has come. */
interface Progress {
  tokens: number;
  figures?: Readonly<AnswerFigures>;
}

export class ChatApp extends Store<Talk> {
  readonly shell: Shell<Chat, Settings>;
  private readonly conversations: ConversationStore;
  private answer: { abort: AbortController; finished: Promise<void> } | null = null;
  private lastSave = 0;
  /** Another tab has changed something that is not shown yet. */
  private behind = false;
  /** What was last written of an answer. */
  private saved: Message | undefined;
  /** The id of the message that is to be answered. */
  private question = "";
  /** The answer takes the place of another one. */
  private anew = false;

  constructor(private readonly env: Surroundings) {
    const { storage } = env.shell;
    const conversations = new ConversationStore(storage);
    conversations.sweep(env.now());
    const current = storage.get(CURRENT);
    const kept = typeof current === "string" ? conversations.get(current) : undefined;
    super({
      conversation: kept ?? newConversation(env.newId(), env.now()),
      history: conversations.list(),
      answering: null,
      queued: false,
      forgotten: 0,
      figures: null,
      deleted: null,
    });
    this.shell = env.shell;
    this.conversations = conversations;
    this.shell.subscribe(() => this.changed());
    this.shell.model.onReady(() => {
      if (this.talk.queued) void this.startAnswer();
    });
  }

  private get talk(): Talk {
    return super.state;
  }

  /** All that the page shows. */
  override get state(): State {
    const { settings, model } = this.shell;
    const { engine, facts, notes } = model.state;
    return { ...this.talk, settings, engine, facts: parseFacts(facts), notes };
  }

  get pageState(): PageState {
    return pageState(this.shell.model.state.engine, this.talk.answering !== null);
  }

  private dispatch(action: Action): void {
    const next = reduce(this.talk, action);
    if (next !== this.talk) this.change(next);
  }

  changeSettings(change: Partial<Settings>): void {
    this.shell.changeSettings(change);
  }

  get sampling(): Sampling {
    const { settings, facts } = this.state;
    return samplingOf(settings, facts);
  }

  // ---- conversations

  newChat(): void {
    this.show(newConversation(this.env.newId(), this.env.now()));
  }

  open(id: string): void {
    if (id === this.talk.conversation.id) return;
    const conversation = this.conversations.get(id);
    if (conversation !== undefined) this.show(conversation);
    else this.refreshHistory();
  }

  private show(conversation: Conversation): void {
    this.stop();
    this.shell.model.dropNote(GONE);
    this.shell.storage.set(CURRENT, conversation.id);
    this.dispatch({ type: "show", conversation });
    this.refreshHistory();
  }

  remove(id: string): void {
    if (id === this.talk.conversation.id) this.stop();
    this.forgetRemoved();
    this.dispatch({ type: "deleted", conversation: this.conversations.remove(id, this.env.now()) ?? null });
    if (id === this.talk.conversation.id) {
      this.dispatch({ type: "show", conversation: newConversation(this.env.newId(), this.env.now()) });
    }
    this.refreshHistory();
  }

  undoRemove(): void {
    const { deleted } = this.talk;
    if (deleted === null) return;
    this.dispatch({ type: "deleted", conversation: null });
    this.shell.reportKept(this.conversations.restore(deleted));
    this.open(deleted.id);
    this.refreshHistory();
  }

  /** From now on it cannot be brought back. */
  forgetRemoved(): void {
    const { deleted } = this.talk;
    if (deleted === null) return;
    this.conversations.discard(deleted.id);
    this.dispatch({ type: "deleted", conversation: null });
  }

  removeAll(): void {
    this.stop();
    this.conversations.clear();
    this.forgetRemoved();
    this.dispatch({ type: "show", conversation: newConversation(this.env.newId(), this.env.now()) });
    this.refreshHistory();
  }

  private refreshHistory(): void {
    this.dispatch({ type: "history", history: this.conversations.list() });
  }

  /** To be called when another tab may have changed what is stored. What happens in a row is shown at once. */
  changedElsewhere(): void {
    if (this.behind) return;
    this.behind = true;
    this.env.nextFrame(() => this.catchUp());
  }

  /** Shows what other tabs have said and deleted. An answer that is no longer part of it ends. */
  private catchUp(): void {
    this.behind = false;
    const { conversation, answering } = this.talk;
    const stored = this.conversations.get(conversation.id);
    if (stored !== undefined) {
      // What is written here is ahead of storage.
      const own = conversation.messages.find(({ id }) => id === answering?.messageId);
      const messages = stored.messages.map((message) => (message.id === own?.id ? own : message));
      this.dispatch({ type: "merged", conversation: { ...stored, messages } });
      if (answering !== null && this.talk.answering === null) this.answer?.abort.abort();
    } else if (conversation.messages.length > 0) {
      this.newChat();
      this.shell.model.note({ id: GONE, tone: "info", text: "The conversation that was open here has been deleted in another tab." });
    }
    this.refreshHistory();
  }

  get keepsConversations(): boolean {
    return this.conversations.lasting;
  }

  /** Room that the conversations take in storage. */
  get conversationBytes(): number {
    return this.conversations.bytes;
  }

  /** Writes what has been written of an answer to storage. */
  save(): void {
    const { conversation, answering } = this.talk;
    const message = conversation.messages.find(({ id }) => id === answering?.messageId);
    if (message !== undefined && message !== this.saved) this.keep(message);
  }

  private keep(message: Message): void {
    const { id } = this.talk.conversation;
    this.saved = message;
    this.lastSave = this.env.ticks();
    this.shell.storage.set(CURRENT, id);
    this.shell.reportKept(this.conversations.put(id, message));
  }

  /** The place of what is said now: behind all that is seen, even if the clock was set back. */
  private nextPlace(): number {
    return this.talk.conversation.messages.reduce((latest, { at }) => Math.max(latest, at + 1), this.env.now());
  }

  // ---- talking

  /** Sends a message; while the model is loading it waits for it. Returns false if there is nothing to send. */
  send(text: string): boolean {
    if (isBlank(text) || this.talk.answering !== null || this.talk.queued) return false;
    this.catchUp();
    const first = this.talk.conversation.messages.length === 0;
    const message: Message = { id: this.env.newId(), at: this.nextPlace(), role: "user", text: text.trim(), ending: "done" };
    this.dispatch({ type: "said", message });
    if (first) this.conversations.create(this.talk.conversation);
    this.keep(message);
    this.refreshHistory();
    this.ask(message.id, false);
    return true;
  }

  /** Answers the last message of the user anew. */
  regenerate(): void {
    if (this.talk.answering !== null || this.talk.queued) return;
    this.catchUp();
    const question = this.talk.conversation.messages.findLast((message) => message.role === "user");
    if (question !== undefined) this.ask(question.id, true);
  }

  private ask(question: string, anew: boolean): void {
    this.question = question;
    this.anew = anew;
    const { model } = this.shell;
    if (model.state.engine.phase === "ready") {
      void this.startAnswer();
      return;
    }
    this.dispatch({ type: "queued", queued: true });
    if (model.state.engine.phase === "failed") void model.load();
  }

  stop(): void {
    this.answer?.abort.abort();
    this.dispatch({ type: "queued", queued: false });
    const { answering } = this.talk;
    // At once, whatever the model is doing: the reader has decided.
    if (answering !== null) this.endAnswer(answering.messageId, "stopped");
  }

  private endAnswer(id: string, ending: Ending, more: { problem?: string } & Partial<Progress> = {}): void {
    if (this.talk.answering?.messageId !== id) return;
    const { model } = this.shell;
    const { tokens = 0, figures } = more;
    const stats = tokens > 0 ? { stats: { tokens, tokensPerSecond: figures?.tokensPerSecond ?? 0 } } : {};
    const problem = more.problem === undefined ? {} : { problem: more.problem };
    this.dispatch({ type: "answer-ended", id, ending, ...problem, ...stats });
    model.refresh();
    const message = this.talk.conversation.messages.find((other) => other.id === id);
    if (message === undefined) return;
    this.keep(message);
    this.refreshHistory();
    const said = isEmptyAnswer(message) ? EMPTY_ANSWER : message.text;
    this.shell.announce(ending === "stopped" ? "Stopped." : isBlank(said) ? "" : `${displayName(this.state.facts)}: ${said}`);
  }

  private async startAnswer(): Promise<void> {
    const { messages } = this.talk.conversation;
    const asked = messages.findIndex(({ id }) => id === this.question);
    if (asked < 0) return this.dispatch({ type: "queued", queued: false });
    const abort = new AbortController();
    const before = this.answer?.finished;
    // "stopped" until it ends: that is what a reload in the middle leaves behind.
    const message: Message = {
      id: this.env.newId(),
      at: this.nextPlace(),
      role: "assistant",
      to: this.question,
      text: "",
      ending: "stopped",
    };
    const conversation = { ...this.talk.conversation, messages: messages.slice(0, asked + 1) };
    const replaced = messages.find(({ to }) => to === this.question);
    this.dispatch({ type: "answer-started", message });
    this.keep(message); // so that other tabs do not answer it as well
    if (replaced !== undefined) this.conversations.withdraw(conversation.id, replaced);
    const run = async (): Promise<void> => {
      await before;
      await this.runAnswer(conversation, message.id, abort.signal);
    };
    const finished = run();
    this.answer = { abort, finished };
    await finished;
  }

  /** Streams one answer into the message `id`. Never throws. */
  private async runAnswer(conversation: Conversation, id: string, signal: AbortSignal): Promise<void> {
    const { model, options } = this.shell;
    const messages = promptMessages(conversation, this.state.settings.system);
    const count: Progress = { tokens: 0 };
    try {
      const figures = await model.run((chat, running) => {
        count.tokens = 0;
        return this.stream(chat, messages, id, running, count);
      }, signal);
      this.dispatch({ type: "figures", figures });
      this.endAnswer(id, ENDINGS[figures.stopReason] ?? "done", count);
    } catch (error) {
      if (signal.aborted) return;
      if (errorCode(error) === "aborted") this.endAnswer(id, "stopped", count);
      else this.endAnswer(id, "failed", { ...count, problem: describeBrokenAnswer(error, options.words) });
    }
  }

  private async stream(
    chat: Chat,
    messages: PromptMessage[],
    id: string,
    signal: AbortSignal,
    count: Progress,
  ): Promise<Readonly<AnswerFigures>> {
    let text = "";
    let drawn = false;
    let firstAt = 0;
    const draw = (): void => {
      drawn = false;
      const seconds = (this.env.ticks() - firstAt) / 1000;
      // Over less than a few tokens the figure would only flicker.
      const tokensPerSecond = count.tokens > 4 && seconds > 0 ? (count.tokens - 1) / seconds : 0;
      this.dispatch({ type: "answer-text", id, text, tokensPerSecond });
      if (this.env.ticks() - this.lastSave > SAVE_EVERY && !signal.aborted) this.save();
    };
    draw();
    const { sampling } = this;
    // A model that is not meant to be sampled would only say the same once more.
    if (this.anew && this.state.settings.temperature === null) {
      sampling.temperature = Math.max(sampling.temperature, FALLBACK_SAMPLING.temperature);
    }
    const hiddenTokensPerSecond = HIDDEN_TOKENS_PER_SECOND;
    const parts = chat.generate(messages, { ...sampling, seed: this.env.newSeed(), hiddenTokensPerSecond, signal });
    count.figures = parts.progress;
    try {
      for await (const part of parts) {
        if (signal.aborted) break;
        if (count.tokens++ === 0) firstAt = this.env.ticks();
        text += part.text;
        this.shell.model.alive(chat);
        if (!drawn) {
          drawn = true;
          this.env.nextFrame(() => {
            if (drawn) draw();
          });
        }
      }
    } finally {
      // What arrived after the last frame.
      if (drawn) draw();
    }
    return parts.progress;
  }
}
