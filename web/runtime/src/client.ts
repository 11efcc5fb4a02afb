/** The page's side: thin proxies for the model that lives in the worker. */

import { answerOf, type Answer, type ChatResult } from "./answer.js";
import { optionsOf, unlike } from "./arguments.js";
import type { ChatInfo, ChatPart } from "./chat.js";
import { Connection, loadOptions, startWorker, type LoadOptions, type Script, type WorkerLike } from "./connection.js";
import { throwIfAborted } from "./errors.js";
import { framesOf, type FunctionInfo, type Inputs, type Outputs, type RunAnswer, type RunResult } from "./function.js";
import type { HostEvents } from "./host.js";
import { checkMessages, generateOptions, type GenerateOptions } from "./options.js";
import type { Call, WirePart } from "./protocol.js";
import type { Message } from "./tokenizer.js";

export type ChatEvents = HostEvents;

const CHAT: Script = {
  file: "./tinyweb-chat-worker.js",
  start: () => new Worker(new URL("./tinyweb-chat-worker.js", import.meta.url), { type: "module", name: "tinyweb" }),
};

export class Chat extends Connection<ChatInfo> {
  /** @internal Loads through a given worker; `loadChat` makes the worker. */
  static open(worker: WorkerLike, baseUrl: string | URL, options: LoadOptions): Promise<Chat> {
    return new Chat(worker, options.onProgress, "tinyweb-chat-worker.js").load("chat", baseUrl, options);
  }

  /**
   * The assistant's answer, piece by piece, and its `result`: figures of this call. Calls run one after another. Leaving the loop,
   * or the signal, stops it.
   * @throws TinywebError "aborted" | "context-full" | "device-lost" | …
   */
  generate(messages: readonly Message[], options?: GenerateOptions | null): Answer<ChatPart> {
    return this.answer<ChatPart>(() => {
      const { signal, ...rest } = generateOptions(options, "generate()");
      checkMessages(messages);
      return [{ method: "generate", messages, options: rest }, signal];
    });
  }

  /** Token ids that follow `ids`, the end token included; for checks. */
  generateIds(ids: readonly number[], options?: GenerateOptions | null): Answer<number> {
    return this.answer<number>(() => {
      const { signal, ...rest } = generateOptions(options, "generateIds()");
      return [{ method: "generateIds", ids, options: rest }, signal];
    });
  }

  /** @param begin makes the call when the loop over its answer begins */
  private answer<Part extends ChatPart | number>(begin: () => [Call, AbortSignal | undefined]): Answer<Part> {
    const run = async function* (this: Chat, figures: ChatResult): AsyncGenerator<Part, void> {
      for await (const { part, figures: now } of this.stream<WirePart>(...begin())) {
        Object.assign(figures, now);
        if (part !== undefined) yield part as Part;
      }
    };
    return answerOf((figures) => run.call(this, figures));
  }

  /** Logits that follow the last of `ids`, one per word of the vocabulary; for checks. */
  async logits(ids: readonly number[], signal?: AbortSignal): Promise<Float32Array> {
    return this.call({ method: "logits", ids }, optionsOf({ signal }, "logits()").signal);
  }

  /** Tokens of a conversation as the model would read it. */
  async countTokens(messages: readonly Message[]): Promise<number> {
    checkMessages(messages);
    return this.call({ method: "countTokens", messages });
  }
}

const RUN_OPTIONS = ["function", "outputs", "signal"] satisfies (keyof RunOptions)[];

export interface RunOptions {
  function?: string;
  outputs?: readonly string[];
  signal?: AbortSignal | undefined;
}

/** The outputs, and figures of the call. */
export interface Run<Named = Outputs> extends Promise<Named> {
  /** Fulfilled when the call has ended, in whatever way; it never rejects. */
  readonly result: Promise<RunResult>;
}

/** Functions of arrays. */
export class FunctionModel extends Connection<FunctionInfo> {
  /** @internal Loads through a given worker; `loadFunction` makes the worker. */
  static open(worker: WorkerLike, baseUrl: string | URL, options: LoadOptions): Promise<FunctionModel> {
    return new FunctionModel(worker, options.onProgress).load("function", baseUrl, options);
  }

  /**
   * One call: typed arrays by the names of the inputs; those of the outputs come back, each with its `shape`, and a `result`: figures of
   * this call. Calls run one after another.
   * @param inputs an input that was given before may be absent: it keeps its value. `{ data, shape }` says what sizes are that vary. For u8 (height, width, 4) an ImageBitmap,
   * VideoFrame or OffscreenCanvas of that size will do: it goes to the device without a detour through arrays, and is used up
   * @param options.function its name; may be absent where the bundle has one
   * @param options.outputs names of those wanted; all by default
   * @throws TinywebError "bad-argument" (a name, type or length that is not the function's) | "aborted" | "device-lost" | …
   */
  run(inputs: Inputs, options?: RunOptions | null): Run {
    const answer = this.runAnswer(inputs, options);
    const outputs = answer.then(({ outputs, shapes, texts }) => {
      for (const [name, data] of Object.entries(outputs))
        Object.defineProperties(data, { data: { value: texts[name] ?? data }, shape: { value: shapes[name] } });
      return outputs as Outputs;
    });
    return Object.assign(outputs, {
      result: answer.then(
        ({ runMs }) => ({ runMs }),
        () => ({ runMs: 0 }),
      ),
    });
  }

  private async runAnswer(inputs: Inputs, options?: RunOptions | null): Promise<RunAnswer> {
    const { signal, outputs, function: name } = optionsOf(options, "run()", RUN_OPTIONS);
    if (typeof inputs !== "object" || inputs === null) throw unlike("The inputs of run()", "arrays by name, such as { x }", inputs);
    if (outputs && !Array.isArray(outputs)) throw unlike("outputs", 'a list of names, such as ["y"]', outputs);
    throwIfAborted(signal);
    const begun = performance.now();
    const placed = this.place(inputs, name);
    const sent = performance.now();
    const answer: RunAnswer = await this.call({ method: "run", inputs: placed, function: name, outputs }, signal, framesOf(inputs));
    answer.runMs += sent - begun;
    return answer;
  }
}

/**
 * Loads a bundle written by `tinyweb export chat`.
 * @param baseUrl the bundle's folder (it holds manifest.json)
 * @throws TinywebError "download-failed" | "hash-mismatch" | "out-of-memory" | "no-backend" | "bad-manifest" | "aborted" | …
 */
export async function loadChat(baseUrl: string | URL, given?: LoadOptions | null): Promise<Chat> {
  const options = loadOptions(given, "loadChat()");
  const { base, worker } = await startWorker(baseUrl, options, CHAT);
  return Chat.open(worker, base, options);
}

/** Loads a bundle that holds functions (docs/bundle.md); as `loadChat`. */
export async function loadFunction(baseUrl: string | URL, given?: LoadOptions | null): Promise<FunctionModel> {
  const options = loadOptions(given, "loadFunction()");
  const { base, worker } = await startWorker(baseUrl, options);
  return FunctionModel.open(worker, base, options);
}

/** @internal For tests and measurements. */
export const debug = {
  /** Destroys the GPU device; false where there is none. */
  loseDevice: (model: Chat | FunctionModel): Promise<boolean> => model["call"]({ method: "loseDevice" }),
  /** The next prompt is read as a whole. */
  clearCache: (chat: Chat): Promise<void> => chat["call"]({ method: "clearCache" }),
};
