/**
 * What a request may say. The names and forms are OpenAI's; whatever this library cannot do is refused by name, because an answer
 * that quietly ignores a part of the question is a wrong answer.
 */

import { badArgument } from "../arguments.js";
import type { Message } from "../tokenizer.js";

export interface TextPart {
  type: "text";
  text: string;
}

export interface RequestMessage {
  /** "developer" is "system" by another name. */
  role: "system" | "developer" | "user" | "assistant";
  content: string | readonly TextPart[];
}

export interface ChatRequest {
  messages: readonly RequestMessage[];
  /** The loaded model's name, or nothing. */
  model?: string | null;
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean | null } | null;
  /** Most tokens of the answer; by default the model's own, at most what the context leaves. */
  max_completion_tokens?: number | null;
  max_tokens?: number | null;
  /** 0 … 2; 0 always takes the likeliest token. By default the model's own, as the next two. */
  temperature?: number | null;
  top_p?: number | null;
  /** Not OpenAI's: number of likeliest tokens to choose from, 0 for all. */
  top_k?: number | null;
  /** Not OpenAI's: above 1, tokens that occurred become less likely. */
  repetition_penalty?: number | null;
  /** The same seed gives the same answer. Random by default. */
  seed?: number | null;
  /** Texts before which the answer ends; they are not part of it. */
  stop?: string | readonly string[] | null;
  n?: 1 | null;
  response_format?: { type: "text" } | null;
  frequency_penalty?: 0 | null;
  presence_penalty?: 0 | null;
  logprobs?: false | null;
  /** For servers that count their users; nothing happens with it here. */
  user?: string | null;
}

export const refuse = (parameter: string, why: string): never => {
  throw badArgument(`${parameter}: ${why}`);
};

/** A value in a message: as JSON where that says what it is. */
function shown(value: unknown): string {
  try {
    return typeof value === "object" || typeof value === "string" ? JSON.stringify(value) : String(value);
  } catch {
    return "what is no JSON";
  }
}

/**
 * Refuses what is no object, and fields that are set and not among `known`. Fields that are null count as absent, as with OpenAI.
 * @param place what it is, for the message: a call's name, or a field's with a dot behind it
 */
export function checkFields(request: unknown, known: ReadonlySet<string>, place = ""): void {
  if (typeof request !== "object" || request === null || Array.isArray(request)) {
    refuse(place || "the request", `must be an object, not ${shown(request)}.`);
  }
  for (const [name, value] of Object.entries(request as object)) {
    if (value !== undefined && value !== null && !known.has(name)) {
      refuse(place ? `${place}.${name}` : name, `this model cannot do that; it knows ${[...known].sort().join(", ")}.`);
    }
  }
}

/** true or false; false where it is absent. */
function flag(object: object, name: string, place = name): boolean {
  const value = (object as Record<string, unknown>)[name] ?? false;
  return typeof value === "boolean" ? value : refuse(place, `must be true or false, not ${shown(value)}.`);
}

export function number(request: object, name: string, min: number, max: number, integer = false): number | undefined {
  const value = (request as Record<string, unknown>)[name] ?? undefined;
  if (value === undefined) return undefined;
  if (typeof value !== "number" || !(value >= min && value <= max) || (integer && !Number.isInteger(value))) {
    refuse(name, `must be ${integer ? "an integer" : "a number"} in ${min} … ${max}, not ${shown(value)}.`);
  }
  return value as number;
}

/** Fields that may only say what happens anyway. */
export function checkOnly(request: object, only: Readonly<Record<string, unknown>>): void {
  for (const [name, meant] of Object.entries(only)) {
    const value = (request as Record<string, unknown>)[name] ?? meant;
    if (shown(value) !== shown(meant)) refuse(name, `only ${shown(meant)} is possible here, not ${shown(value)}.`);
  }
}

const CHAT_FIELDS = new Set<string>([
  "messages",
  "model",
  "stream",
  "stream_options",
  "max_completion_tokens",
  "max_tokens",
  "temperature",
  "top_p",
  "top_k",
  "repetition_penalty",
  "seed",
  "stop",
  "n",
  "response_format",
  "frequency_penalty",
  "presence_penalty",
  "logprobs",
  "user",
] satisfies (keyof ChatRequest)[]);

export interface ChatWish {
  messages: Message[];
  stop: string[];
  stream: boolean;
  includeUsage: boolean;
  maxTokens: number | undefined;
  sampling: { temperature?: number; topP?: number; topK?: number; repetitionPenalty?: number; seed?: number };
}

/** The request in this library's terms. @throws TinywebError "bad-argument" naming what cannot be done */
export function readChatRequest(request: ChatRequest, model: string): ChatWish {
  checkFields(request, CHAT_FIELDS);
  checkModel(request.model, model);
  checkOnly(request, { n: 1, response_format: { type: "text" }, frequency_penalty: 0, presence_penalty: 0, logprobs: false });
  const stop = typeof request.stop === "string" ? [request.stop] : (request.stop ?? []);
  if (!Array.isArray(stop) || !stop.every((text) => typeof text === "string" && text !== "")) {
    refuse("stop", "must be a text or a list of texts, none empty.");
  }
  const stream = flag(request, "stream");
  const about = request.stream_options ?? {};
  checkFields(about, new Set(["include_usage"]), "stream_options");
  if (request.stream_options && !stream) refuse("stream_options", "is for answers in chunks: set stream to true.");
  const [most, older] = (["max_completion_tokens", "max_tokens"] as const).map((name) => number(request, name, 1, 2 ** 31 - 1, true));
  if (most !== undefined && older !== undefined) refuse("max_tokens", "is max_completion_tokens by another name: give one of them.");
  const settings = {
    temperature: number(request, "temperature", 0, 2),
    topP: number(request, "top_p", 0, 1),
    topK: number(request, "top_k", 0, 2 ** 31 - 1, true),
    repetitionPenalty: number(request, "repetition_penalty", 0.01, 100),
    seed: number(request, "seed", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, true),
  };
  return {
    messages: readMessages(request.messages),
    stop: [...stop],
    stream,
    includeUsage: flag(about, "include_usage", "stream_options.include_usage"),
    maxTokens: most ?? older,
    sampling: Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)),
  };
}

export function checkModel(asked: string | null | undefined, model: string): void {
  if (asked !== undefined && asked !== null && asked !== model) refuse("model", `"${asked}" is not loaded; this is "${model}".`);
}

function readMessages(messages: readonly RequestMessage[]): Message[] {
  if (!Array.isArray(messages) || messages.length === 0) refuse("messages", "must be a list of { role, content } that is not empty.");
  return messages.map((message, i) => {
    const place = `messages[${i}]`;
    const { role, content } = Object(message) as RequestMessage;
    if (!["system", "developer", "user", "assistant"].includes(role)) {
      refuse(`${place}.role`, `must be system, developer, user or assistant, not ${shown(role)}.`);
    }
    checkFields(message, new Set(["role", "content"]), place);
    const parts: readonly TextPart[] = typeof content === "string" ? [{ type: "text", text: content }] : content;
    if (!Array.isArray(parts) || !parts.every((part) => part?.type === "text" && typeof part.text === "string")) {
      refuse(`${place}.content`, "must be a text, or a list of parts of type text: this model reads nothing else.");
    }
    return { role: role === "developer" ? "system" : role, content: parts.map(({ text }) => text).join("") };
  });
}
