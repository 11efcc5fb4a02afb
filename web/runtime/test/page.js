// The page of the browser tests: what it has loaded and seen hangs on `window.t`, for the tests to call.
import { debug, loadChat, loadFunction } from "/assets/tinyweb.js";

const plain = (error) => ({ error: { code: error.code, message: error.message, name: error.name } });

window.t = {
  chat: undefined,
  events: [],
  interrupted: [],
  progress: [],

  /** The chat's figures, or the error. */
  async load(bundle, options) {
    try {
      this.progress = [];
      this.interrupted = [];
      const onInterrupted = (previous) => {
        this.interrupted.push(previous);
        return previous.recommended;
      };
      this.chat = await loadChat(bundle, { ...options, onInterrupted, onProgress: (p) => this.progress.push(p) });
      this.events = [];
      for (const name of ["device-lost", "backend-changed"]) this.chat.on(name, (data) => this.events.push({ name, ...data }));
      return this.chat.info;
    } catch (error) {
      return plain(error);
    }
  },

  /** Token ids; loses the device or aborts after so many of them, if asked to. */
  async ids(prompt, options, { loseAt = [], abortAt } = {}) {
    const ids = [];
    const controller = new AbortController();
    try {
      for await (const id of this.chat.generateIds(prompt, { ...options, signal: controller.signal })) {
        ids.push(id);
        if (loseAt.includes(ids.length)) await debug.loseDevice(this.chat);
        if (ids.length === abortAt) controller.abort();
      }
    } catch (error) {
      return { ids, ...plain(error) };
    }
    return { ids };
  },

  async text(messages, options) {
    let text = "";
    const answer = this.chat.generate(messages, options);
    for await (const part of answer) text += part.text;
    return { text, result: await answer.result };
  },

  async logits(ids) {
    return [...(await this.chat.logits(ids))];
  },

  async loadFunction(bundle, options) {
    this.chat = await loadFunction(bundle, options);
    return this.chat.info;
  },

  async run(x, n, outputs) {
    try {
      const inputs = { ...(x && { x: Float32Array.from(x) }), ...(n && { n: Int32Array.from(n) }) };
      const results = await this.chat.run(inputs, { outputs });
      return Object.fromEntries(Object.entries(results).map(([name, array]) => [name, [...array]]));
    } catch (error) {
      return plain(error);
    }
  },

  dispose() {
    return this.chat.dispose();
  },

  /** Changes one byte of a stored shard, or cuts it. */
  async damage(model, shard, keep) {
    const root = await navigator.storage.getDirectory();
    const folder = await (await root.getDirectoryHandle("tinyweb-weights")).getDirectoryHandle(model);
    const handle = await folder.getFileHandle(shard);
    const bytes = new Uint8Array(await (await handle.getFile()).arrayBuffer());
    if (keep === undefined) bytes[0] ^= 1;
    const stream = await handle.createWritable();
    await stream.write(bytes.slice(0, keep ?? bytes.length));
    await stream.close();
  },

  async stored() {
    const found = [];
    const root = await navigator.storage.getDirectory();
    for await (const [name, folder] of root.entries()) {
      if (name !== "tinyweb-weights") continue;
      for await (const model of folder.keys()) found.push(model);
    }
    return found;
  },
};
window.ready = true;
