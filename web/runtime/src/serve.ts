/** The worker's side: answers a page's requests with one model. */

import type { Answer } from "./answer.js";
import { ChatSession, type ChatPart } from "./chat.js";
import { toWire } from "./errors.js";
import { FunctionSession, type RunAnswer } from "./function.js";
import { ModelHost, type HostSettings } from "./host.js";
import { holdLock } from "./life.js";
import { Pace } from "./pace.js";
import type { Call, Reply, Request } from "./protocol.js";

/** The part of a message port that is needed here. */
export interface Port {
  postMessage(message: Reply, transfer?: Transferable[]): void;
}

/** @returns the function to call with every message from the page */
export function serve(port: Port, settings: Pick<HostSettings, "spawn"> & Partial<HostSettings>): (request: Request) => void {
  const running = new Map<number, AbortController>();
  const pace = new Pace();
  let host: ModelHost | undefined;
  let session: ChatSession | FunctionSession | undefined;
  let disposed = false;

  const postInfo = (): void => {
    if (session && !disposed) port.postMessage({ type: "info", info: session.info });
  };
  async function load(call: Extract<Call, { method: "load" }>, signal: AbortSignal): Promise<void> {
    host = await ModelHost.open(new URL(call.baseUrl), {
      ...settings,
      task: call.task,
      begun: call.begun - performance.timeOrigin,
      options: call.options,
      onProgress: (progress) => port.postMessage({ type: "progress", progress }),
      onEvent: (name, data) => {
        if (name === "backend-changed") postInfo();
        port.postMessage({ type: "event", name, data });
      },
    }, signal);
    if (disposed) host.dispose();
    session = call.task === "chat" ? new ChatSession(host, pace) : new FunctionSession(host);
    postInfo();
  }

  async function stream(id: number, answer: Answer<ChatPart | number>): Promise<void> {
    const post = (part?: ChatPart | number): void => {
      const figures = { ...answer.progress };
      port.postMessage({ type: "part", id, part: part === undefined ? { figures } : { part, figures } });
    };
    try {
      for await (const part of answer) post(part);
    } finally {
      post();
    }
  }

  async function answer(id: number, call: Call, signal: AbortSignal): Promise<unknown> {
    // A page has a model once it is loaded, and asks of it what its class offers.
    const chat = session as ChatSession;
    switch (call.method) {
      case "load":
        return load(call, signal);
      case "generate":
        return stream(id, chat.generate(call.messages, { ...call.options, signal }));
      case "generateIds":
        return stream(id, chat.generateIds(call.ids, { ...call.options, signal }));
      case "run":
        return (session as FunctionSession).run(call.inputs, call.function, call.outputs, signal);
      case "logits":
        return chat.logits(call.ids, signal);
      case "countTokens":
        return chat.countTokens(call.messages);
      case "clearCache":
        return chat.clearCache();
      case "loseDevice":
        return host?.engine.loseDevice() ?? false;
    }
  }

  async function handle(id: number, call: Call): Promise<void> {
    const controller = new AbortController();
    running.set(id, controller);
    try {
      const value = await answer(id, call, controller.signal);
      // an array, the outputs of a function, or nothing with a memory of its own
      const arrays = ArrayBuffer.isView(value) ? [value] : Object.values((Object(value) as Partial<RunAnswer>).outputs ?? {});
      const transfer = arrays.map(({ buffer }) => buffer as ArrayBuffer);
      port.postMessage({ type: "end", id, value }, transfer);
    } catch (error) {
      port.postMessage({ type: "end", id, error: toWire(error) });
    } finally {
      running.delete(id);
    }
  }

  port.postMessage({ type: "ready" });
  holdLock((lock) => port.postMessage({ type: "held", lock }));
  return (request) => {
    if (request.type === "call") void handle(request.id, request.call);
    else if (request.type === "cancel") running.get(request.id)?.abort();
    else if (request.type === "hidden") pace.set(request.hidden);
    else if (request.type === "ping") port.postMessage({ type: "pong" });
    else {
      disposed = true;
      for (const controller of running.values()) controller.abort();
      host?.dispose();
      // Threads end before the worker that made them: a worker that is ended first leaves it to the browser to find them.
      setTimeout(() => port.postMessage({ type: "disposed" }), 30);
    }
  };
}
