/** A thread of bandwidth.js. */
self.onmessage = async ({ data: { module, memory, begin, end } }) => {
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  const words = new Int32Array(memory.buffer, 0, 4);
  const [CALL, DONE] = [0, 1];
  let call = Atomics.load(words, CALL);
  postMessage("ready");
  for (;;) {
    Atomics.wait(words, CALL, call);
    if (Atomics.load(words, CALL) === call) continue;
    call = Atomics.load(words, CALL);
    exports.read(begin, end);
    Atomics.add(words, DONE, 1);
    Atomics.notify(words, DONE);
  }
};
