/** All that the page shows, and the only function that changes it. */

import type { ChatInfo, LoadProgress } from "../model-api";
import type { AnswerStats, Conversation, Ending, Message, Summary } from "../store/conversations";
import { titleFrom } from "../store/conversations";
import type { Settings } from "../store/settings";
import type { Failure } from "../text/failures";
import type { ModelFacts } from "./model";

export type Engine =
  | { phase: "loading"; progress: LoadProgress | null }
  | { phase: "ready"; info: ChatInfo }
  | { phase: "failed"; failure: Failure };

/** A line above the composer. At most one of each id at a time. */
export interface Note {
  id: "fallback" | "device";
  tone: "info" | "busy" | "good";
  title?: string;
  text: string;
}

export interface Answering {
  messageId: string;
  /** Reading the prompt, before the first token; then writing. */
  phase: "reading" | "writing";
  /** Measured while it is written; 0 until there is something to measure. */
  tokensPerSecond: number;
}

export interface State {
  engine: Engine;
  facts: ModelFacts;
  conversation: Conversation;
  /** All kept conversations, newest first. */
  history: Summary[];
  answering: Answering | null;
  /** The last message waits for the model to be ready. */
  queued: boolean;
  /** How many of the oldest messages the model could no longer hold when it answered last. */
  forgotten: number;
  settings: Settings;
  notes: Note[];
  /** Just deleted, and can be brought back. */
  deleted: Conversation | null;
  /** Read out by screen readers. */
  announcement: string;
}

export type Action =
  | { type: "engine-loading" }
  | { type: "engine-progress"; progress: LoadProgress }
  | { type: "engine-ready"; info: ChatInfo }
  | { type: "engine-info"; info: ChatInfo }
  | { type: "engine-failed"; failure: Failure }
  | { type: "facts"; facts: ModelFacts }
  | { type: "show"; conversation: Conversation }
  | { type: "history"; history: Summary[] }
  | { type: "said"; message: Message; now: number }
  | { type: "queued"; queued: boolean }
  | { type: "answer-started"; message: Message; now: number }
  | { type: "answer-text"; id: string; text: string; tokensPerSecond: number }
  | { type: "forgotten"; count: number }
  | { type: "answer-ended"; id: string; ending: Ending; now: number; problem?: string; stats?: AnswerStats }
  | { type: "answer-withdrawn" }
  | { type: "settings"; settings: Settings }
  | { type: "note"; note: Note }
  | { type: "note-gone"; id: Note["id"] }
  | { type: "deleted"; conversation: Conversation | null }
  | { type: "announce"; text: string };

/** One word for the whole page, in `data-state`. */
export type PageState = "loading" | "ready" | "generating" | "error";

export function pageState(state: State): PageState {
  if (state.engine.phase === "failed") return "error";
  if (state.answering !== null) return "generating";
  return state.engine.phase === "loading" ? "loading" : "ready";
}

function changeMessage(state: State, id: string, change: (message: Message) => Message): Conversation {
  const messages = state.conversation.messages.map((message) => (message.id === id ? change(message) : message));
  return { ...state.conversation, messages };
}

function ended(message: Message, action: Extract<Action, { type: "answer-ended" }>): Message {
  const { problem: _, stats: __, ...rest } = message;
  const result: Message = { ...rest, ending: action.ending };
  if (action.problem !== undefined) result.problem = action.problem;
  if (action.stats !== undefined) result.stats = action.stats;
  return result;
}

export function reduce(state: State, action: Action): State {
  const { conversation } = state;
  switch (action.type) {
    case "engine-loading":
      return { ...state, engine: { phase: "loading", progress: null } };
    case "engine-progress":
      return state.engine.phase === "loading"
        ? { ...state, engine: { phase: "loading", progress: action.progress } }
        : state;
    case "engine-ready":
      return { ...state, engine: { phase: "ready", info: action.info } };
    case "engine-info":
      return state.engine.phase === "ready" ? { ...state, engine: { phase: "ready", info: action.info } } : state;
    case "engine-failed":
      return { ...state, engine: { phase: "failed", failure: action.failure } };
    case "facts":
      return { ...state, facts: action.facts };
    case "show":
      return { ...state, conversation: action.conversation, answering: null, queued: false, forgotten: 0 };
    case "history":
      return { ...state, history: action.history };
    case "said":
      return {
        ...state,
        conversation: {
          ...conversation,
          title: conversation.title === "" ? titleFrom(action.message.text) : conversation.title,
          updatedAt: action.now,
          messages: [...conversation.messages, action.message],
        },
      };
    case "queued":
      return { ...state, queued: action.queued };
    case "answer-started":
      return {
        ...state,
        queued: false,
        answering: { messageId: action.message.id, phase: "reading", tokensPerSecond: 0 },
        conversation: {
          ...conversation,
          updatedAt: action.now,
          messages: [...conversation.messages, action.message],
        },
      };
    case "answer-text":
      if (state.answering?.messageId !== action.id) return state;
      return {
        ...state,
        answering: {
          messageId: action.id,
          phase: action.text === "" ? "reading" : "writing",
          tokensPerSecond: action.tokensPerSecond,
        },
        conversation: changeMessage(state, action.id, (message) => ({ ...message, text: action.text })),
      };
    case "forgotten":
      return { ...state, forgotten: action.count };
    case "answer-ended":
      return {
        ...state,
        answering: state.answering?.messageId === action.id ? null : state.answering,
        conversation: {
          ...changeMessage(state, action.id, (message) => ended(message, action)),
          updatedAt: action.now,
        },
      };
    case "answer-withdrawn": {
      const last = conversation.messages.findLastIndex((message) => message.role === "user");
      return { ...state, conversation: { ...conversation, messages: conversation.messages.slice(0, last + 1) } };
    }
    case "settings":
      return { ...state, settings: action.settings };
    case "note":
      return { ...state, notes: [...state.notes.filter((note) => note.id !== action.note.id), action.note] };
    case "note-gone":
      return { ...state, notes: state.notes.filter((note) => note.id !== action.id) };
    case "deleted":
      return { ...state, deleted: action.conversation };
    case "announce":
      return { ...state, announcement: action.text };
  }
}
