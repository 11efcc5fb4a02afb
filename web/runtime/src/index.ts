/** tinyweb: runs models exported by `tinyweb export` in the browser. */

export type { Answer, ChatResult, StopReason } from "./answer.js";
export type { BackendChoice, BackendOptions, Fallback } from "./backend.js";
export type { ChatInfo, ChatPart } from "./chat.js";
export { loadChat, loadFunction, type Chat, type ChatEvents, type FunctionModel, type Run, type RunOptions } from "./client.js";
export type { LoadOptions } from "./connection.js";
export type { Backend } from "./engine.js";
export type { InterruptedLoad, SmallerSetting } from "./marker.js";
export { TinywebError, type ErrorCode, type Excess } from "./errors.js";
export type { Frame } from "./engine.js";
export type { ArrayInfo, Arrays, FunctionInfo, Inputs, Outputs, RunResult, TypedArray } from "./function.js";
export type { HostEvents as ModelEvents, HostInfo as ModelInfo, Phase, Progress, StartTimes } from "./host.js";
export type { GenerateOptions } from "./options.js";
export type { Message } from "./tokenizer.js";
