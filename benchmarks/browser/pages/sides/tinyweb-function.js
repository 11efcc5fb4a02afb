/**
 * An exported function through its own loader. What is timed is what others are timed for, whose sides live in a worker
 * themselves: inputs copied in, computed, outputs copied out, without the way between page and worker.
 */
import { inputsFrom, inputsOf } from "../inputs.js";

export async function open({ bundle, shapes, data, arrays, threads, backend, name = "run" }) {
  const { load } = await import(new URL(`${bundle}model.js`, location.origin));
  const model = await load({ backend: backend === "webgpu" ? "webgpu" : threads > 1 ? "wasm" : "wasm-single", threads });
  const given = arrays && Object.entries(await inputsFrom(data, arrays));
  const inputs = given ? Object.fromEntries(given.map(([name, { array }]) => [name, array])) : inputsOf(shapes);
  return {
    async time(repeat) {
      let milliseconds = 0;
      for (let i = 0; i < repeat; i++) {
        const run = model.run(inputs, { function: name });
        await run; // throws what went wrong
        milliseconds += (await run.result).runMs;
      }
      return milliseconds / 1000;
    },
    result: () => model.run(inputs, { function: name }),
    notes: () => ({ adapter: model.info.adapter, kernels: model.info.functions[name].kernels }),
  };
}
