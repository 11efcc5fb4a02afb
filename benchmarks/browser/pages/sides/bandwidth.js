/** How long it takes at best: reading that many bytes once per run, each thread its part, in WASM. */
export async function open({ module: url, threads, bytes }) {
  const module = await WebAssembly.compileStreaming(fetch(new URL(url, location.origin)));
  const pages = Math.ceil(bytes / 65536) + 2;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: 65536, shared: true });
  new Uint8Array(memory.buffer).fill(1); // pages that were never written are not in memory
  const part = Math.floor(bytes / threads / 64) * 64;
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  const words = new Int32Array(memory.buffer, 0, 4);
  words.fill(0);
  const [CALL, DONE] = [0, 1];
  for (let thread = 1; thread < threads; thread++) {
    const worker = new Worker(new URL("bandwidth-thread.js", import.meta.url), { type: "module" });
    const ready = new Promise((resolve) => (worker.onmessage = resolve));
    worker.postMessage({ module, memory, begin: 65536 + thread * part, end: 65536 + (thread + 1) * part });
    await ready;
  }
  const run = () => {
    Atomics.store(words, DONE, 0);
    Atomics.add(words, CALL, 1);
    Atomics.notify(words, CALL);
    exports.read(65536, 65536 + part);
    for (let done; (done = Atomics.load(words, DONE)) < threads - 1; ) Atomics.wait(words, DONE, done);
  };
  return {
    time(repeat) {
      const begin = performance.now();
      for (let i = 0; i < repeat; i++) run();
      return (performance.now() - begin) / 1000;
    },
    result: () => ({}),
    notes: () => ({ bytes }),
  };
}
