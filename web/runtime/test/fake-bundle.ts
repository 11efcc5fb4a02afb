/**
 * A bundle made by hand, with a "language model" that a few lines can predict. It follows docs/bundle.md on both targets:
 * weights in odd segments over three shards, a KV cache that every later token depends on, sampling with a seed.
 *
 *   kv[p] = weight[ids[p]];  best(p) = (sum over q <= p of (q + 1) * kv[q]  +  bias[ids[p]]) mod VOCAB
 *   logits[best] = 10, the others are negative;  greedy takes best;  sample adds what its settings and the seed give
 */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

export const VOCAB = 261;
export const CONTEXT = 64;
export const BLOCK = 8;
export const EOS = 257;
const SPECIAL = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]; // ids 256 …
const CACHE = CONTEXT + BLOCK;

export const WASM_MEMORY = {
  pages: 4,
  buffers: { "0": 65536, "1": 67072, "2": 67584, "3": 68096, "4": 68608, "5": 70144, "6": 70400, "7": 70464 },
  variables: 1024,
  control: 2048,
  stacks: { base: 4096, bytes: 4096, max_threads: 4 },
};

const weight = Float32Array.from({ length: VOCAB }, (_, v) => (v * 37) % 101);
const bias = Uint8Array.from({ length: VOCAB }, (_, v) => (v * 73 + 11) % 251);

export function best(ids: readonly number[], end = ids.length): number {
  let sum = 0;
  for (let q = 0; q < end; q++) sum += (q + 1) * (weight[ids[q] as number] as number);
  return (sum + (bias[ids[end - 1] as number] as number)) % VOCAB;
}

export interface Choice {
  temperature: number;
  topP: number;
  topK: number;
  repetitionPenalty: number;
  seed: number;
}

/** What the model must say after `prompt`; greedy without a `choice`. */
export function expected(prompt: readonly number[], tokens: number, choice?: Choice): number[] {
  const ids = [...prompt];
  while (ids.length < prompt.length + tokens && ids.length <= CONTEXT) {
    let next = best(ids);
    if (choice) {
      const position = ids.length - 1;
      const noise = (Math.imul(choice.seed, 2654435761 | 0) + Math.imul(position, 40503)) >>> 8;
      const scaled = [choice.temperature, choice.topP, choice.repetitionPenalty].reduce(
        (sum, x) => sum + Math.trunc(Math.fround(x) * 10),
        0,
      );
      next = (next + (noise % (choice.topK || VOCAB)) + scaled) % VOCAB;
    }
    ids.push(next);
    if (next === EOS) break;
  }
  return ids.slice(prompt.length);
}

export function expectedLogits(ids: readonly number[]): Float32Array {
  const top = best(ids);
  return Float32Array.from({ length: VOCAB }, (_, v) => (v === top ? 10 : -((v * 31 + top * 17) % 97) / 97));
}

