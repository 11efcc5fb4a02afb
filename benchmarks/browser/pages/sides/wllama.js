/** wllama: llama.cpp in WASM, with the times it takes itself. */
import { promptOf, PROMPTS } from "../prompts.js";

/** Bytes that are no UTF-8 when put together would make it fail. */
const NO_BYTES = Object.fromEntries(Array.from({ length: 256 }, (_, byte) => [String(byte + 3), -100]));

export async function open({ gguf, threads, library, task, tokens, context }) {
  const { Wllama, LoggerWithoutDebug } = await import(`${library}/@wllama/wllama/esm/index.js`);
  const at = `${location.origin}${library}/@wllama/wllama/esm/wasm/wllama.wasm`;
  const wllama = new Wllama({ default: at }, { suppressNativeLog: true, logger: LoggerWithoutDebug });
  const file = await (await fetch(new URL(gguf, location.origin))).blob();
  await wllama.loadModel([file], { n_ctx: context, n_threads: threads, n_gpu_layers: 0, n_batch: 256, n_parallel: 1 });
  let seed = 1;
  const answer = async (length, count, number = seed++) => {
    const prompt = promptOf(length, number).text;
    const made = await wllama.createCompletion({
      prompt,
      max_tokens: count,
      temperature: 0,
      cache_prompt: false,
      ignore_eos: true,
      logit_bias: NO_BYTES,
    });
    const read = made.timings.prompt_n;
    if (read !== length) throw new Error(`wllama read ${read} tokens where ${length} were meant`);
    return made;
  };
  return {
    /** Of a prompt as a whole, or of each token of an answer. */
    async time(repeat) {
      let seconds = 0;
      for (let i = 0; i < repeat; i++) {
        if (task === "prefill") {
          const { timings } = await answer(tokens, 1);
          seconds += (timings.prompt_ms / timings.prompt_n) * (tokens / 1000);
        } else {
          const { timings } = await answer(16, tokens + 1);
          seconds += timings.predicted_per_token_ms / 1000;
        }
      }
      return seconds;
    },
    async result() {
      const found = [];
      for (let number = 0; number < PROMPTS; number++) {
        const text = (await answer(16, 2, 1000 + number)).choices[0].text;
        const ids = [...text.matchAll(/⟨(\d+)⟩/g)].map(([, id]) => Number(id));
        found.push(...ids, ...new Array(2).fill(-1).slice(ids.length)); // -1: a byte
      }
      return { tokens: Int32Array.from(found) };
    },
    notes: () => ({ threads: wllama.getNumThreads(), several: wllama.isMultithread() }),
  };
}
