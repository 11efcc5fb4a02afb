/** tinyweb: runs models exported by `tinyweb export` in the browser. */

export type { BackendChoice, BackendOptions, Fallback } from "./backend.js";
export type { ChatInfo, ChatPart, StopReason } from "./chat.js";
export { loadChat, type Chat, type ChatEvents, type LoadOptions } from "./client.js";
export type { Backend } from "./engine.js";
export { TinywebError, type ErrorCode } from "./errors.js";
export type { Phase, Progress } from "./host.js";
export type { GenerateOptions } from "./options.js";
export type { Message } from "./tokenizer.js";
