/** A worker that is none. */

import { ChatSession } from "../src/chat.js";
import type { WorkerLike } from "../src/connection.js";
import { FunctionSession } from "../src/function.js";
import type { Reply, Request } from "../src/protocol.js";
import { serve } from "../src/serve.js";
import { fakeBundle, type FakeBundle } from "./fake-bundle.js";
import { FakeServer } from "./fake-server.js";
import { spawnNodeThread } from "./node-thread.js";
import { NO_GPU } from "./open.js";

/** The worker's code in this thread; messages are cloned and arrive later, as between real threads. */
export class LocalWorker implements WorkerLike {
  onmessage: WorkerLike["onmessage"] = null;
  onerror: WorkerLike["onerror"] = null;
  terminated = false;
  /** It does not listen. */
  silent = false;
  /** It does not speak. */
  mute = false;
  readonly server: FakeServer;
  private readonly receive: (request: Request) => void;

  constructor(bundle: FakeBundle = fakeBundle()) {
    this.server = new FakeServer(bundle.files);
    this.receive = serve(
      {
        postMessage: (message: Reply) => {
          const data = structuredClone(message);
          setImmediate(() => !this.terminated && !this.mute && this.onmessage?.({ data }));
        },
      },
      (base, settings, ...rest) => (settings.task === "chat" ? ChatSession : FunctionSession).open(base, settings, ...rest),
      {
        spawn: spawnNodeThread,
        fetch: this.server.fetch,
        platform: NO_GPU,
        openCache: async () => undefined,
        download: { backoffMs: 1 },
      },
    );
  }

  postMessage(message: unknown): void {
    const request = structuredClone(message) as Request;
    setImmediate(() => !this.silent && this.receive(request));
  }

  terminate(): void {
    this.terminated = true;
    if (!this.silent) this.receive({ type: "dispose" });
  }
}
