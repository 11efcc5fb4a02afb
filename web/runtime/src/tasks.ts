/** What a bundle is for, as its manifest says: a chat, or functions. */

import type { Value } from "./check.js";
import { HOST_OPERATORS } from "./host-steps.js";
import { INT32_MAX, type BufferSpec, type Variable } from "./manifest.js";
import { parseSizes, type Sizes } from "./sizes.js";

/** What both have: the entry points that every target must offer, and the buffers the host reads and writes. */
interface Task {
  entries: string[];
  buffers: number[];
}

export interface Sampling {
  temperature: number;
  topP: number;
  topK: number;
  repetitionPenalty: number;
  maxTokens: number;
}

export interface Block {
  entry: string;
  /** Positions it reads at once. */
  block: number;
}

export interface ChatPlan extends Task {
  vocabSize: number;
  context: number;
  /** Positions `ids` has room for. */
  positions: number;
  /** Bytes of state, keys and values above all, that one position takes. */
  bytesPerToken: number;
  files: { tokenizer: string; tokenizerConfig: string; chatTemplate: string | undefined };
  /** Of a base model, which continues a text in place of answering messages: the ids that every text begins with. */
  begin: number[] | undefined;
  eos: number[];
  /** Largest block first; the last reads one token and is `decode`. */
  prefill: Block[];
  decode: string;
  sample: string;
  greedy: string;
  /** Whether a text can go on from any of its positions; a state goes on behind the last token it has read, or begins anew. */
  rewinds: boolean;
  /** Checks guesses; `tokens` is the buffer of what the model itself would have said. */
  verify: (Block & { tokens: number }) | undefined;
  /** Buffer ids. */
  ids: number;
  logits: number;
  samplingF: number;
  samplingI: number;
  defaults: Sampling;
}

/** An input or output of a function. */
export interface ArraySpec {
  name: string;
  buffer: number;
  dtype: string;
  /** Where sizes vary, the largest. */
  shape: number[];
  sizes: Sizes | undefined;
  /** What its numbers stand for, where it is text; of an input one more stands for any other text. */
  texts: readonly string[] | undefined;
}

export interface FunctionPlan {
  /** The entry point of its name. */
  entry: string;
  inputs: ArraySpec[];
  outputs: ArraySpec[];
  steps: HostStep[];
}

/** What the host finds in `inputs` behind the entry point before; `entry` goes on when the rows, `slot` of them, are in `output`. */
export interface HostStep {
  entry: string;
  operator: string;
  inputs: ArraySpec[];
  output: ArraySpec | undefined;
  slot: number;
  /** How many rows there may be. */
  most: number;
  numbers: Record<string, number>;
}

export interface FunctionsPlan extends Task {
  functions: ReadonlyMap<string, FunctionPlan>;
}

/** The typed array that holds each type's elements; halves are their bits. */
export const ARRAYS = {
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
} as const;

const MAX_BLOCK = 65536;

/** @param m the whole manifest */
export function parseChat(m: Value, buffers: BufferSpec[], variables: Variable[]): ChatPlan {
  const c = m.at("chat");
  const vocabSize = m
    .at("model")
    .at("vocab_size")
    .integer(1, 2 ** 24);
  const context = m
    .at("model")
    .at("context")
    .integer(2, 2 ** 24);
  const state = (v: Value, dtype: string, bytes: number): number => {
    const id = v.integer(0, buffers.length - 1);
    const buffer = buffers[id] as BufferSpec;
    if (buffer.kind === "weight" || buffer.dtype !== dtype || buffer.bytes < bytes) {
      v.fail(`buffer ${id} must be ${dtype} state of at least ${bytes} bytes`);
    }
    return id;
  };
  /** The kernels are made for values up to `max` only. */
  const reaches = (name: string, most: number): void => {
    if (!variables.some((v) => v.name === name && v.max >= most)) m.at("variables").fail(`"${name}" must be there and reach ${most}`);
  };
  reaches("start_pos", context - 1);
  const block = (v: Value): Block => ({ entry: v.at("entry").text(), block: v.at("block").integer(1, MAX_BLOCK) });
  const prefill = c
    .at("prefill")
    .list(block)
    .sort((a, b) => b.block - a.block);
  if (prefill[0]) reaches("count", prefill[0].block);
  const [decode, sample, greedy] = ["decode", "sample", "greedy"].map((key) => c.at(key).text()) as [string, string, string];
  const v = c.at("verify");
  const checked = v.present ? block(v) : undefined;
  const verify = checked && { ...checked, tokens: state(v.at("tokens"), "i32", 4 * checked.block) };
  const rewinds = c.at("rewinds");
  const ids = state(c.at("ids"), "i32", 4 * (context + 1));
  const positions = (buffers[ids] as BufferSpec).bytes / 4;
  const logits = state(c.at("logits"), "f32", 4 * vocabSize);
  const samplingF = state(c.at("sampling_f"), "f32", 16);
  const samplingI = state(c.at("sampling_i"), "i32", 8);
  const d = c.at("defaults");
  const file = (key: string): string => m.at("files").at(key).path();
  const completion = c.at("completion");
  const begin = completion.present ? completion.at("begin").list((token) => token.integer(0, vocabSize - 1)) : undefined;
  return {
    entries: [...prefill.map((p) => p.entry), decode, sample, greedy, ...(verify ? [verify.entry] : [])],
    buffers: [ids, logits, samplingF, samplingI, ...(verify ? [verify.tokens] : [])],
    vocabSize,
    context,
    positions,
    bytesPerToken: buffers.reduce((sum, b) => sum + (b.kind !== "weight" && b.shape.includes(positions) ? b.bytes / positions : 0), 0),
    files: {
      tokenizer: file("tokenizer"),
      tokenizerConfig: file("tokenizer_config"),
      chatTemplate: begin === undefined ? file("chat_template") : undefined,
    },
    begin,
    eos: c.at("eos").list((token) => token.integer(0, vocabSize - 1)),
    prefill: [...prefill, { entry: decode, block: 1 }],
    decode,
    sample,
    greedy,
    rewinds: rewinds.present ? rewinds.boolean() : true,
    verify,
    ids,
    logits,
    samplingF,
    samplingI,
    defaults: {
      temperature: d.at("temperature").number(0, 100),
      topP: d.at("top_p").number(0, 1),
      topK: d.at("top_k").integer(0, INT32_MAX),
      repetitionPenalty: d.at("repetition_penalty").number(0.01, 100),
      maxTokens: d.at("max_tokens").integer(1, INT32_MAX),
    },
  };
}

