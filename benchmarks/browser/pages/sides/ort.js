/** onnxruntime-web: an ONNX graph on WASM or WebGPU, inputs and outputs in JavaScript's memory. */
import { inputsFrom, inputsOf } from "../inputs.js";

export async function open({ model, shapes, data, arrays, threads, backend, library }) {
  const file = backend === "webgpu" ? "ort.webgpu.min.mjs" : "ort.wasm.min.mjs";
  const ort = await import(`${library}/onnxruntime-web/dist/${file}`);
  ort.env.wasm.wasmPaths = `${location.origin}${library}/onnxruntime-web/dist/`;
  ort.env.wasm.numThreads = threads;
  const session = await ort.InferenceSession.create(`${location.origin}${model}`, {
    executionProviders: [backend],
    graphOptimizationLevel: "all",
  });
  const feeds = {};
  if (arrays) {
    for (const [name, { array, shape, dtype }] of Object.entries(await inputsFrom(data, arrays)))
      if (session.inputNames.includes(name)) feeds[name] = new ort.Tensor(dtype, array, shape);
  } else {
    for (const [name, values] of Object.entries(inputsOf(shapes))) feeds[name] = new ort.Tensor("float32", values, shapes[name]);
  }
  let outputs;
  const run = async () => {
    outputs = await session.run(feeds);
  };
  return {
    run,
    async result() {
      await run();
      return Object.fromEntries(session.outputNames.map((name) => [name, outputs[name].data]));
    },
    notes: () => ({ library: ort.env.versions.web, threads: ort.env.wasm.numThreads }),
  };
}
