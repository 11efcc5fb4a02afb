/** Conversations, one stored value each, so that two open tabs do not overwrite each other's. */

import type { KeyValueStore } from "tinyweb-shell";

/** How an answer ended: by itself, by the reader, at the length set, at the end of the model's context, or by an error. */
const ENDINGS = ["done", "stopped", "length", "context", "failed"] as const;
export type Ending = (typeof ENDINGS)[number];

export interface AnswerStats {
  tokens: number;
  tokensPerSecond: number;
}

export interface Message {
  id: string;
  role: "user" | "assistant";
  text: string;
  ending: Ending;
  /** One sentence, when `ending` is "failed". */
  problem?: string;
  stats?: AnswerStats;
}

export interface Conversation {
  id: string;
  title: string;
  /** Milliseconds since 1970. */
  createdAt: number;
  updatedAt: number;
  messages: Message[];
}

export type Summary = Pick<Conversation, "id" | "title" | "updatedAt">;

/** The oldest go first when there are more. */
export const MAX_CONVERSATIONS = 200;
const MAX_EVICTIONS = 10;
const MAX_TITLE = 60;
const PREFIX = "chat:";

export function newConversation(id: string, now: number): Conversation {
  return { id, title: "", createdAt: now, updatedAt: now, messages: [] };
}

/** The first line of what was first said, cut at a word. */
export function titleFrom(text: string): string {
  const line = text.trim().split(/\s*\n/u, 1)[0]?.replace(/\s+/gu, " ") ?? "";
  if (line.length <= MAX_TITLE) return line;
  const space = line.lastIndexOf(" ", MAX_TITLE);
  return `${line.slice(0, space > MAX_TITLE / 2 ? space : MAX_TITLE)}…`;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

function parseMessage(value: unknown): Message | undefined {
  if (!isRecord(value)) return undefined;
  const { id, role, text, ending, problem, stats } = value;
  if (typeof id !== "string" || typeof text !== "string" || (role !== "user" && role !== "assistant")) return undefined;
  const message: Message = {
    id,
    role,
    text,
    ending: ENDINGS.find((known) => known === ending) ?? "done",
  };
  if (typeof problem === "string") message.problem = problem;
  if (isRecord(stats) && isCount(stats["tokens"]) && isCount(stats["tokensPerSecond"])) {
    message.stats = { tokens: stats["tokens"], tokensPerSecond: stats["tokensPerSecond"] };
  }
  return message;
}

/** A stored value as a conversation, or undefined if it is none. Broken messages are left out, the others kept. */
export function parseConversation(value: unknown): Conversation | undefined {
  if (!isRecord(value)) return undefined;
  const { id, title, createdAt, updatedAt, messages } = value;
  if (typeof id !== "string" || id === "" || !Array.isArray(messages)) return undefined;
  const kept = messages.map(parseMessage).filter((message) => message !== undefined);
  const first = kept.find((message) => message.role === "user");
  return {
    id,
    title: typeof title === "string" && title !== "" ? title : titleFrom(first?.text ?? ""),
    createdAt: isCount(createdAt) ? createdAt : 0,
    updatedAt: isCount(updatedAt) ? updatedAt : 0,
    messages: kept,
  };
}

export class ConversationStore {
  constructor(private readonly storage: KeyValueStore) {}

  get lasting(): boolean {
    return this.storage.lasting;
  }

  /** Browsers store two bytes for each character. */
  get bytes(): number {
    const keys = this.storage.keys().filter((key) => key.startsWith(PREFIX));
    return keys.reduce((sum, key) => sum + 2 * (key.length + JSON.stringify(this.storage.get(key) ?? "").length), 0);
  }

  /** Newest first. */
  list(): Summary[] {
    const found: Summary[] = [];
    for (const key of this.storage.keys()) {
      if (!key.startsWith(PREFIX)) continue;
      const conversation = parseConversation(this.storage.get(key));
      if (conversation === undefined || conversation.messages.length === 0) continue;
      found.push({ id: conversation.id, title: conversation.title, updatedAt: conversation.updatedAt });
    }
    return found.sort((a, b) => b.updatedAt - a.updatedAt || (a.id < b.id ? -1 : 1));
  }

  get(id: string): Conversation | undefined {
    return parseConversation(this.storage.get(PREFIX + id));
  }

  /**
   * Writes the conversation; an empty one is not worth keeping. When storage is full a few of the oldest make room. Returns
   * false where even that did not help: then it lasts until the page is closed.
   */
  put(conversation: Conversation): boolean {
    if (conversation.messages.length === 0) return true;
    const key = PREFIX + conversation.id;
    const others = (): Summary[] => this.list().filter((other) => other.id !== conversation.id);
    const isNew = this.storage.get(key) === undefined;
    if (isNew && this.storage.keys().filter((other) => other.startsWith(PREFIX)).length >= MAX_CONVERSATIONS) {
      for (const surplus of others().slice(MAX_CONVERSATIONS - 1)) this.remove(surplus.id);
    }
    // Another site on this origin may be what fills the storage: then it is no use to delete everything.
    for (let tries = 0; !this.storage.set(key, conversation) && tries < MAX_EVICTIONS; tries++) {
      const oldest = others().at(-1);
      if (oldest === undefined) return false;
      this.remove(oldest.id);
    }
    return !this.storage.overflows(key);
  }

  remove(id: string): void {
    this.storage.remove(PREFIX + id);
  }

  clear(): void {
    for (const key of this.storage.keys()) if (key.startsWith(PREFIX)) this.storage.remove(key);
  }
}
