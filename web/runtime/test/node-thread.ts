/** WASM threads in Node: the shipped worker file inside a worker thread. */

import { Worker } from "node:worker_threads";
import type { ThreadWorker } from "../src/wasm-engine.js";
import { BUILT } from "./build.js";

const BOOT = `
  const { parentPort, workerData } = require("node:worker_threads");
  globalThis.self = globalThis;
  self.postMessage = (message) => parentPort.postMessage(message);
  import(workerData).then(() => parentPort.on("message", (data) => self.onmessage({ data })));
`;

/** All threads that were started and have not ended. */
export const alive = new Set<Worker>();

export function spawnNodeThread(): ThreadWorker {
  const worker = new Worker(BOOT, { eval: true, workerData: new URL("tinyweb-worker.js", BUILT).href });
  alive.add(worker);
  worker.on("exit", () => alive.delete(worker));
  return {
    postMessage: (message) => worker.postMessage(message),
    terminate: () => void worker.terminate(),
    addEventListener: (type: "message" | "error", listener: (event: never) => void) => {
      if (type === "message") worker.on("message", (data: unknown) => listener({ data } as never));
      else worker.on("error", (error) => listener({ message: error.message } as never));
    },
  };
}
