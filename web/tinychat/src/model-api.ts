/** What this page uses of the model that its generated loader gives. */

import type { Chat as LibraryChat } from "tinyweb";

export type { ChatInfo, ChatPart as AnswerPart, GenerateOptions, Message as PromptMessage } from "tinyweb";

export type Chat = Pick<LibraryChat, "info" | "on" | "dispose" | "generate">;
