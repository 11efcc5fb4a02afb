/** All that the page shows, and the only function that changes the conversation's part of it. */

import type { Engine, Note } from "tinyweb-shell";
import type { AnswerFigures, ChatInfo } from "../model-api";
import type { AnswerStats, Conversation, Ending, Message, Removed, Summary } from "../store/conversations";
import { arrange, titleFrom } from "../store/conversations";
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
  /** A message waits for the model to be ready. */
  queued: boolean;
  /** How many of the oldest messages the model could no longer hold when it answered last. */
  forgotten: number;
  /** Figures of the last answer since the page was opened. */
  figures: Readonly<AnswerFigures> | null;
  /** Just deleted, and can be brought back. */
  deleted: Removed | null;
}

export interface State extends Talk {
  engine: Engine<ChatInfo>;
  facts: ModelFacts;
  settings: Settings;
  notes: readonly Note[];
}

export type Action =
  | { type: "show"; conversation: Conversation }
  | { type: "merged"; conversation: Conversation }
  | { type: "history"; history: Summary[] }
  | { type: "said"; message: Message }
  | { type: "queued"; queued: boolean }
  | { type: "answer-started"; message: Message }
  | { type: "answer-text"; id: string; text: string; tokensPerSecond: number }
  | { type: "figures"; figures: Readonly<AnswerFigures> }
  | { type: "answer-ended"; id: string; ending: Ending; problem?: string; stats?: AnswerStats }
  | { type: "deleted"; conversation: Removed | null };

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
    case "merged": {
      // Another tab may have replaced the answer that is being written here.
      const there = action.conversation.messages.some(({ id }) => id === state.answering?.messageId);
      return { ...state, conversation: action.conversation, answering: there ? state.answering : null };
    }
    case "history":
      return { ...state, history: action.history };
    case "said":
      return {
        ...state,
        conversation: {
          ...conversation,
          title: conversation.title === "" ? titleFrom(action.message.text) : conversation.title,
          messages: arrange([...conversation.messages, action.message]),
        },
      };
    case "queued":
      return { ...state, queued: action.queued };
    case "answer-started":
      return {
        ...state,
        queued: false,
        answering: { messageId: action.message.id, phase: "reading", tokensPerSecond: 0 },
        conversation: { ...conversation, messages: arrange([...conversation.messages, action.message]) },
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
        conversation: changeMessage(state, action.id, (message) => ended(message, action)),
      };
    case "deleted":
      return { ...state, deleted: action.conversation };
  }
}
