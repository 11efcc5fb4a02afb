/**
 * Cross-origin isolation, which threads in WebAssembly need, on hosts that cannot send its headers: the service worker, which keeps
 * the site anyway, answers with them once it controls the page. So a first visit waits for it and opens the page once more.
 */

import type { BackendChoice } from "./model-api";
import { readFacts, registerWorker } from "./site";

const TRIED = "tinyweb-isolated";
/** Longer than that a first visit does not wait: it begins with one thread, and the next one has them. */
const WAIT_MS = 10_000;

/** Whether the page will compute with WebGPU, which needs no threads. */
async function hasGpu(): Promise<boolean> {
  const { gpu } = navigator as { gpu?: { requestAdapter(): Promise<{ info?: { isFallbackAdapter?: boolean } } | null> } };
  const adapter = await gpu?.requestAdapter().catch(() => null);
  return adapter != null && adapter.info?.isFallbackAdapter !== true;
}

/** Once for each tab, whatever comes of it; false where that cannot be remembered, so that the page never opens again and again. */
function firstTime(): boolean {
  try {
    if (sessionStorage.getItem(TRIED) !== null) return false;
    sessionStorage.setItem(TRIED, "1");
    return true;
  } catch {
    return false;
  }
}

/** Whether the site's worker is there to answer the next visit. */
async function working(serviceWorker: ServiceWorkerContainer): Promise<boolean> {
  const registration = await registerWorker(serviceWorker);
  const worker = registration.installing ?? registration.waiting ?? registration.active;
  if (worker === null) return false;
  return new Promise((resolve) => {
    const look = (): void => {
      if (worker.state === "activated") resolve(true);
      if (worker.state === "redundant") resolve(false);
    };
    worker.addEventListener("statechange", look);
    setTimeout(() => resolve(false), WAIT_MS);
    look();
  });
}

/** Opens the page anew where that gives it threads it would use; then this never comes back. Never throws. */
export async function isolate(backend: BackendChoice): Promise<void> {
  const { serviceWorker } = navigator;
  // A frame is isolated by the page around it, and what came from a worker already will not change.
  if (crossOriginIsolated || !serviceWorker || serviceWorker.controller || window.top !== window) return;
  if (backend === "webgpu" || backend === "wasm-single" || !firstTime()) return;
  try {
    if (backend === "auto" && (await hasGpu())) return;
    if ((await readFacts()) === null || !(await working(serviceWorker))) return;
  } catch {
    return;
  }
  location.reload();
  await new Promise(() => undefined);
}
