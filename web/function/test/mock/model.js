// @ts-check
/**
 * A pretended model of two functions with the interface of the generated loader: classes of a picture and a mask of it, and the
 * sum and the waves of numbers. Besides what pretend.js knows, `?mock=` understands:
 *
 *   numbers     only the second function
 *   broken      the first run fails with "internal"
 */

import { asked, fail, mock, MODEL_BYTES, pause, pretendEvents, pretendLoading } from "./pretend.js";

/**
 * @typedef {import("tinyweb-shell").LoadOptions} LoadOptions
 * @typedef {import("../../src/model-api").RunModel} RunModel
 * @typedef {import("tinyweb").ArrayInfo} ArrayInfo
 * @typedef {Record<string, { dtype: string, shape: number[], sizes?: string[] }>} Ports
 */

/** @type {Record<string, { inputs: Ports, outputs: Ports, kernels: number }>} */
const FUNCTIONS = {
  look: {
    inputs: { image: { dtype: "f32", shape: [1, 3, 32, 48] }, bias: { dtype: "f32", shape: [4] } },
    outputs: {
      logits: { dtype: "f32", shape: [1, 4] },
      mask: { dtype: "f32", shape: [1, 2, 32, 48] },
      boxes: { dtype: "i64", shape: [3, 4] },
    },
    kernels: 12,
  },
  add: {
    inputs: { x: { dtype: "f32", shape: [64], sizes: ["length"] }, n: { dtype: "i64", shape: [] } },
    outputs: { sum: { dtype: "f32", shape: [] }, wave: { dtype: "f32", shape: [1, 1024] }, next: { dtype: "i64", shape: [] } },
    kernels: 1,
  },
};
if (asked.has("numbers")) delete FUNCTIONS["look"];

const VARIABLES = { length: { min: 8, max: 64 } };
export const info = { name: "pretended", variables: VARIABLES, parameters: 12_345, functions: FUNCTIONS, modelBytes: MODEL_BYTES };

/** @param {Ports} ports @returns {ArrayInfo[]} */
const listed = (ports) => Object.entries(ports).map(([name, port]) => ({ name, ...port }));

/** @param {Record<string, any>} inputs */
function look({ image, bias }) {
  const area = 32 * 48;
  const means = [0, 1, 2].map(
    (c) => image.subarray(c * area, (c + 1) * area).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0) / area,
  );
  const mask = new Float32Array(2 * area);
  for (let i = 0; i < area; i++) mask[area + i] = image[2 * area + i] - image[i];
  return {
    logits: Float32Array.from([...means.map((m) => 10 * m), 0], (v, i) => v + bias[i]),
    mask,
    boxes: BigInt64Array.from([1n, 2n, 30n, 40n, 5n, 6n, 7n, 8n, 9n, 10n, 11n, 12n]),
  };
}

/** @param {Record<string, any>} inputs */
function add({ x: { data: x }, n }) {
  const sum = x.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, Number(n[0]));
  const wave = Float32Array.from({ length: 1024 }, (_, i) => Math.sin(i / 40) + x[i % x.length] / 20);
  return { sum: Float32Array.of(sum), wave, next: BigInt64Array.of(n[0] + 1n) };
}

/** @param {LoadOptions} [options] @returns {Promise<RunModel>} */
export async function load(options = {}) {
  const figures = {
    ...(await pretendLoading(options)),
    functions: Object.fromEntries(
      Object.entries(FUNCTIONS).map(([name, { inputs, outputs, kernels }]) => [
        name,
        { inputs: listed(inputs), outputs: listed(outputs), kernels },
      ]),
    ),
    variables: VARIABLES,
    sections: {
      graph: {
        labels: ["red", "green", "blue", "other"],
        metadata: { author: "nobody" },
        inputs: [{ name: "image", shape: ["batch", 3, 32, 48] }],
      },
    },
  };
  const { on } = pretendEvents();
  let runs = 0;
  return {
    info: figures,
    on,
    async dispose() {
      mock.disposed++;
    },
    run(inputs, options) {
      mock.asked.push(inputs);
      const answer = (async () => {
        await pause(20, options?.signal);
        if (asked.has("broken") && ++runs === 1) throw fail("internal", "The module stopped.");
        /** @type {any} */
        const outputs = options?.function === "look" ? look(inputs) : add(inputs);
        return outputs;
      })();
      return Object.assign(answer, {
        result: answer.then(
          () => ({ runMs: 18.4 }),
          () => ({ runMs: 0 }),
        ),
      });
    },
  };
}
