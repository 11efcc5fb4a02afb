/**
 * The page's conduct: loads the model, sends what is written, keeps conversations. Knows nothing of how it looks;
 * the interface draws `state` and calls the methods.
 */

import type { BackendChoice, Chat, ChatInfo, LoadProgress, ModelModule, PromptMessage } from "../model-api";
import { ConversationStore, newConversation, type Conversation, type Ending, type Message } from "../store/conversations";
import { DEFAULT_SETTINGS, FALLBACK_SAMPLING, SettingsStore, type Settings } from "../store/settings";
import type { KeyValueStore } from "../store/storage";
import { describeBrokenAnswer, describeFailure, errorCode } from "../text/failures";
import { asSentence, backendName, formatStart } from "../text/format";
import { displayName, parseFacts, type ModelImporter } from "./model";
import { reduce, type Action, type Note, type State } from "./state";

export interface Surroundings {
  storage: KeyValueStore;
  importModel: ModelImporter;
  /** From the page's address; goes before the setting. */
  addressBackend: BackendChoice | null;
  /** Called when the reader's own choice replaces the one in the address. */
  forgetAddressBackend(): void;
  now(): number;
  /** A monotonic clock, milliseconds. */
  ticks(): number;
  newId(): string;
  newSeed(): number;
  online(): boolean;
  /** Calls back before the next frame is drawn. */
  nextFrame(callback: () => void): void;
}

/** While an answer streams it is written to storage this often, milliseconds. */
const SAVE_EVERY = 1000;
const CURRENT = "current";
const DISMISSED = "dismissed-fallback";
/** Failures of an answer after which a freshly loaded model is worth one try. */
const REVIVABLE = new Set(["device-lost", "worker-failed", "disposed"]);

/** The runtime's word for why an answer ended by itself, in the page's. */
const ENDINGS: Record<string, Ending> = { "max-tokens": "length", "context-full": "context" };

/** What the model is given: the system prompt if there is one, then all that was said. It drops itself what it cannot hold. */
export function promptMessages(conversation: Conversation, system: string): PromptMessage[] {
  const messages: PromptMessage[] = system.trim() === "" ? [] : [{ role: "system", content: system.trim() }];
  for (const { role, text } of conversation.messages) if (text !== "") messages.push({ role, content: text });
  return messages;
}

/** How fast backends are, best first. */
const RANK = ["webgpu", "wasm", "wasm-single"];

/** Why nothing faster is in use; null when nothing faster was considered. */
export function fallbackNote(info: ChatInfo): Note | null {
  const faster = (info.fallbacks ?? []).filter(({ backend }) => RANK.indexOf(backend) < RANK.indexOf(info.backend));
  if (faster.length === 0) return null;
  const used = info.backend === "wasm-single" ? "WASM with one thread" : "WASM";
  const instead = faster.some(({ backend }) => backend === "webgpu") ? " instead of WebGPU" : "";
  const text = faster.map(({ reason }) => asSentence(reason)).join(" ");
  return { id: "fallback", tone: "info", title: `Using ${used}${instead}`, text };
}

export class ChatApp {
  state: State;
  private readonly listeners = new Set<() => void>();
  private readonly conversations: ConversationStore;
  private readonly settings: SettingsStore;
  private addressBackend: BackendChoice | null;
  private chat: Chat | null = null;
  /** Of the load that counts; an older one that ends later is ignored. */
  private loading = new AbortController();
  private failedImports = 0;
  private answer: { abort: AbortController; finished: Promise<void> } | null = null;
  private lastSave = 0;
  /** As it is in storage. */
  private saved: Conversation | undefined;
  /** The answer takes the place of another one. */
  private anew = false;
  /** The GPU device went away and nothing has been heard of the model since. */
  private lost = false;

