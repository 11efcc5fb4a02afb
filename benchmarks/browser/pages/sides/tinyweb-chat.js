/** An exported Llama through its own loader, as a page uses it: tokens in, tokens out. */
import { promptOf, PROMPTS } from "../prompts.js";

export async function open({ bundle, threads, backend, task, tokens }) {
  const { load } = await import(new URL(`${bundle}model.js`, location.origin));
  const chosen = backend === "webgpu" ? "webgpu" : threads > 1 ? "wasm" : "wasm-single";
  const chat = await load({ backend: chosen, threads });
  let seed = 1;
  /** Ids of an answer of `count` tokens to a prompt nobody has read yet, and the times when they came. */
  const answer = async (length, count, number = seed++) => {
    const ids = [];
    const times = [performance.now()];
    for await (const id of chat.generateIds(promptOf(length, number).ids, { maxTokens: count, temperature: 0 })) {
      ids.push(id);
      times.push(performance.now());
    }
    return { ids, times };
  };
  return {
    /** Of a prompt as a whole, or of each token of an answer. */
    async time(repeat) {
      let seconds = 0;
      for (let i = 0; i < repeat; i++) {
        if (task === "prefill") {
          const { times } = await answer(tokens, 1);
          seconds += (times[1] - times[0]) / 1000;
        } else {
          const { times } = await answer(16, tokens + 1);
          if (times.length < 4) throw new Error("the answer ended at once");
          seconds += (times.at(-1) - times[1]) / (times.length - 2) / 1000;
        }
      }
      return seconds;
    },
    async result() {
      const found = [];
      for (let number = 0; number < PROMPTS; number++) found.push(...(await answer(16, 2, 1000 + number)).ids);
      return { tokens: Int32Array.from(found) };
    },
    notes: () => ({ adapter: chat.info.adapter, kernels: chat.info.kernelsPerToken }),
  };
}