export function parseFunctions(f: Value, buffers: BufferSpec[], variables: Variable[]): FunctionsPlan {
  const functions = f.map((plan, entry) => parseFunction(plan, entry, buffers, variables));
  if (functions.size === 0) f.fail("is empty");
  const plans = [...functions.values()];
  const steps = plans.flatMap((plan) => plan.steps);
  const used = [...plans, ...steps.map((step) => ({ ...step, outputs: step.output ? [step.output] : [] }))].flatMap((p) => [
    ...p.inputs,
    ...p.outputs,
  ]);
  return { functions, entries: [...functions.keys(), ...steps.map(({ entry }) => entry)], buffers: used.map(({ buffer }) => buffer) };
}

function parseFunction(f: Value, entry: string, buffers: BufferSpec[], variables: Variable[]): FunctionPlan {
  const slots = new Map(variables.map(({ name }, slot) => [name, slot]));
  const arrays = (list: Value): ArraySpec[] => {
    const taken = new Set<string | number>();
    return list.list((a) => array(a, taken));
  };
  const array = (a: Value, taken = new Set<string | number>()): ArraySpec => {
    const name = a.at("name").text();
    const buffer = a.at("buffer").integer(0, buffers.length - 1);
    const dtype = a.at("dtype").oneOf(...(Object.keys(ARRAYS) as (keyof typeof ARRAYS)[]));
    const shape = a.at("shape").list((size) => size.integer(0, INT32_MAX));
    const spec = buffers[buffer] as BufferSpec;
    const bytes = shape.reduce((n, size) => n * size, ARRAYS[dtype].BYTES_PER_ELEMENT);
    if (spec.kind === "weight" || spec.dtype !== dtype || !(spec.bytes >= bytes)) {
      a.at("buffer").fail(`buffer ${buffer} must be ${dtype} state of at least ${bytes} bytes`);
    }
    for (const key of [name, buffer]) if (taken.size === taken.add(key).size) a.fail(`"${key}" appears twice`);
    const listed = a.at("texts");
    const texts = listed.present ? listed.list((v) => v.raw(String)) : undefined;
    return { name, buffer, dtype, shape, sizes: parseSizes(a.at("sizes"), shape, slots), texts };
  };
  const step = (v: Value): HostStep => {
    const number = (key: string): [string, number][] => (v.at(key).present ? [[key, v.at(key).number(-3e38, 3e38)]] : []);
    const output = v.at("output").present ? array(v.at("output")) : undefined;
    if (output && (output.dtype !== "i32" || output.shape.length !== 2)) v.at("output").fail("must be rows of i32");
    const slot = slots.get(v.at("variable").oneOf(...slots.keys())) as number;
    return {
      entry: v.at("entry").text(),
      operator: v.at("operator").oneOf(...HOST_OPERATORS),
      inputs: arrays(v.at("inputs")),
      output,
      slot,
      most: Math.min((variables[slot] as Variable).max, output?.shape[0] ?? INT32_MAX),
      numbers: Object.fromEntries(["most", "overlap", "least", "centres"].flatMap(number)),
    };
  };
  const steps = f.at("host_steps");
  return { entry, inputs: arrays(f.at("inputs")), outputs: arrays(f.at("outputs")), steps: steps.present ? steps.list(step) : [] };
}
