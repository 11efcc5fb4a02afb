/**
 * The files of the library: what a page may load by name. `tinyweb.js` is what all the others build upon: they import it, so that
 * there is one TinywebError and one of each model class in a page.
 */

/** Entry source of each file. */
export const FILES = {
  "tinyweb.js": "src/library.ts",
  "tinyweb-worker.js": "src/worker.ts",
  "tinyweb-chat-worker.js": "src/chat-worker.ts",
  "tinyweb-node.js": "src/node.ts",
  "tinyweb-load.js": "src/load.ts",
  "tinyweb-openai.js": "src/openai/index.ts",
  "tinyweb-detect.js": "src/detect/index.ts",
  "tinyweb-image.js": "src/image/index.ts",
  "tinyweb-embed.js": "src/embed/index.ts",
};

/** Whose types each file has that programs import: of tsc's, in the folder types. */
export const TYPES = {
  "tinyweb.js": "index",
  "tinyweb-load.js": "load",
  "tinyweb-openai.js": "openai/index",
  "tinyweb-detect.js": "detect/index",
  "tinyweb-image.js": "image/index",
  "tinyweb-embed.js": "embed/index",
};

/** Modules that live in one file only: whatever imports them elsewhere imports that file. */
export const HOMES = {
  "src/index.ts": "tinyweb.js",
  "src/arguments.ts": "tinyweb.js",
  "src/client.ts": "tinyweb.js",
  "src/connection.ts": "tinyweb.js",
  "src/device.ts": "tinyweb.js",
  "src/errors.ts": "tinyweb.js",
  "src/marker.ts": "tinyweb.js",
  "src/options.ts": "tinyweb.js",
  ...Object.fromEntries(Object.entries(FILES).map(([file, source]) => [source, file])),
};
