// @ts-check
/// <reference lib="webworker" />
/**
 * Keeps an exported site on the device, so that it opens without a network. The export writes what the site consists of in
 * front of this script, as `SITE`; so every export has another worker, and browsers notice.
 *
 * One version of a site is kept whole, every file checked against its hash, before anything of it is used; and whoever was
 * opened with one version gets nothing but that version until it is closed or reloaded, in whatever tab the reader takes
 * the new one. Weights are not kept here: the runtime does that.
 */

/** @typedef {{ hash: string, files: Record<string, string> }} Site paths relative to the site, and their SHA-256 */
/** @typedef {{ hash: string, page: string, at: number }} Pin version a client was opened with, the page it belongs to, when */

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const { hash: own, files } = /** @type {{ SITE: Site }} */ (/** @type {unknown} */ (globalThis)).SITE;
const scope = new URL(worker.registration.scope);
const PREFIX = `tinyweb-site:${scope.pathname}:`;
const PINS = `tinyweb-site-clients:${scope.pathname}`;
const HASH = "x-tinyweb-sha256";
const AT_ONCE = 4;
/** A page that is being opened is not yet among the clients. */
const OPENING_MS = 60_000;
/** A browser tells its pages at once; an event that waits longer would hold up the next version. */
const ANSWER_MS = 5_000;

/** @param {string} hash */
const cacheName = (hash) => PREFIX + hash;
/** @param {string} path */
const keyOf = (path) => new URL(path === "index.html" ? "./" : path, scope).href;

/** What the new version shares with one that is kept already is not fetched again. @param {string} path @param {string} sha256 */
async function find(path, sha256) {
  for (const name of await caches.keys()) {
    if (!name.startsWith(PREFIX) || name === cacheName(own)) continue;
    const kept = await (await caches.open(name)).match(keyOf(path));
    if (kept?.headers.get(HASH) === sha256) return kept;
  }
  return undefined;
}

/** A file as the export wrote it, or an error: a site that is being replaced serves a mixture. @param {string} path @param {string} sha256 */
async function fetchFile(path, sha256) {
  const response = await fetch(keyOf(path), { cache: "no-cache" });
  if (!response.ok) throw new Error(`${path}: the server answered ${response.status}`);
  const bytes = await response.arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (found !== sha256) throw new Error(`${path} is not the file that belongs to this version`);
  const headers = new Headers(response.headers);
  for (const name of ["content-encoding", "content-length", "transfer-encoding", "vary"]) headers.delete(name);
  headers.set(HASH, sha256);
  // Threads in WebAssembly ask for an isolated page; many static hosts cannot send these headers.
  headers.set("cross-origin-opener-policy", "same-origin");
  headers.set("cross-origin-embedder-policy", "require-corp");
  headers.set("cross-origin-resource-policy", "same-origin");
  return new Response(bytes, { headers });
}

async function install() {
  const cache = await caches.open(cacheName(own));
  const missing = Object.entries(files);
  const lane = async () => {
    for (let next = missing.pop(); next !== undefined; next = missing.pop()) {
      const [path, sha256] = next;
      // What is there was checked before an earlier attempt broke off.
      if ((await cache.match(keyOf(path))) !== undefined) continue;
      await cache.put(keyOf(path), (await find(path, sha256)) ?? (await fetchFile(path, sha256)));
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
  } catch (error) {
    // What broke off goes on next time; where there is no room, half a page must not take the model's.
    if (error instanceof DOMException && error.name === "QuotaExceededError") await caches.delete(cacheName(own));
    throw error;
  }
}

/** @type {Map<string, Pin>} */
const pins = new Map();
/** @param {string} id */
const pinKey = (id) => new URL(`__clients/${id}`, scope).href;

/** @param {string} id @param {Pin} pin */
async function pin(id, pin) {
  if (id === "") return;
  pins.set(id, pin);
  await (await caches.open(PINS)).put(pinKey(id), new Response(JSON.stringify(pin)));
}

/** @param {string} id @returns {Promise<Pin>} */
async function pinOf(id) {
  const known = pins.get(id);
  if (known !== undefined) return known;
  const kept = await (await caches.open(PINS)).match(pinKey(id));
  // A page that was opened around this worker came from the network, as this worker's version did.
  const found = kept === undefined ? { hash: own, page: id, at: Date.now() } : /** @type {Pin} */ (await kept.json());
  pins.set(id, found);
  return found;
}

/**
 * Lets go of versions that no open page was opened with. Only pages are asked for, and pins name theirs: a worker that waits
 * for another thread tells a browser nothing, and Firefox waits for its answer. What is not known in time goes next time.
 */
async function tidy() {
  const pages = worker.clients.matchAll({ includeUncontrolled: true, type: "window" });
  const late = /** @type {Promise<undefined>} */ (new Promise((resolve) => setTimeout(resolve, ANSWER_MS)));
  const found = await Promise.race([pages, late]);
  if (found === undefined) return;
  const open = new Set(found.map(({ id }) => id));
  const used = new Set([cacheName(own)]);
  const kept = await caches.open(PINS);
  for (const request of await kept.keys()) {
    const pin = /** @type {Pin | undefined} */ (await (await kept.match(request))?.json());
    if (pin !== undefined && (open.has(pin.page) || Date.now() - pin.at < OPENING_MS)) used.add(cacheName(pin.hash));
    else await kept.delete(request);
  }
  for (const name of await caches.keys()) {
    if (name.startsWith(PREFIX) && !used.has(name)) await caches.delete(name);
  }
}

/** Where a request goes, relative to the site; undefined where that is none of this worker's business. @param {Request} request */
function pathOf(request) {
  const url = new URL(request.url);
  if (request.method !== "GET" || request.headers.has("range") || url.origin !== scope.origin) return undefined;
  if (!url.pathname.startsWith(scope.pathname)) return undefined;
  const path = url.pathname.slice(scope.pathname.length);
  return path === "sw.js" || path.includes("/weights/") ? undefined : path;
}

/** @param {FetchEvent} event @param {string} path */
async function answer(event, path) {
  const { request, clientId, resultingClientId } = event;
  const opens = request.mode === "navigate";
  const version = opens ? { hash: own, page: resultingClientId, at: Date.now() } : { ...(await pinOf(clientId)), at: Date.now() };
  // A page, or a worker of a page: it goes on as it begins.
  if (resultingClientId !== "") event.waitUntil(pin(resultingClientId, version));
  const cache = await caches.open(cacheName(version.hash));
  const kept = await cache.match(keyOf(path));
  if (opens && kept !== undefined) event.waitUntil(tidy());
  return kept ?? fetch(request);
}

worker.addEventListener("install", (event) => event.waitUntil(install()));
worker.addEventListener("fetch", (event) => {
  const path = pathOf(event.request);
  if (path !== undefined) event.respondWith(answer(event, path));
});
worker.addEventListener("message", (event) => {
  if (event.data === "version") event.ports[0]?.postMessage(own);
  if (event.data === "activate") event.waitUntil(worker.skipWaiting());
});
