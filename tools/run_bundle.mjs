/**
 * Runs an exported bundle in Node, with the site's own runtime library, and prints its speed.
 *
 * usage: node tools/run_bundle.mjs SITE [--backend auto|webgpu|wasm|wasm-single] [--threads N] [--runs N] [--json]
 *          a chat:     [--prompt TEXT | --prompt-tokens N] [--tokens N] [--speculate N] [--temperature T] [--show]
 *          WebGPU:     [--webgpu FOLDER] [--flag DAWN_OPTION]… [--software]
 *
 * SITE is what `tinyweb export` wrote. WebGPU needs the npm package "webgpu" (Dawn) in the current folder or in FOLDER;
 * --software takes an adapter that computes on the CPU, too. The first run warms up and is not counted; figures are medians.
 */

import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { install } from "./node_web.mjs";

const { values: given, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    backend: { type: "string", default: "auto" },
    threads: { type: "string" },
    runs: { type: "string", default: "3" },
    json: { type: "boolean", default: false },
    prompt: { type: "string" },
    "prompt-tokens": { type: "string" },
    tokens: { type: "string", default: "64" },
    speculate: { type: "string", default: "0" },
    temperature: { type: "string", default: "0" },
    show: { type: "boolean", default: false },
    webgpu: { type: "string" },
    flag: { type: "string", multiple: true, default: [] },
    software: { type: "boolean", default: false },
  },
});

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length % 2 ? sorted[(sorted.length - 1) / 2] : (sorted[sorted.length / 2 - 1] + sorted[sorted.length / 2]) / 2;
};

function whole(name, least) {
  const value = Number(given[name]);
  if (!Number.isInteger(value) || value < least) throw new Error(`--${name} must be an integer of at least ${least}, not ${given[name]}.`);
  return value;
}

