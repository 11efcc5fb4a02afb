// What the examples share: an element by its id, and how loading is going, in words.

/** @param {string} id @returns {any} */
export const element = (id) => document.getElementById(id);

/** @param {string} text */
export const say = (text) => (element("status").textContent = text);

/** @param {{ phase: string, loadedBytes: number, totalBytes: number }} progress */
export const showProgress = ({ phase, loadedBytes, totalBytes }) =>
  say(phase === "weights" ? `Loading: ${(loadedBytes / 1e6).toFixed(1)} of ${(totalBytes / 1e6).toFixed(1)} MB` : `Loading: ${phase}`);

/** Every error of the library has a sentence for people in `message`, and a `code` for programs. */
export const fail = (/** @type {any} */ error) => say(error.code === "aborted" ? "Stopped." : error.message);
