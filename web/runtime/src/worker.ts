/** Entry of tinyweb-worker.js: the first message decides whether this worker holds a model or is one of its WASM threads. */

import { describe } from "./errors.js";
import type { Request } from "./protocol.js";
import { serve } from "./serve.js";
import type { ThreadWorker } from "./wasm-engine.js";
import { serveThread, type ThreadReply, type ThreadStart } from "./wasm-thread.js";

declare const self: DedicatedWorkerGlobalScope;

function spawn(): ThreadWorker {
  return new Worker(self.location.href, { type: "module", name: "tinyweb-thread" });
}

let receive: ((request: Request) => void) | undefined;

self.onmessage = ({ data }: MessageEvent<Request | ThreadStart>) => {
  if (data.type === "wasm-thread") {
    const reply = (message: ThreadReply): void => self.postMessage(message);
    serveThread(data, () => reply({ type: "ready" })).catch((error: unknown) => reply({ type: "failed", message: describe(error) }));
    return;
  }
  receive ??= serve({ postMessage: (message, transfer = []) => self.postMessage(message, transfer) }, { spawn });
  receive(data);
};
