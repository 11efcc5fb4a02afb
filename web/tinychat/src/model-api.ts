/** What this page uses of the model that its generated loader gives. */

import type { ChatPart, ChatResult, GenerateOptions, Chat as LibraryChat, Message } from "tinyweb";

export type { ChatInfo, ChatPart as AnswerPart, Excess, GenerateOptions, Message as PromptMessage } from "tinyweb";

/** Figures of one answer. */
export type AnswerFigures = Pick<ChatResult, "tokensPerSecond" | "firstTokenMs" | "droppedMessages" | "stopReason">;

/** The parts as they come; the figures are those of the parts taken, and final when the loop has ended. */
export interface Answer extends AsyncIterable<ChatPart> {
  readonly progress: Readonly<AnswerFigures>;
}

export interface Chat extends Pick<LibraryChat, "info" | "on" | "dispose"> {
  generate(messages: readonly Message[], options?: GenerateOptions | null): Answer;
}
