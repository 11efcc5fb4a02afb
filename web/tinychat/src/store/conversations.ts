/**
 * Conversations as small values that tabs do not have to agree on before they write them:
 *
 *   chat:ID              the head: the title, and when it began. Written when the first message is said, and never changed.
 *   chat:ID/AT/MESSAGE   one message, written only by the tab that says it.
 *
 * What is shown is all messages whose head is there, in an order that follows from themselves: whatever the order in which
 * tabs learn of each other's values, they end up showing the same. Deleting puts a mark in the place of the head, which is
 * shorter, so that it fits into a full storage; what another tab says meanwhile stays unseen, and is there after an undo.
 * Pages before this form kept all messages in the head; such heads are read as they are, and go on with messages beside them.
 */

import { isBlank, type KeyValueStore } from "tinyweb-shell";

/** How an answer ended: by itself, by the reader, at the length set, at the end of the model's context, or by an error. */
const ENDINGS = ["done", "stopped", "length", "context", "failed"] as const;
export type Ending = (typeof ENDINGS)[number];

export interface AnswerStats {
  tokens: number;
  tokensPerSecond: number;
}

export interface Message {
  id: string;
  /** Its place: milliseconds since 1970, yet later than all that was seen when it was said, whatever the clock says. */
  at: number;
  role: "user" | "assistant";
  /** Of an answer: the id of the message that it answers. */
  to?: string;
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
  messages: Message[];
}

export interface Summary {
  id: string;
  title: string;
  /** When something was last said. */
  updatedAt: number;
}

/** What it takes to bring a deleted conversation back. */
export interface Removed {
  id: string;
  title: string;
  head: unknown;
}

/** The oldest go first when there are more. */
export const MAX_CONVERSATIONS = 200;
const MAX_EVICTIONS = 10;
const MAX_TITLE = 60;
const PREFIX = "chat:";
/** Longer than the page offers to undo a deletion, milliseconds. */
const UNDO_MS = 60_000;

export function newConversation(id: string, now: number): Conversation {
  return { id, title: "", createdAt: now, messages: [] };
}