const WGSL = `A file of kernels; this line belongs to none.
//# kernel keys
struct Variables { v: array<vec4<i32>, 1> }
@group(0) @binding(0) var<storage, read_write> kv: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<i32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<uniform> variables: Variables;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let i = i32(at.x);
  if (i < variables.v[0][1]) { let p = variables.v[0][0] + i; kv[p] = weight[ids[p]]; }
}
//# kernel best_of_block
struct Variables { v: array<vec4<i32>, 1> }
@group(0) @binding(0) var<storage, read_write> best: array<i32>;
@group(0) @binding(1) var<storage, read> kv: array<f32>;
@group(0) @binding(2) var<storage, read> ids: array<i32>;
@group(0) @binding(3) var<storage, read> bias: array<u32>;
@group(0) @binding(4) var<uniform> variables: Variables;
@compute @workgroup_size(1) fn main() {
  let last = variables.v[0][0] + variables.v[0][1] - 1;
  var sum = 0.0;
  for (var q = 0; q <= last; q++) { sum += f32(q + 1) * kv[q]; }
  let id = u32(ids[last]);
  best[0] = (i32(sum) + i32((bias[id / 4] >> (8 * (id % 4))) & 255u)) % ${VOCAB};
}
//# kernel decode_key
struct Variables { v: array<vec4<i32>, 1> }
@group(0) @binding(0) var<storage, read_write> kv: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<i32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<uniform> variables: Variables;
@compute @workgroup_size(1) fn main() { let p = variables.v[0][0]; kv[p] = weight[ids[p]]; }
//# kernel best_of_one
struct Variables { v: array<vec4<i32>, 1> }
@group(0) @binding(0) var<storage, read_write> best: array<i32>;
@group(0) @binding(1) var<storage, read> kv: array<f32>;
@group(0) @binding(2) var<storage, read> ids: array<i32>;
@group(0) @binding(3) var<storage, read> bias: array<u32>;
@group(0) @binding(4) var<uniform> variables: Variables;
@compute @workgroup_size(1) fn main() {
  let last = variables.v[0][0];
  var sum = 0.0;
  for (var q = 0; q <= last; q++) { sum += f32(q + 1) * kv[q]; }
  let id = u32(ids[last]);
  best[0] = (i32(sum) + i32((bias[id / 4] >> (8 * (id % 4))) & 255u)) % ${VOCAB};
}
//# kernel said
struct Variables { v: array<vec4<i32>, 1> }
@group(0) @binding(0) var<storage, read_write> said: array<i32>;
@group(0) @binding(1) var<storage, read> kv: array<f32>;
@group(0) @binding(2) var<storage, read> ids: array<i32>;
@group(0) @binding(3) var<storage, read> bias: array<u32>;
@group(0) @binding(4) var<uniform> variables: Variables;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let last = variables.v[0][0] + i32(at.x);
  var total = 0.0;
  for (var q = 0; q <= last; q++) { total += f32(q + 1) * kv[q]; }
  let id = u32(ids[last]);
  said[at.x] = (i32(total) + i32((bias[id / 4] >> (8 * (id % 4))) & 255u)) % ${VOCAB};
}
//# kernel logits
@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<storage, read> best: array<i32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let v = i32(at.x);
  if (v < ${VOCAB}) { logits[v] = select(-f32((v * 31 + best[0] * 17) % 97) / 97.0, 10.0, v == best[0]); }
}
//# kernel never
@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@compute @workgroup_size(1) fn main() { logits[0] = 1000.0; }
//# kernel greedy
struct Variables { v: array<vec4<i32>, 1> }
@group(0) @binding(0) var<storage, read_write> ids: array<i32>;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<uniform> variables: Variables;
@compute @workgroup_size(1) fn main() {
  var top = 0;
  for (var v = 1; v < ${VOCAB}; v++) { if (logits[v] > logits[top]) { top = v; } }
  ids[variables.v[0][0] + 1] = top;
}
//# kernel sample
struct Variables { v: array<vec4<i32>, 1> }
@group(0) @binding(0) var<storage, read_write> ids: array<i32>;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read> floats: array<f32>;
@group(0) @binding(3) var<storage, read> ints: array<i32>;
@group(0) @binding(4) var<uniform> variables: Variables;
@compute @workgroup_size(1) fn main() {
  var top = 0;
  for (var v = 1; v < ${VOCAB}; v++) { if (logits[v] > logits[top]) { top = v; } }
  let p = variables.v[0][0];
  let k = select(${VOCAB}u, u32(ints[0]), ints[0] > 0);
  let noise = (u32(ints[1]) * 2654435761u + u32(p) * 40503u) >> 8;
  let scaled = i32(floats[0] * 10.0) + i32(floats[1] * 10.0) + i32(floats[2] * 10.0);
  ids[p + 1] = (top + i32(noise % k) + scaled) % ${VOCAB};
}
`;

/** Byte-level vocabulary without merges: a byte's id is its value. */
function tokenizerJson(): unknown {
  const vocab: Record<string, number> = {};
  let moved = 0;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    vocab[String.fromCharCode(printable ? byte : 256 + moved++)] = byte;
  }
  SPECIAL.forEach((token, i) => (vocab[token] = 256 + i));
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  return {
    version: "1.0",
    added_tokens: SPECIAL.map((content, i) => ({ id: 256 + i, content, ...flags })),
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: "BPE", dropout: null, unk_token: null, fuse_unk: false, byte_fallback: false, vocab, merges: [] },
  };
}

const TEMPLATE =
  "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

export const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

type Json = any;

/** A built module of test/fixtures. */
export const fixture = (file: string): Uint8Array => new Uint8Array(readFileSync(new URL(`fixtures/${file}`, import.meta.url)));

export interface FakeBundle {
  files: Map<string, Uint8Array>;
  manifest: Json;
}

