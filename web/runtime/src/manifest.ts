/**
 * The manifest of a bundle (docs/bundle.md): its types, and the check that turns untrusted JSON into them.
 * After `parseManifest` every id, size and range holds, so the engines index without asking again.
 */

import { bad, boolean, hash, integer, list, number, object, oneOf, path, record, text, type Json } from "./check.js";
import { compileExpression, type Evaluate } from "./expression.js";

export interface Segment {
  shard: number;
  /** Bytes from the shard's start. */
  offset: number;
  bytes: number;
  /** Bytes from the buffer's start, a multiple of 4. */
  at: number;
}

export interface BufferSpec {
  id: number;
  name: string;
  kind: string;
  dtype: string;
  shape: number[];
  bytes: number;
  /** Where a weight's bytes come from; empty for state. */
  segments: Segment[];
}

export interface Shard {
  file: string;
  bytes: number;
  sha256: string;
}

export interface Variable {
  name: string;
  min: number;
  max: number;
}

export interface Sampling {
  temperature: number;
  topP: number;
  topK: number;
  repetitionPenalty: number;
  maxTokens: number;
}

export interface ChatPlan {
  eos: number[];
  bos: number | undefined;
  /** Largest block first. */
  prefill: { entry: string; block: number }[];
  decode: string;
  sample: string;
  greedy: string;
  /** Buffer ids. */
  ids: number;
  logits: number;
  samplingF: number;
  samplingI: number;
  defaults: Sampling;
}

export interface MemoryNeed {
  weights: number;
  state: number;
  temporaries: number;
}

export type BindingType = "storage" | "read-only-storage";

export interface Kernel {
  name: string;
  entry: string;
  bindings: BindingType[];
  uniform: boolean;
}

export interface Dispatch {
  kernel: number;
  buffers: number[];
  grid: Evaluate[];
}

export interface WebGpuVariant {
  name: string;
  features: string[];
  file: string;
  kernels: Kernel[];
  entryPoints: Map<string, Dispatch[]>;
}

export interface WebGpuTarget {
  limits: Map<string, number>;
  bytes: MemoryNeed;
  temporaries: { id: number; bytes: number }[];
  variants: WebGpuVariant[];
}

export interface WasmTarget {
  bytes: MemoryNeed;
  /** Fixed size of the memory in pages of 64 KiB. */
  pages: number;
  /** Byte address of each buffer by id. */
  addresses: Map<number, number>;
  variables: number;
  control: number;
  stacks: { base: number; bytes: number; maxThreads: number };
  single: string | undefined;
  threaded: string | undefined;
  entryPoints: Map<string, { function: string; kernels: number }>;
}

export interface ModelFigures {
  architecture: string;
  parameters: number;
  layers: number;
  vocabSize: number;
  context: number;
  quant: string;
}

export interface Manifest {
  task: string;
  name: string;
  model: ModelFigures;
  files: { tokenizer: string; tokenizerConfig: string; chatTemplate: string };
  weights: { bytes: number; sha256: string; shards: Shard[] };
  buffers: BufferSpec[];
  variables: Variable[];
  /** Slot of each variable by name. */
  slots: ReadonlyMap<string, number>;
  chat: ChatPlan;
  webgpu: WebGpuTarget | undefined;
  wasm: WasmTarget | undefined;
}

const PAGE = 65536;
export const CONTROL_BYTES = 64;

