/** Opens the hand-made bundle in Node: WASM engines run here as they do in a worker. */

import type { Platform } from "../src/backend.js";
import { ChatSession } from "../src/chat.js";
import { ModelHost, type HostSettings } from "../src/host.js";
import { fakeBundle, type FakeBundle } from "./fake-bundle.js";
import { BASE, FakeServer } from "./fake-server.js";
import { MemoryStorage } from "./memory-cache.js";
import { spawnNodeThread } from "./node-thread.js";

export const NO_GPU: Platform = {
  gpu: undefined,
  isSecureContext: true,
  crossOriginIsolated: true,
  sharedMemory: true,
  hardwareConcurrency: 3,
};

export interface Opened {
  session: ChatSession;
  host: ModelHost;
  server: FakeServer;
  storage: MemoryStorage;
}

export async function openFake(
  settings: Partial<HostSettings> = {},
  bundle: FakeBundle = fakeBundle(),
  signal?: AbortSignal,
): Promise<Opened> {
  const server = new FakeServer(bundle.files);
  const storage = new MemoryStorage();
  const all: HostSettings = {
    options: {},
    onProgress: () => undefined,
    onEvent: () => undefined,
    spawn: spawnNodeThread,
    fetch: server.fetch,
    platform: NO_GPU,
    openCache: async (model) => storage.open(model),
    download: { backoffMs: 1 },
    ...settings,
  };
  // of functions a test makes its session itself
  const session = all.task === "function" ? undefined : await ChatSession.open(BASE, all, undefined, signal);
  const host = session?.host ?? (await ModelHost.open(BASE, all, signal));
  return { session: session as ChatSession, host, server, storage };
}

export async function collect<T>(parts: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const part of parts) all.push(part);
  return all;
}