/** The bundle's files by path. @param change alters the manifest before it is written */
export function fakeBundle(change: (manifest: Json) => void = () => undefined, name = "fake"): FakeBundle {
  const w = new Uint8Array(weight.buffer);
  // The weight lies in shards 0 and 1, the bias (an odd number of bytes) in shards 1 and 2.
  const shards = [w.slice(0, 600), new Uint8Array([...w.slice(600), ...bias.slice(0, 100)]), bias.slice(100)];
  const state = (id: number, label: string, dtype: string, shape: number[]): Json => ({
    id,
    name: label,
    kind: "state",
    dtype,
    shape,
    bytes: 4 * shape.reduce((a, b) => a * b, 1),
  });
  const start = { var: "start_pos" };
  const blocks = { op: "floordiv", args: [{ op: "add", args: [{ var: "count" }, 3] }, 4] };
  const logits = { kernel: 4, buffers: [4, 8], grid: [Math.ceil(VOCAB / 64), 1, 1] };
  const never = { kernel: 5, buffers: [4], grid: [{ op: "min", args: [start, 0] }, 1, 1] };
  const manifest: Json = {
    format: "tinyweb-bundle",
    version: 2,
    task: "chat",
    name,
    model: { architecture: "fake", parameters: 2 * VOCAB, layers: 1, vocab_size: VOCAB, context: CONTEXT, quant: "f32" },
    files: { tokenizer: "tokenizer.json", tokenizer_config: "tokenizer_config.json", chat_template: "chat_template.jinja" },
    weights: {
      bytes: shards.reduce((sum, shard) => sum + shard.length, 0),
      sha256: sha256(Buffer.concat([Buffer.from(name), ...shards])),
      shards: shards.map((shard, i) => ({ file: `weights/00${i}.bin`, bytes: shard.length, sha256: sha256(shard) })),
    },
    buffers: [
      {
        id: 0,
        name: "weight",
        kind: "weight",
        dtype: "f32",
        shape: [VOCAB],
        bytes: w.length,
        segments: [
          { shard: 0, offset: 0, bytes: 600, at: 0 },
          { shard: 1, offset: 0, bytes: w.length - 600, at: 600 },
        ],
      },
      {
        id: 1,
        name: "bias",
        kind: "weight",
        dtype: "u8",
        shape: [VOCAB],
        bytes: VOCAB,
        segments: [
          { shard: 1, offset: w.length - 600, bytes: 100, at: 0 },
          { shard: 2, offset: 0, bytes: VOCAB - 100, at: 100 },
        ],
      },
      state(2, "ids", "i32", [CACHE]),
      state(3, "kv", "f32", [CACHE]),
      state(4, "logits", "f32", [1, VOCAB]),
      state(5, "sampling_f", "f32", [4]),
      state(6, "sampling_i", "i32", [2]),
      state(7, "said", "i32", [4]),
    ],
    variables: [
      { name: "start_pos", min: 0, max: CONTEXT - 1 },
      { name: "count", min: 1, max: BLOCK },
    ],
    chat: {
      eos: [EOS],
      bos: 256,
      prefill: [
        { entry: "prefill_8", block: BLOCK },
        { entry: "prefill_2", block: 2 },
      ],
      decode: "decode",
      sample: "sample",
      greedy: "greedy",
      verify: { entry: "verify", block: 4, tokens: 7 },
      ids: 2,
      logits: 4,
      sampling_f: 5,
      sampling_i: 6,
      defaults: { temperature: 0, top_p: 1, top_k: 0, repetition_penalty: 1, max_tokens: 20 },
    },
    targets: {
      webgpu: {
        limits: { maxStorageBuffersPerShaderStage: 8, maxComputeInvocationsPerWorkgroup: 64, maxBufferSize: 4096 },
        bytes: { weights: 1308, state: 1700, temporaries: 4 },
        temporaries: [{ id: 8, bytes: 4 }],
        variants: {
          base: {
            features: [],
            file: "kernels/webgpu.wgsl",
            kernels: [
              { name: "keys", entry: "main", bindings: ["storage", "read-only-storage", "read-only-storage"], uniform: true },
              {
                name: "best_of_block",
                entry: "main",
                bindings: ["storage", "read-only-storage", "read-only-storage", "read-only-storage"],
                uniform: true,
              },
              { name: "decode_key", entry: "main", bindings: ["storage", "read-only-storage", "read-only-storage"], uniform: true },
              {
                name: "best_of_one",
                entry: "main",
                bindings: ["storage", "read-only-storage", "read-only-storage", "read-only-storage"],
                uniform: true,
              },
              { name: "logits", entry: "main", bindings: ["storage", "read-only-storage"], uniform: false },
              { name: "never", entry: "main", bindings: ["storage"], uniform: false },
              { name: "greedy", entry: "main", bindings: ["storage", "read-only-storage"], uniform: true },
              {
                name: "sample",
                entry: "main",
                bindings: ["storage", "read-only-storage", "read-only-storage", "read-only-storage"],
                uniform: true,
              },
              {
                name: "said",
                entry: "main",
                bindings: ["storage", "read-only-storage", "read-only-storage", "read-only-storage"],
                uniform: true,
              },
            ],
            entry_points: {
              ...Object.fromEntries(
                ["prefill_8", "prefill_2"].map((entry) => [
                  entry,
                  {
                    variables: ["start_pos", "count"],
                    dispatches: [
                      { kernel: 0, buffers: [3, 2, 0], grid: [blocks, 1, 1] },
                      { kernel: 1, buffers: [8, 3, 2, 1], grid: [1, 1, 1] },
                      logits,
                      never,
                    ],
                  },
                ]),
              ),
              decode: {
                variables: ["start_pos"],
                dispatches: [
                  { kernel: 2, buffers: [3, 2, 0], grid: [1, 1, 1] },
                  { kernel: 3, buffers: [8, 3, 2, 1], grid: [1, 1, 1] },
                  logits,
                ],
              },
              verify: {
                variables: ["start_pos", "count"],
                dispatches: [
                  { kernel: 0, buffers: [3, 2, 0], grid: [blocks, 1, 1] },
                  { kernel: 8, buffers: [7, 3, 2, 1], grid: [1, 1, 1] },
                ],
              },
              greedy: { variables: ["start_pos"], dispatches: [{ kernel: 6, buffers: [2, 4], grid: [1, 1, 1] }] },
              sample: { variables: ["start_pos"], dispatches: [{ kernel: 7, buffers: [2, 4, 5, 6], grid: [1, 1, 1] }] },
            },
          },
        },
      },
      wasm: {
        bytes: { weights: 1308, state: 1700, temporaries: 0 },
        memory: structuredClone(WASM_MEMORY), // tests alter what they are given
        variants: {
          simd: { file: "kernels/simd.wasm", threads: false },
          "simd-threads": { file: "kernels/simd-threads.wasm", threads: true },
        },
        entry_points: {
          prefill_8: { function: "prefill", variables: ["start_pos", "count"], kernels: 3 },
          prefill_2: { function: "prefill", variables: ["start_pos", "count"], kernels: 3 },
          decode: { function: "decode", variables: ["start_pos"], kernels: 3 },
          greedy: { function: "greedy", variables: ["start_pos"], kernels: 1 },
          sample: { function: "sample", variables: ["start_pos"], kernels: 1 },
          verify: { function: "verify", variables: ["start_pos"], kernels: 2 },
        },
      },
    },
  };
  const text = (content: unknown): Uint8Array => new TextEncoder().encode(typeof content === "string" ? content : JSON.stringify(content));
  const files = new Map<string, Uint8Array>([
    ["tokenizer.json", text(tokenizerJson())],
    ["tokenizer_config.json", text({ bos_token: { content: "<|begin|>" }, eos_token: "<|end|>" })],
    ["chat_template.jinja", text(TEMPLATE)],
    ["kernels/webgpu.wgsl", text(WGSL)],
    ["kernels/simd.wasm", fixture("fake-model.wasm")],
    ["kernels/simd-threads.wasm", fixture("fake-model-threads.wasm")],
    ...shards.map((shard, i): [string, Uint8Array] => [`weights/00${i}.bin`, shard]),
  ]);
  return finish(files, manifest, change);
}