/** The first line of what was first said, cut at a word. */
export function titleFrom(text: string): string {
  const line =
    text
      .split("\n")
      .find((part) => !isBlank(part))
      ?.trim()
      .replace(/\s+/gu, " ") ?? "";
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

/** The order in which messages are shown: questions by their place, each with the newest of its answers, which replaces the others. */
export function arrange(messages: readonly Message[]): Message[] {
  const sorted = [...messages].sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
  const answers = new Map<string, Message>();
  for (const message of sorted) if (message.to !== undefined) answers.set(message.to, message);
  return sorted
    .filter((message) => message.to === undefined)
    .flatMap((message) => [message, answers.get(message.id)].filter((shown) => shown !== undefined));
}

function parseMessage(id: unknown, at: unknown, value: unknown): Message | undefined {
  if (!isRecord(value)) return undefined;
  const { role, to, text, ending, problem, stats } = value;
  if (typeof id !== "string" || !isCount(at) || typeof text !== "string" || (role !== "user" && role !== "assistant")) return undefined;
  const message: Message = { id, at, role, text, ending: ENDINGS.find((known) => known === ending) ?? "done" };
  if (typeof to === "string") message.to = to;
  if (typeof problem === "string") message.problem = problem;
  if (isRecord(stats) && isCount(stats["tokens"]) && isCount(stats["tokensPerSecond"])) {
    message.stats = { tokens: stats["tokens"], tokensPerSecond: stats["tokensPerSecond"] };
  }
  return message;
}

/** The messages inside of a head of the earlier form: each answer followed its question. Broken ones are left out, the others kept. */
function parseInline(values: readonly unknown[], createdAt: number): Message[] {
  const kept: Message[] = [];
  let question: string | undefined;
  for (const [index, value] of values.entries()) {
    const message = isRecord(value) ? parseMessage(value["id"], createdAt + index, value) : undefined;
    if (message === undefined) continue;
    if (message.role === "user") question = message.id;
    else if (question !== undefined) message.to = question;
    kept.push(message);
  }
  return kept;
}

interface Head extends Conversation {
  /** Of what is inside of the head. */
  updatedAt: number;
}

/** A stored value as the head of a conversation; undefined if it is none, or the mark of a deleted one. */
export function parseHead(value: unknown): Head | undefined {
  if (!isRecord(value)) return undefined;
  const { id, title, messages } = value;
  if (typeof id !== "string" || id === "" || !(Array.isArray(messages) || isCount(value["createdAt"]))) return undefined;
  const createdAt = isCount(value["createdAt"]) ? value["createdAt"] : 0;
  const inline = Array.isArray(messages) ? parseInline(messages, createdAt) : [];
  const first = inline.find((message) => message.role === "user");
  return {
    id,
    title: typeof title === "string" && title !== "" ? title : titleFrom(first?.text ?? ""),
    createdAt,
    updatedAt: isCount(value["updatedAt"]) ? value["updatedAt"] : 0,
    messages: inline,
  };
}

function messageKey(conversation: string, { at, id }: Message): string {
  return `${PREFIX}${conversation}/${at}/${id}`;
}

export class ConversationStore {
  /** Making room was of no use, and is not tried again before everything has fitted. */
  private hopeless = false;

  constructor(private readonly storage: KeyValueStore) {}

  get lasting(): boolean {
    return this.storage.lasting;
  }

  private keys(prefix = PREFIX): string[] {
    return this.storage.keys().filter((key) => key.startsWith(prefix));
  }

  /** Browsers store two bytes for each character. */
  get bytes(): number {
    return this.keys().reduce((sum, key) => sum + 2 * (key.length + JSON.stringify(this.storage.get(key) ?? "").length), 0);
  }

  /** Newest first. */
  list(): Summary[] {
    const latest = new Map<string, number>();
    const heads: string[] = [];
    for (const key of this.keys()) {
      const [id = "", at] = key.slice(PREFIX.length).split("/");
      if (at === undefined) heads.push(id);
      else latest.set(id, Math.max(latest.get(id) ?? 0, Number(at) || 0));
    }
    const found: Summary[] = [];
    for (const id of heads) {
      const head = parseHead(this.storage.get(PREFIX + id));
      const said = latest.get(id);
      if (head === undefined || (said === undefined && head.messages.length === 0)) continue;
      found.push({ id, title: head.title, updatedAt: Math.max(head.updatedAt, said ?? 0) });
    }
    return found.sort((a, b) => b.updatedAt - a.updatedAt || (a.id < b.id ? -1 : 1));
  }

  /** Undefined where nothing of it is stored, or it has been deleted. */
  get(id: string): Conversation | undefined {
    const head = parseHead(this.storage.get(PREFIX + id));
    if (head === undefined) return undefined;
    const said = this.keys(`${PREFIX}${id}/`).map((key) => {
      const [, at, name] = key.slice(PREFIX.length).split("/");
      return parseMessage(name, Number(at), this.storage.get(key));
    });
    const messages = arrange([...head.messages, ...said.filter((message) => message !== undefined)]);
    return messages.length === 0 ? undefined : { id, title: head.title, createdAt: head.createdAt, messages };
  }

  /** Writes the head of a new conversation, before its first message. */
  create({ id, title, createdAt }: Conversation): void {
    for (const surplus of this.list().slice(MAX_CONVERSATIONS - 1)) this.erase(surplus.id);
    this.write(id, PREFIX + id, { id, title, createdAt });
  }

  /** Writes a message. Returns false where something did not fit: then that lasts until the page is closed. */
  put(conversation: string, message: Message): boolean {
    const { id: _, at: __, ...value } = message;
    return this.write(conversation, messageKey(conversation, message), value);
  }

  /** When storage is full a few of the oldest make room. */
  private write(conversation: string, key: string, value: unknown): boolean {
    this.storage.set(key, value);
    // Another site on this origin may be what fills the storage: then it is no use to delete everything.
    for (let tries = 0; !this.storage.complete && !this.hopeless && tries < MAX_EVICTIONS; tries++) {
      const oldest = this.list().findLast(({ id }) => id !== conversation);
      if (oldest === undefined) break;
      this.erase(oldest.id);
    }
    this.hopeless = !this.storage.complete;
    return this.storage.complete;
  }

  /** Takes an answer back that another one replaces. */
  withdraw(conversation: string, message: Message): void {
    this.storage.remove(messageKey(conversation, message));
  }

  /** Hides a conversation until `restore` or `discard`. */
  remove(id: string, now: number): Removed | undefined {
    const head: unknown = this.storage.get(PREFIX + id);
    const parsed = parseHead(head);
    if (parsed === undefined) return undefined;
    this.storage.set(PREFIX + id, { id, deletedAt: now });
    return { id, title: parsed.title, head };
  }

  restore({ id, head }: Removed): boolean {
    return this.write(id, PREFIX + id, head);
  }

  /** Erases what was removed, unless another tab has brought it back. */
  discard(id: string): void {
    if (parseHead(this.storage.get(PREFIX + id)) === undefined) this.erase(id);
  }

  /** Erases what pages that were closed have left: removed conversations, and messages said to one that was erased. */
  sweep(now: number): void {
    const ids = new Set(this.keys().map((key) => key.slice(PREFIX.length).split("/", 1)[0] ?? ""));
    const keys = new Set(this.keys());
    for (const id of ids) {
      const head: unknown = this.storage.get(PREFIX + id);
      const deletedAt = isRecord(head) && isCount(head["deletedAt"]) ? head["deletedAt"] : Infinity;
      if (!keys.has(PREFIX + id) || now - deletedAt > UNDO_MS) this.erase(id);
    }
  }

  /** The head first: what is left if the page ends here is not seen. */
  private erase(id: string): void {
    this.storage.remove(PREFIX + id);
    for (const key of this.keys(`${PREFIX}${id}/`)) this.storage.remove(key);
  }

  clear(): void {
    for (const key of this.keys().sort()) this.storage.remove(key); // a head comes before its messages
  }
}