/** @throws TinywebError "bad-manifest" naming the field that is wrong. */
export function parseManifest(json: unknown): Manifest {
  const m = object(json, "the file");
  if (m.format !== "tinyweb-bundle") bad("format", 'must be "tinyweb-bundle"');
  if (m.version !== 1) bad("version", `this runtime reads version 1, not ${JSON.stringify(m.version)}; export again or update tinyweb`);
  const task = text(m.task, "task");
  if (task !== "chat") bad("task", `"${task}" is not a task this runtime knows (chat)`);

  const figures = object(m.model, "model");
  const model: ModelFigures = {
    architecture: text(figures.architecture, "model.architecture"),
    parameters: integer(figures.parameters, "model.parameters"),
    layers: integer(figures.layers, "model.layers"),
    vocabSize: integer(figures.vocab_size, "model.vocab_size", 1, 2 ** 24),
    context: integer(figures.context, "model.context", 2, 2 ** 24),
    quant: text(figures.quant, "model.quant"),
  };
  const files = object(m.files, "files");
  const weights = parseWeights(object(m.weights, "weights"));
  const buffers = list(m.buffers, "buffers", (value, where, id) => parseBuffer(object(value, where), where, id, weights.shards));
  const variables = list(m.variables, "variables", parseVariable, 1024);
  const slots = new Map(variables.map((variable, slot) => [variable.name, slot]));
  if (slots.size !== variables.length) bad("variables", "a name appears twice");
  for (const name of ["start_pos", "count"]) if (!slots.has(name)) bad("variables", `"${name}" is missing`);

  const chat = parseChat(object(m.chat, "chat"), buffers, model);
  const targets = object(m.targets, "targets");
  const webgpu = targets.webgpu === undefined ? undefined : parseWebGpu(object(targets.webgpu, "targets.webgpu"), buffers, slots);
  const wasm = targets.wasm === undefined ? undefined : parseWasm(object(targets.wasm, "targets.wasm"), buffers, variables, slots);
  if (!webgpu && !wasm) bad("targets", "neither webgpu nor wasm is there");

  const entries = [...chat.prefill.map((block) => block.entry), chat.decode, chat.sample, chat.greedy];
  for (const entry of entries) {
    for (const variant of webgpu?.variants ?? []) {
      if (!variant.entryPoints.has(entry)) bad(`targets.webgpu.variants.${variant.name}.entry_points`, `"${entry}" is missing`);
    }
    if (wasm && !wasm.entryPoints.has(entry)) bad("targets.wasm.entry_points", `"${entry}" is missing`);
  }
  for (const id of [chat.ids, chat.logits, chat.samplingF, chat.samplingI]) {
    if (wasm && !wasm.addresses.has(id)) bad("targets.wasm.memory.buffers", `buffer ${id} is missing`);
  }
  return {
    task,
    name: text(m.name, "name"),
    model,
    files: {
      tokenizer: path(files.tokenizer, "files.tokenizer"),
      tokenizerConfig: path(files.tokenizer_config, "files.tokenizer_config"),
      chatTemplate: path(files.chat_template, "files.chat_template"),
    },
    weights,
    buffers,
    variables,
    slots,
    chat,
    webgpu,
    wasm,
  };
}

function parseWeights(w: Json): Manifest["weights"] {
  const shards = list(w.shards, "weights.shards", (value, where): Shard => {
    const shard = object(value, where);
    return {
      file: path(shard.file, `${where}.file`),
      bytes: integer(shard.bytes, `${where}.bytes`, 1, 2 ** 31 - 1),
      sha256: hash(shard.sha256, `${where}.sha256`),
    };
  }, 65536);
  const bytes = integer(w.bytes, "weights.bytes");
  const sum = shards.reduce((total, shard) => total + shard.bytes, 0);
  if (sum !== bytes) bad("weights.bytes", `is ${bytes}, but the shards add up to ${sum}`);
  return { bytes, sha256: hash(w.sha256, "weights.sha256"), shards };
}

function parseBuffer(b: Json, where: string, id: number, shards: Shard[]): BufferSpec {
  if (b.id !== id) bad(`${where}.id`, `must be ${id}, its index`);
  const bytes = integer(b.bytes, `${where}.bytes`, 0, 2 ** 36);
  const kind = text(b.kind, `${where}.kind`);
  const segments = list(b.segments ?? [], `${where}.segments`, (value, place): Segment => {
    const s = object(value, place);
    const shard = integer(s.shard, `${place}.shard`, 0, shards.length - 1);
    const size = integer(s.bytes, `${place}.bytes`, 0, bytes);
    const offset = integer(s.offset, `${place}.offset`, 0, (shards[shard] as Shard).bytes - size);
    const at = integer(s.at, `${place}.at`, 0, bytes - size);
    if (at % 4 !== 0) bad(`${place}.at`, "must be a multiple of 4");
    return { shard, offset, bytes: size, at };
  });
  if (kind === "weight") {
    let end = 0;
    for (const segment of [...segments].sort((a, c) => a.at - c.at)) {
      if (segment.at !== end) bad(`${where}.segments`, `leave a gap or overlap at byte ${end}`);
      end += segment.bytes;
    }
    if (end !== bytes) bad(`${where}.segments`, `cover ${end} of ${bytes} bytes`);
  } else if (segments.length > 0) {
    bad(`${where}.segments`, `only weights have segments, this is ${kind}`);
  }
  return {
    id,
    name: text(b.name, `${where}.name`),
    kind,
    dtype: text(b.dtype, `${where}.dtype`),
    shape: list(b.shape, `${where}.shape`, (value, place) => integer(value, place), 64),
    bytes,
    segments,
  };
}