/** What each file must be, as a manifest says it. */
export const integrity = (files: ReadonlyMap<string, Uint8Array>): Json =>
  Object.fromEntries([...files].map(([name, bytes]) => [name, { bytes: bytes.length, sha256: sha256(bytes) }]));

/** The bundle of these files; its manifest is altered before it is written. */
export function finish(files: Map<string, Uint8Array>, manifest: Json, change: (manifest: Json) => void): FakeBundle {
  manifest.integrity = integrity(new Map([...files].filter(([name]) => !name.startsWith("weights/"))));
  change(manifest);
  return { files: files.set("manifest.json", new TextEncoder().encode(JSON.stringify(manifest))), manifest };
}

/** A bundle that was exported with another content of a file. */
export const exportedWith = ({ files, manifest }: FakeBundle, name: string, content: Uint8Array): FakeBundle =>
  finish(new Map([...files].filter(([file]) => file !== "manifest.json")).set(name, content), manifest, () => undefined);

/** Prompt ids as the bundle's template and tokenizer spell a conversation. */
export function promptIds(messages: readonly { role: string; content: string }[]): number[] {
  const role = (name: string): number => 256 + SPECIAL.indexOf(`<|${name}|>`);
  return [256, ...messages.flatMap((m) => [role(m.role), ...new TextEncoder().encode(m.content), EOS]), role("assistant")];
}
