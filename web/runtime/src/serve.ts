/** The worker's side: answers a page's requests with one model. */

import type { ChatInfo } from "./chat.js";
import { toWire } from "./errors.js";
import type { FunctionInfo, Places, RunAnswer } from "./function.js";
import type { HostSettings, ModelHost } from "./host.js";
import { holdLock } from "./life.js";
import { Pace } from "./pace.js";
import type { Call, Reply, Request, WirePart } from "./protocol.js";

/** A model of some task. */
export interface Session {
  readonly host: ModelHost;
  readonly info: ChatInfo | FunctionInfo;
  readonly places?: Places;
  /** What the page asks for; `post` takes the parts of a stream. */
  answer(call: Call, signal: AbortSignal, post: (part: WirePart) => void): unknown;
}

/** Opens a bundle of the task that a worker is for. */
export type Open = (base: URL, settings: HostSettings, pace: Pace, signal: AbortSignal) => Promise<Session>;

/** The part of a message port that is needed here. */
export interface Port {
  postMessage(message: Reply, transfer?: Transferable[]): void;
}

/** @returns the function to call with every message from the page */
export function serve(port: Port, open: Open, settings: Pick<HostSettings, "spawn"> & Partial<HostSettings>): (request: Request) => void {
  const running = new Map<number, AbortController>();
  const pace = new Pace();
  let session: Session | undefined;
  let disposed = false;

  const postInfo = (): void => {
    if (session && !disposed) port.postMessage({ type: "info", info: session.info, places: session.places });
  };
  async function load(call: Extract<Call, { method: "load" }>, signal: AbortSignal): Promise<void> {
    session = await open(
      new URL(call.baseUrl),
      {
        ...settings,
        task: call.task,
        begun: call.begun - performance.timeOrigin,
        options: call.options,
        onProgress: (progress) => port.postMessage({ type: "progress", progress }),
        onEvent: (name, data) => {
          if (name === "backend-changed") postInfo();
          port.postMessage({ type: "event", name, data });
        },
      },
      pace,
      signal,
    );
    if (disposed) session.host.dispose();
    postInfo();
  }

  function answer(id: number, call: Call, signal: AbortSignal): unknown {
    if (call.method === "load") return load(call, signal);
    if (call.method === "loseDevice") return session?.host.engine.loseDevice?.() ?? false;
    // a page has a model once it is loaded
    return (session as Session).answer(call, signal, (part) => port.postMessage({ type: "part", id, part }));
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
      session?.host.dispose();
      // Threads end before the worker that made them: a worker that is ended first leaves it to the browser to find them.
      setTimeout(() => port.postMessage({ type: "disposed" }), 30);
    }
  };
}
