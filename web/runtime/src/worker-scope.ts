/** What every worker of the library does: the first message decides whether it holds a model or is one of its WASM threads. */

import { describe } from "./errors.js";
import type { Reply, Request } from "./protocol.js";
import { serve, type Open } from "./serve.js";
import type { ThreadWorker } from "./wasm-engine.js";
import { serveThread, type ThreadReply, type ThreadStart } from "./wasm-thread.js";

declare const self: DedicatedWorkerGlobalScope;

/**
 * A worker for a WASM thread, with a line to the page: a thread that fails while computing leaves this worker waiting for it,
 * deaf to messages, and only the page can end that.
 */
function spawn(): ThreadWorker {
  const thread = new Worker(self.location.href, { type: "module", name: "tinyweb-thread" });
  const { port1, port2 } = new MessageChannel();
  post({ type: "thread", port: port1 }, [port1]);
  thread.postMessage(port2, [port2]);
  return thread;
}

const post = (message: Reply, transfer: Transferable[] = []): void => self.postMessage(message, transfer);

/** @param open makes the model that this worker is for */
export function start(open: Open): void {
  let receive: ((request: Request) => void) | undefined;
  let page: MessagePort | undefined;

  self.onmessage = ({ data }: MessageEvent<Request | ThreadStart | MessagePort>) => {
    if (data instanceof MessagePort) {
      page = data;
    } else if (data.type === "wasm-thread") {
      let tell = (message: ThreadReply): void => self.postMessage(message);
      const ready = (): void => {
        tell({ type: "ready" });
        tell = (message) => page?.postMessage(message);
      };
      serveThread(data, ready).catch((error: unknown) => tell({ type: "failed", message: describe(error) }));
    } else {
      receive ??= serve({ postMessage: post }, open, { spawn });
      receive(data);
    }
  };
}