function parseVariable(value: unknown, where: string): Variable {
  const v = object(value, where);
  const min = integer(v.min, `${where}.min`, -(2 ** 31), 2 ** 31 - 1);
  return { name: text(v.name, `${where}.name`), min, max: integer(v.max, `${where}.max`, min, 2 ** 31 - 1) };
}

function parseChat(c: Json, buffers: BufferSpec[], model: ModelFigures): ChatPlan {
  const state = (key: string, dtype: string, bytes: number): number => {
    const id = integer(c[key], `chat.${key}`, 0, buffers.length - 1);
    const buffer = buffers[id] as BufferSpec;
    if (buffer.kind === "weight" || buffer.dtype !== dtype || buffer.bytes < bytes) {
      bad(`chat.${key}`, `buffer ${id} must be ${dtype} state of at least ${bytes} bytes`);
    }
    return id;
  };
  const token = (value: unknown, where: string): number => integer(value, where, 0, model.vocabSize - 1);
  const prefill = list(c.prefill, "chat.prefill", (value, where) => {
    const p = object(value, where);
    return { entry: text(p.entry, `${where}.entry`), block: integer(p.block, `${where}.block`, 1, 65536) };
  }, 64);
  if (prefill.length === 0) bad("chat.prefill", "is empty");
  prefill.sort((a, b) => b.block - a.block);
  const d = object(c.defaults ?? {}, "chat.defaults");
  return {
    eos: list(c.eos, "chat.eos", token, 1024),
    bos: c.bos === undefined || c.bos === null ? undefined : token(c.bos, "chat.bos"),
    prefill,
    decode: text(c.decode, "chat.decode"),
    sample: text(c.sample, "chat.sample"),
    greedy: text(c.greedy, "chat.greedy"),
    ids: state("ids", "i32", 4 * (model.context + 1)),
    logits: state("logits", "f32", 4 * model.vocabSize),
    samplingF: state("sampling_f", "f32", 16),
    samplingI: state("sampling_i", "i32", 8),
    defaults: {
      temperature: number(d.temperature ?? 0.7, "chat.defaults.temperature", 0, 100),
      topP: number(d.top_p ?? 1, "chat.defaults.top_p", 0, 1),
      topK: integer(d.top_k ?? 0, "chat.defaults.top_k", 0, 2 ** 31 - 1),
      repetitionPenalty: number(d.repetition_penalty ?? 1, "chat.defaults.repetition_penalty", 0.01, 100),
      maxTokens: integer(d.max_tokens ?? 256, "chat.defaults.max_tokens", 1, 2 ** 31 - 1),
    },
  };
}

function parseNeed(value: unknown, where: string): MemoryNeed {
  const b = object(value, where);
  return {
    weights: integer(b.weights, `${where}.weights`),
    state: integer(b.state, `${where}.state`),
    temporaries: integer(b.temporaries, `${where}.temporaries`),
  };
}

function checkEntryVariables(value: unknown, where: string, slots: ReadonlyMap<string, number>): void {
  list(value, where, (name, place) => slots.has(text(name, place)) || bad(place, `unknown variable ${JSON.stringify(name)}`), 1024);
}

function parseWebGpu(t: Json, buffers: BufferSpec[], slots: ReadonlyMap<string, number>): WebGpuTarget {
  const where = "targets.webgpu";
  const temporaries = list(t.temporaries, `${where}.temporaries`, (value, place, index) => {
    const temporary = object(value, place);
    const id = integer(temporary.id, `${place}.id`);
    if (id !== buffers.length + index) bad(`${place}.id`, `must be ${buffers.length + index}: ids go on after buffers`);
    return { id, bytes: integer(temporary.bytes, `${place}.bytes`, 0, 2 ** 36) };
  });
  const bufferCount = buffers.length + temporaries.length;
  const variants = record(t.variants, `${where}.variants`, (value, place, name) =>
    parseWebGpuVariant(object(value, place), place, name, bufferCount, slots));
  if (variants.size === 0) bad(`${where}.variants`, "is empty");
  return {
    limits: record(t.limits, `${where}.limits`, (value, place) => integer(value, place)),
    bytes: parseNeed(t.bytes, `${where}.bytes`),
    temporaries,
    variants: [...variants.values()],
  };
}

