/** All that the page shows, and the only function that changes the conversation's part of it. */

import type { Engine, Note } from "tinyweb-shell";
import type { AnswerFigures, ChatInfo } from "../model-api";
import type { AnswerStats, Conversation, Ending, Message, Summary } from "../store/conversations";
import { titleFrom } from "../store/conversations";
import type { Settings } from "../store/settings";
import type { ModelFacts } from "./facts";

export interface Answering {
  messageId: string;
  /** Reading the prompt, before the first token; then writing. */
  phase: "reading" | "writing";
  /** Measured while it is written; 0 until there is something to measure. */
  tokensPerSecond: number;
}

/** What is talked about; the rest of what is shown is the shell's. */
export interface Talk {
  conversation: Conversation;
  /** All kept conversations, newest first. */
  history: Summary[];
  answering: Answering | null;
  /** The last message waits for the model to be ready. */
  queued: boolean;
  /** How many of the oldest messages the model could no longer hold when it answered last. */
  forgotten: number;
  /** Figures of the last answer since the page was opened. */
  figures: Readonly<AnswerFigures> | null;
  /** Just deleted, and can be brought back. */
  deleted: Conversation | null;
}

export interface State extends Talk {
  engine: Engine<ChatInfo>;
  facts: ModelFacts;
  settings: Settings;
  notes: readonly Note[];
}

export type Action =
  | { type: "show"; conversation: Conversation }
  | { type: "history"; history: Summary[] }
  | { type: "said"; message: Message; now: number }
  | { type: "queued"; queued: boolean }
  | { type: "answer-started"; message: Message; now: number }
  | { type: "answer-text"; id: string; text: string; tokensPerSecond: number }
  | { type: "figures"; figures: Readonly<AnswerFigures> }
  | { type: "answer-ended"; id: string; ending: Ending; now: number; problem?: string; stats?: AnswerStats }
  | { type: "answer-withdrawn" }
  | { type: "deleted"; conversation: Conversation | null };

function changeMessage(state: Talk, id: string, change: (message: Message) => Message): Conversation {
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

export function reduce(state: Talk, action: Action): Talk {
  const { conversation } = state;
  switch (action.type) {
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
    case "figures":
      return { ...state, figures: action.figures, forgotten: action.figures.droppedMessages };
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
    case "deleted":
      return { ...state, deleted: action.conversation };
  }
}