/** Bytes of weights that one token reads: those bound by `decode`; of an embedding that is not the head, only a row. */
function weightBytesPerToken(manifest) {
  const weights = manifest.buffers.filter(({ kind }) => kind === "weight");
  const variant = Object.values(manifest.targets.webgpu?.variants ?? {})[0];
  const bound = variant && new Set(variant.entry_points[manifest.chat.decode].dispatches.flatMap(({ buffers }) => buffers));
  const hasHead = weights.some(({ name }) => name.startsWith("lm_head."));
  const read = ({ id, name }) => (bound?.has(id) ?? true) && name !== "rotary" && !(hasHead && name.startsWith("model.embed_tokens."));
  return weights.filter(read).reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Bytes of keys and values that the token at `position` reads. */
function cacheBytesPerToken(manifest, position) {
  const caches = manifest.buffers.filter(({ name }) => name.endsWith(".kv"));
  return caches.reduce((sum, { bytes, shape }) => sum + (bytes / shape[2]) * position, 0);
}

async function runChat(chat, manifest, debug) {
  const tokens = whole("tokens", 1);
  const count = given["prompt-tokens"] === undefined ? undefined : whole("prompt-tokens", 1);
  // Numbers without a pattern, the same each time: what a prompt says does not change what it costs.
  const ids = count && Array.from({ length: count }, (_, i) => (((i + 1) * 2654435761) >>> 0) % manifest.model.vocab_size);
  const options = { maxTokens: tokens, temperature: Number(given.temperature), speculate: whole("speculate", 0), seed: 1 };
  if (options.temperature === 0) options.repetitionPenalty = 1;
  const rates = [];
  const firsts = [];
  let text = "";
  let result;
  for (let run = 0; run <= whole("runs", 1); run++) {
    await debug.clearCache(chat);
    text = "";
    const answer = ids
      ? chat.generateIds(ids, options)
      : chat.generate([{ role: "user", content: given.prompt ?? "Tell me a story about a fox." }], options);
    for await (const part of answer) text += ids ? "" : part.text;
    result = await answer.result;
    if (run === 0) continue;
    rates.push(result.tokensPerSecond);
    firsts.push(result.firstTokenMs);
  }
  if (given.show) console.error(text);
  const { promptTokens, stopReason } = result;
  const { kernelsPerToken } = chat.info;
  const [rate, first] = [median(rates), median(firsts)];
  const weightBytes = weightBytesPerToken(manifest);
  const cacheBytes = cacheBytesPerToken(manifest, promptTokens + tokens / 2);
  return {
    promptTokens,
    tokens,
    stopReason,
    tokensPerSecond: rate,
    tokensPerSecondRange: [Math.min(...rates), Math.max(...rates)],
    firstTokenMs: first,
    promptTokensPerSecond: (promptTokens * 1000) / first,
    kernelsPerToken,
    weightBytesPerToken: weightBytes,
    cacheBytesPerToken: Math.round(cacheBytes),
    gigabytesPerSecond: ((weightBytes + cacheBytes) * rate) / 1e9,
  };
}

async function runFunction(model, manifest, arrays) {
  const [name, plan] = Object.entries(manifest.functions)[0];
  const inputs = Object.fromEntries(
    plan.inputs.map(({ name, dtype, shape, sizes }) => {
      const array = new arrays[dtype](shape.reduce((n, size) => n * size, 1));
      for (let i = 0; i < array.length; i++)
        array[i] = dtype.endsWith("64") ? BigInt(i % 7) : dtype === "f32" ? ((i * 37) % 101) / 101 - 0.5 : i % 2;
      return [name, sizes ? { data: array, shape } : array];
    }),
  );
  const [all, alone] = [[], []];
  for (let run = 0; run <= whole("runs", 1); run++) {
    const begun = performance.now();
    await model.run(inputs, { function: name });
    if (run > 0) all.push(performance.now() - begun);
    const answer = model.run({}, { function: name, outputs: [] });
    await answer; // throws what went wrong
    if (run > 0) alone.push((await answer.result).runMs);
  }
  return {
    function: name,
    kernels: model.info.functions[name].kernels,
    runMs: median(alone),
    runMsRange: [Math.min(...alone), Math.max(...alone)],
    withCopiesMs: median(all),
  };
}

const ARRAYS = {
  f32: Float32Array,
  i32: Int32Array,
  u32: Uint32Array,
  i16: Int16Array,
  u16: Uint16Array,
  i8: Int8Array,
  u8: Uint8Array,
  bool: Uint8Array,
  i64: BigInt64Array,
  u64: BigUint64Array,
  f16: Uint16Array,
};

async function main() {
  if (positionals.length !== 1) throw new Error("Give one exported site: node tools/run_bundle.mjs SITE [options].");
  const site = resolve(positionals[0]);
  const manifest = JSON.parse(
    await readFile(`${site}/model/manifest.json`, "utf8").catch(() => {
      throw new Error(`${site} is no exported site (there is no model/manifest.json): give what \`tinyweb export\` wrote.`);
    }),
  );
  install({ webgpu: given.webgpu && resolve(given.webgpu), flags: given.flag, gpu: !given.backend.startsWith("wasm") });
  const library = await import(pathToFileURL(`${site}/assets/tinyweb.js`).href);
  const options = { backend: given.backend, allowSoftwareGpu: given.software };
  if (given.threads !== undefined) options.threads = whole("threads", 1);
  const load = manifest.task === "chat" ? library.loadChat : library.loadFunction;
  const model = await load(pathToFileURL(`${site}/model/`), options);
  const measured = manifest.task === "chat" ? await runChat(model, manifest, library.debug) : await runFunction(model, manifest, ARRAYS);
  const { backend, adapter, memoryBytes, modelBytes, start, fallbacks } = model.info;
  await model.dispose();
  return { name: manifest.name, task: manifest.task, backend, adapter, ...measured, modelBytes, memoryBytes, start, fallbacks };
}

const shown = (value) =>
  typeof value === "number"
    ? Number(value.toPrecision(4))
    : Array.isArray(value)
      ? value.map((v) => (Object(v) === v ? JSON.stringify(v) : shown(v))).join(" – ")
      : typeof value === "object"
        ? Object.entries(value)
            .map(([k, v]) => `${k} ${Math.round(v)}`)
            .join(", ")
        : value;

try {
  const result = await main();
  if (given.json) console.log(JSON.stringify(result));
  else
    for (const [name, value] of Object.entries(result))
      if (value !== undefined && value !== "") console.log(`${name.padEnd(24)} ${shown(value)}`);
  process.exit(0); // Dawn's threads would go on
} catch (error) {
  console.error(`tinyweb: ${error.message}`);
  process.exit(1);
}