function parseWebGpuVariant(
  v: Json, where: string, name: string, bufferCount: number, slots: ReadonlyMap<string, number>,
): WebGpuVariant {
  const kernels = list(v.kernels, `${where}.kernels`, (value, place): Kernel => {
    const k = object(value, place);
    return {
      name: text(k.name, `${place}.name`),
      entry: text(k.entry, `${place}.entry`),
      bindings: list(k.bindings, `${place}.bindings`, (type, at) => oneOf(type, at, ["storage", "read-only-storage"]), 1000),
      uniform: boolean(k.uniform, `${place}.uniform`),
    };
  });
  const dispatch = (value: unknown, place: string): Dispatch => {
    const d = object(value, place);
    const index = integer(d.kernel, `${place}.kernel`, 0, kernels.length - 1);
    const kernel = kernels[index] as Kernel;
    const ids = list(d.buffers, `${place}.buffers`, (id, at) => integer(id, at, 0, bufferCount - 1), 1000);
    if (ids.length !== kernel.bindings.length) bad(`${place}.buffers`, `${kernel.name} has ${kernel.bindings.length} bindings`);
    ids.forEach((id, i) => {
      // WebGPU forbids a written buffer under a second binding of the same dispatch.
      if (kernel.bindings[i] === "storage" && ids.indexOf(id) !== ids.lastIndexOf(id)) {
        bad(`${place}.buffers`, `buffer ${id} is written and bound twice`);
      }
    });
    const grid = list(d.grid, `${place}.grid`, (tree, at) => compileExpression(tree, slots, at), 3);
    if (grid.length !== 3) bad(`${place}.grid`, "needs three sizes");
    return { kernel: index, buffers: ids, grid };
  };
  return {
    name,
    features: list(v.features, `${where}.features`, text, 100),
    file: path(v.file, `${where}.file`),
    kernels,
    entryPoints: record(v.entry_points, `${where}.entry_points`, (value, place) => {
      const entry = object(value, place);
      checkEntryVariables(entry.variables, `${place}.variables`, slots);
      return list(entry.dispatches, `${place}.dispatches`, dispatch);
    }),
  };
}

function parseWasm(t: Json, buffers: BufferSpec[], variables: Variable[], slots: ReadonlyMap<string, number>): WasmTarget {
  const where = "targets.wasm";
  const memory = object(t.memory, `${where}.memory`);
  const pages = integer(memory.pages, `${where}.memory.pages`, 1, 65536);
  /** An address whose `bytes` lie inside the memory. */
  const address = (value: unknown, place: string, bytes: number, align: number): number => {
    const at = integer(value, place, 0, pages * PAGE - bytes);
    return at % align === 0 ? at : bad(place, `must be a multiple of ${align}`);
  };
  const addresses = new Map<number, number>();
  record(memory.buffers, `${where}.memory.buffers`, (value, place, key) => {
    const buffer = /^\d{1,9}$/.test(key) ? buffers[Number(key)] : undefined;
    if (!buffer) return bad(place, "is not a buffer's id");
    return addresses.set(buffer.id, address(value, place, buffer.bytes, 4));
  });
  for (const { id, kind } of buffers) {
    if (kind === "weight" && !addresses.has(id)) bad(`${where}.memory.buffers`, `buffer ${id} is missing`);
  }
  const s = object(memory.stacks, `${where}.memory.stacks`);
  const maxThreads = integer(s.max_threads, `${where}.memory.stacks.max_threads`, 1, 1024);
  const stackBytes = integer(s.bytes, `${where}.memory.stacks.bytes`, 16, 2 ** 30);
  const files = new Map<boolean, string>();
  record(t.variants, `${where}.variants`, (value, place) => {
    const variant = object(value, place);
    const threads = boolean(variant.threads, `${place}.threads`);
    if (files.has(threads)) bad(place, "a second variant of the same kind");
    return files.set(threads, path(variant.file, `${place}.file`));
  });
  if (files.size === 0) bad(`${where}.variants`, "is empty");
  return {
    bytes: parseNeed(t.bytes, `${where}.bytes`),
    pages,
    addresses,
    variables: address(memory.variables, `${where}.memory.variables`, 4 * variables.length, 4),
    control: address(memory.control, `${where}.memory.control`, CONTROL_BYTES, 4),
    stacks: {
      base: address(s.base, `${where}.memory.stacks.base`, stackBytes * maxThreads, 16),
      bytes: stackBytes % 16 === 0 ? stackBytes : bad(`${where}.memory.stacks.bytes`, "must be a multiple of 16"),
      maxThreads,
    },
    single: files.get(false),
    threaded: files.get(true),
    entryPoints: record(t.entry_points, `${where}.entry_points`, (value, place) => {
      const entry = object(value, place);
      checkEntryVariables(entry.variables, `${place}.variables`, slots);
      return { function: text(entry.function, `${place}.function`), kernels: integer(entry.kernels, `${place}.kernels`) };
    }),
  };
}