  constructor(private readonly env: Surroundings) {
    this.conversations = new ConversationStore(env.storage);
    this.settings = new SettingsStore(env.storage);
    this.addressBackend = env.addressBackend;
    const current = env.storage.get(CURRENT);
    const kept = typeof current === "string" ? this.conversations.get(current) : undefined;
    this.saved = kept;
    this.state = {
      engine: { phase: "loading", progress: null },
      facts: {},
      conversation: kept ?? newConversation(env.newId(), env.now()),
      history: this.conversations.list(),
      answering: null,
      queued: false,
      forgotten: 0,
      settings: this.settings.load(),
      notes: [],
      deleted: null,
      announcement: "",
    };
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private dispatch(action: Action): void {
    const next = reduce(this.state, action);
    if (next === this.state) return;
    this.state = next;
    for (const listener of this.listeners) listener();
  }

  // ---- the model

  get backendChoice(): BackendChoice {
    return this.addressBackend ?? this.state.settings.backend;
  }

  /** Loads the model; resolves when it is ready or has failed. */
  async load(): Promise<void> {
    this.loading.abort();
    const loading = new AbortController();
    this.loading = loading;
    this.dispatch({ type: "engine-loading" });
    this.lost = false;
    this.dispatch({ type: "note-gone", id: "device" });
    await this.releaseModel();
    let latest: LoadProgress | null = null;
    const showProgress = (): void => {
      if (latest !== null && !loading.signal.aborted) this.dispatch({ type: "engine-progress", progress: latest });
      latest = null;
    };
    try {
      const module = await this.importModule();
      if (loading.signal.aborted) return;
      this.dispatch({ type: "facts", facts: parseFacts(module.info) });
      const chat = await module.load({
        backend: this.backendChoice,
        signal: loading.signal,
        onProgress: (progress) => {
          if (latest === null) this.env.nextFrame(showProgress);
          latest = progress;
        },
      });
      if (loading.signal.aborted) {
        void chat.dispose();
        return;
      }
      this.chat = chat;
      chat.on("device-lost", () => this.deviceLost(chat));
      chat.on("backend-changed", () => this.backendChanged(chat));
      this.modelReady(chat);
    } catch (error) {
      if (loading.signal.aborted) return;
      this.dispatch({ type: "engine-failed", failure: describeFailure(error, this.env.online()) });
    }
  }

  private async importModule(): Promise<ModelModule> {
    try {
      return await this.env.importModel(this.failedImports);
    } catch (error) {
      this.failedImports++;
      throw error;
    }
  }

  private async releaseModel(): Promise<void> {
    const chat = this.chat;
    this.chat = null;
    try {
      await chat?.dispose();
    } catch {
      // A model that cannot even be put away is one more reason to load a new one.
    }
  }

  private modelReady(chat: Chat): void {
    this.dispatch({ type: "engine-ready", info: { ...chat.info } });
    // For those who measure: since the visit began, and since the model was asked for.
    if (chat.info.start) console.info(`tinychat: usable ${Math.round(this.env.ticks())} ms after the visit began; model ready ${formatStart(chat.info.start)}`);
    this.dispatch({ type: "announce", text: `${displayName(this.state.facts)} is ready.` });
    this.explainFallback(chat.info);
    if (this.state.queued) void this.startAnswer();
  }

  /** Says why a faster backend is not in use, unless the reader has seen and closed the same words. */
  private explainFallback(info: ChatInfo): void {
    const note = fallbackNote(info);
    if (note === null || this.env.storage.get(DISMISSED) === note.text) this.dispatch({ type: "note-gone", id: "fallback" });
    else this.dispatch({ type: "note", note });
  }

  private deviceLost(chat: Chat): void {
    if (chat !== this.chat) return;
    this.lost = true;
    this.explainLoss();
  }

  /** The runtime replaces a lost device in the course of the next answer. */
  private explainLoss(): void {
    const text =
      this.state.answering === null
        ? "The GPU was lost. The model comes back with your next message; your conversation is kept."
        : "The GPU was lost. Bringing the model back; your conversation is kept.";
    this.dispatch({ type: "note", note: { id: "device", tone: "busy", text } });
  }

  private backendChanged(chat: Chat): void {
    if (chat !== this.chat) return;
    this.dispatch({ type: "engine-info", info: { ...chat.info } });
    this.deviceRecovered(chat.info.backend);
  }

  private deviceRecovered(backend: string): void {
    this.lost = false;
    const text =
      backend === "webgpu"
        ? "The GPU was lost for a moment. The model is back."
        : `The GPU was lost. The model goes on with ${backendName(backend)}.`;
    this.dispatch({ type: "note", note: { id: "device", tone: "good", text } });
  }

  /** Tries again after a failed load. */
  retry(): Promise<void> {
    return this.load();
  }

  /** The network is back: go on with what its absence stopped. */
  cameOnline(): void {
    const { engine } = this.state;
    if (engine.phase === "failed" && engine.failure.code === "download-failed") void this.load();
  }

  dismissNote(id: Note["id"]): void {
    const note = this.state.notes.find((other) => other.id === id);
    if (note !== undefined && id === "fallback") this.env.storage.set(DISMISSED, note.text);
    this.dispatch({ type: "note-gone", id });
  }

  // ---- settings

  changeSettings(change: Partial<Settings>): void {
    const settings = { ...this.state.settings, ...change };
    const before = this.backendChoice;
    this.dispatch({ type: "settings", settings });
    this.settings.save(settings);
    if (change.backend !== undefined) {
      if (this.addressBackend !== null) this.env.forgetAddressBackend();
      this.addressBackend = null;
    }
    if (this.backendChoice !== before || (change.backend !== undefined && this.state.engine.phase === "failed")) {
      this.stop();
      void this.load();
    }
  }

  resetSettings(): void {
    const { theme, sidebar } = this.state.settings;
    this.changeSettings({ ...DEFAULT_SETTINGS, theme, sidebar });
  }

  /** What is sampled with: the reader's choice, else the model's, else the page's. */
  get sampling(): { temperature: number; topP: number; maxTokens: number } {
    const { settings, facts } = this.state;
    return {
      temperature: settings.temperature ?? facts.temperature ?? FALLBACK_SAMPLING.temperature,
      topP: settings.topP ?? facts.topP ?? FALLBACK_SAMPLING.topP,
      maxTokens: settings.maxTokens ?? facts.maxTokens ?? FALLBACK_SAMPLING.maxTokens,
    };
  }

  // ---- conversations

  newChat(): void {
    this.show(newConversation(this.env.newId(), this.env.now()));
  }

  open(id: string): void {
    if (id === this.state.conversation.id) return;
    const conversation = this.conversations.get(id);
    if (conversation !== undefined) this.show(conversation);
    else this.refreshHistory();
  }

  private show(conversation: Conversation): void {
    this.stop();
    this.save();
    this.env.storage.set(CURRENT, conversation.id);
    this.dispatch({ type: "show", conversation });
    this.saved = conversation;
    this.refreshHistory();
  }

  remove(id: string): void {
    if (id === this.state.conversation.id) this.stop();
    this.save();
    const conversation = this.conversations.get(id);
    this.conversations.remove(id);
    this.dispatch({ type: "deleted", conversation: conversation ?? null });
    if (id === this.state.conversation.id) {
      this.dispatch({ type: "show", conversation: newConversation(this.env.newId(), this.env.now()) });
    }
    this.refreshHistory();
  }

  undoRemove(): void {
    const { deleted } = this.state;
    this.forgetRemoved();
    if (deleted === null) return;
    this.conversations.put(deleted);
    this.open(deleted.id);
    this.refreshHistory();
  }

  forgetRemoved(): void {
    this.dispatch({ type: "deleted", conversation: null });
  }

  removeAll(): void {
    this.stop();
    this.conversations.clear();
    this.forgetRemoved();
    this.dispatch({ type: "show", conversation: newConversation(this.env.newId(), this.env.now()) });
    this.refreshHistory();
  }

  /** Also when another tab has changed them. */
  refreshHistory(): void {
    this.dispatch({ type: "history", history: this.conversations.list() });
  }

  get keepsConversations(): boolean {
    return this.conversations.lasting;
  }

  /** Writes the shown conversation to storage. */
  save(): void {
    const { conversation } = this.state;
    // What another tab has deleted meanwhile must not come back unchanged.
    if (conversation === this.saved) return;
    this.saved = conversation;
    this.lastSave = this.env.ticks();
    this.conversations.put(conversation);
    if (conversation.messages.length > 0) this.env.storage.set(CURRENT, conversation.id);
  }

  // ---- talking

  /** Sends a message; while the model is loading it waits for it. Returns false if there is nothing to send. */
  send(text: string): boolean {
    const trimmed = text.trim();
    if (trimmed === "" || this.state.answering !== null || this.state.queued) return false;
    this.anew = false;
    const message: Message = { id: this.env.newId(), role: "user", text: trimmed, ending: "done" };
    this.dispatch({ type: "said", message, now: this.env.now() });
    this.save();
    this.refreshHistory();
    this.ask();
    return true;
  }

  /** Answers the last message of the user anew. */
  regenerate(): void {
    const { conversation, answering, queued } = this.state;
    if (answering !== null || queued || !conversation.messages.some((message) => message.role === "user")) return;
    this.dispatch({ type: "answer-withdrawn" });
    this.anew = true;
    this.ask();
  }

  private ask(): void {
    if (this.chat !== null && this.state.engine.phase === "ready") {
      void this.startAnswer();
      return;
    }
    this.dispatch({ type: "queued", queued: true });
    if (this.state.engine.phase === "failed") void this.load();
  }

  stop(): void {
    this.answer?.abort.abort();
    this.dispatch({ type: "queued", queued: false });
    const { answering } = this.state;
    // At once, whatever the model is doing: the reader has decided.
    if (answering !== null) this.endAnswer(answering.messageId, "stopped");
  }

  private endAnswer(id: string, ending: Ending, more: { problem?: string; tokens?: number } = {}): void {
    if (this.state.answering?.messageId !== id) return;
    const speed = this.chat?.info.tokensPerSecond ?? 0;
    const stats =
      more.tokens !== undefined && more.tokens > 0 ? { stats: { tokens: more.tokens, tokensPerSecond: speed } } : {};
    const problem = more.problem === undefined ? {} : { problem: more.problem };
    this.dispatch({ type: "answer-ended", id, ending, now: this.env.now(), ...problem, ...stats });
    if (this.chat !== null) this.dispatch({ type: "engine-info", info: { ...this.chat.info } });
    this.save();
    this.refreshHistory();
    const message = this.state.conversation.messages.find((other) => other.id === id);
    const said = message === undefined || message.text === "" ? "" : `${displayName(this.state.facts)}: ${message.text}`;
    this.dispatch({ type: "announce", text: ending === "stopped" ? "Stopped." : said });
  }

  private async startAnswer(): Promise<void> {
    const abort = new AbortController();
    const before = this.answer?.finished;
    // "stopped" until it ends: that is what a reload in the middle leaves behind.
    const message: Message = { id: this.env.newId(), role: "assistant", text: "", ending: "stopped" };
    const conversation = this.state.conversation;
    this.dispatch({ type: "answer-started", message, now: this.env.now() });
    if (this.lost) this.explainLoss();
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
    const messages = promptMessages(conversation, this.state.settings.system);
    const count = { tokens: 0 };
    for (let revived = false; !signal.aborted; revived = true) {
      count.tokens = 0;
      try {
        await this.stream(messages, id, signal, count);
        if (signal.aborted) return;
        this.dispatch({ type: "forgotten", count: this.chat?.info.droppedMessages ?? 0 });
        this.endAnswer(id, ENDINGS[this.chat?.info.stopReason ?? ""] ?? "done", count);
        return;
      } catch (error) {
        const code = errorCode(error);
        if (signal.aborted) return;
        if (REVIVABLE.has(code) && !revived && (await this.revive(code === "device-lost"))) continue;
        this.endAnswer(id, code === "aborted" ? "stopped" : "failed", { ...count, problem: describeBrokenAnswer(error) });
        return;
      }
    }
  }

  /** Loads the model anew under a running answer. */
  private async revive(deviceLost: boolean): Promise<boolean> {
    if (deviceLost && this.chat !== null) this.deviceLost(this.chat);
    await this.load();
    const { engine } = this.state;
    if (engine.phase !== "ready") return false;
    if (deviceLost) this.deviceRecovered(engine.info.backend);
    return true;
  }

  private async stream(messages: PromptMessage[], id: string, signal: AbortSignal, count: { tokens: number }): Promise<void> {
    const chat = this.chat;
    if (chat === null) throw Object.assign(new Error("The model is not loaded."), { code: "disposed" });
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
    const parts = chat.generate(messages, { ...sampling, seed: this.env.newSeed(), signal });
    try {
      for await (const part of parts) {
        if (signal.aborted) return;
        if (count.tokens++ === 0) firstAt = this.env.ticks();
        text += part.text;
        if (this.lost && chat === this.chat) this.deviceRecovered(chat.info.backend);
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
  }
}
