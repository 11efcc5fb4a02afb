/**
 * The manifest of a bundle (docs/bundle.md), as far as this library uses it: its types, and the check that turns untrusted
 * JSON into them. After `parseManifest` every id, size and range holds, so the engines index without asking again.
 */

import { parseIntegrity, type FileRow, type Integrity } from "./bundle.js";
import { Value } from "./check.js";
import { compileExpression, type Evaluate } from "./expression.js";
import { parseChat, parseFunctions, type ChatPlan, type FunctionsPlan } from "./tasks.js";

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

export interface Shard extends FileRow {
  file: string;
}

export interface Variable {
  name: string;
  min: number;
  max: number;
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
  /** Files with kernels that other variants have as well. */
  shared: string[];
  kernels: Kernel[];
  entryPoints: Map<string, Dispatch[]>;
}

export interface WebGpuTarget {
  limits: Map<string, number>;
  /** Bytes on the device: weights, state and temporaries. */
  bytes: number;
  temporaries: { id: number; bytes: number }[];
  variants: WebGpuVariant[];
}

export interface WasmVariant {
  name: string;
  features: string[];
  file: string;
  threads: boolean;
}

export interface WasmTarget {
  /** Fixed size of the memory in pages of 64 KiB. */
  pages: number;
  /** Byte address of each buffer by id. */
  addresses: Map<number, number>;
  variables: number;
  control: number;
  stacks: { base: number; bytes: number; maxThreads: number };
  variants: WasmVariant[];
  entryPoints: Map<string, { function: string; kernels: number }>;
}

export interface Manifest {
  name: string;
  /** What each file but the shards must be. */
  integrity: Integrity;
  weights: { bytes: number; sha256: string; shards: Shard[] };
  buffers: BufferSpec[];
  variables: Variable[];
  /** Slot of each variable by name. */
  slots: ReadonlyMap<string, number>;
  /** One of the two is there. */
  chat: ChatPlan | undefined;
  function: FunctionsPlan | undefined;
  /** What else the manifest says, for those who wrote it. */
  sections: Record<string, unknown>;
  webgpu: WebGpuTarget | undefined;
  wasm: WasmTarget | undefined;
}

const PAGE = 65536;
export const CONTROL_BYTES = 128;
export const INT32_MAX = 2 ** 31 - 1;
const MAX_BUFFER = 2 ** 36;

/** Top-level keys that this library reads. */
const OWN = new Set([
  "format",
  "version",
  "task",
  "name",
  "model",
  "files",
  "integrity",
  "weights",
  "buffers",
  "variables",
  "chat",
  "functions",
  "targets",
]);

type Slots = ReadonlyMap<string, number>;

/** @throws TinywebError "bad-manifest" naming the field that is wrong. */
export function parseManifest(json: unknown): Manifest {
  const m = new Value(json);
  const integrity = parseIntegrity(m);
  const task = m.at("task").text();
  if (task !== "chat" && !m.at("functions").present) m.at("task").fail(`"${task}" has no functions: load it with tinyweb/load`);
  const weights = parseWeights(m.at("weights"));
  const buffers = m.at("buffers").list((buffer, id) => parseBuffer(buffer, id, weights.shards));
  const variables = m.at("variables").list((v): Variable => {
    const min = v.at("min").integer(-INT32_MAX, INT32_MAX);
    return { name: v.at("name").text(), min, max: v.at("max").integer(min, INT32_MAX) };
  });
  const slots = new Map(variables.map(({ name }, slot) => [name, slot]));
  if (slots.size !== variables.length) m.at("variables").fail("a name appears twice");
  const chat = task === "chat" ? parseChat(m, buffers, variables) : undefined;
  const functions = chat ? undefined : parseFunctions(m.at("functions"), buffers, variables);
  const used = (chat ?? functions) as ChatPlan | FunctionsPlan;
  const targets = m.at("targets");
  const [gpu, cpu] = [targets.at("webgpu"), targets.at("wasm")];
  const webgpu = gpu.present ? parseWebGpu(gpu, buffers, slots) : undefined;
  const wasm = cpu.present ? parseWasm(cpu, buffers, variables) : undefined;
  if (!webgpu && !wasm) targets.fail("neither webgpu nor wasm is there");
  for (const entry of used.entries) {
    for (const { entryPoints } of [...(webgpu?.variants ?? []), ...(wasm ? [wasm] : [])]) {
      if (!entryPoints.has(entry)) targets.fail(`entry point "${entry}" is missing`);
    }
  }
  for (const { id, kind } of buffers) {
    const needed = kind === "weight" || used.buffers.includes(id);
    if (needed && wasm && !wasm.addresses.has(id)) cpu.at("memory").at("buffers").fail(`buffer ${id} is missing`);
  }
  const sections = Object.fromEntries(Object.entries(json as Record<string, unknown>).filter(([key]) => !OWN.has(key)));
  return { name: m.at("name").text(), integrity, weights, buffers, variables, slots, chat, function: functions, sections, webgpu, wasm };
}

function parseWeights(w: Value): Manifest["weights"] {
  const shards = w.at("shards").list(
    (shard): Shard => ({
      file: shard.at("file").path(),
      bytes: shard.at("bytes").integer(1, INT32_MAX),
      sha256: shard.at("sha256").hash(),
    }),
  );
  const bytes = w.at("bytes").integer();
  const sum = shards.reduce((total, shard) => total + shard.bytes, 0);
  if (sum !== bytes) w.at("bytes").fail(`is ${bytes}, but the shards add up to ${sum}`);
  return { bytes, sha256: w.at("sha256").hash(), shards };
}

function parseBuffer(b: Value, id: number, shards: Shard[]): BufferSpec {
  b.at("id").integer(id, id);
  const bytes = b.at("bytes").integer(0, MAX_BUFFER);
  const kind = b.at("kind").text();
  const list = b.at("segments");
  const segments = !list.present
    ? []
    : list.list((s): Segment => {
        const shard = s.at("shard").integer(0, shards.length - 1);
        const size = s.at("bytes").integer(0, bytes);
        const at = s.at("at").integer(0, bytes - size, 4);
        return { shard, offset: s.at("offset").integer(0, (shards[shard] as Shard).bytes - size), bytes: size, at };
      });
  if (kind === "weight") {
    let end = 0;
    for (const segment of [...segments].sort((a, c) => a.at - c.at)) {
      if (segment.at !== end) list.fail(`leave a gap or overlap at byte ${end}`);
      end += segment.bytes;
    }
    if (end !== bytes) list.fail(`cover ${end} of ${bytes} bytes`);
  } else if (segments.length > 0) {
    list.fail(`only weights have segments, this is ${kind}`);
  }
  return {
    id,
    name: b.at("name").text(),
    kind,
    dtype: b.at("dtype").text(),
    shape: b.at("shape").list((size) => size.integer()),
    bytes,
    segments,
  };
}

function parseWebGpu(t: Value, buffers: BufferSpec[], slots: Slots): WebGpuTarget {
  const temporaries = t.at("temporaries").list((temporary, index) => {
    const id = buffers.length + index; // ids go on after the buffers
    return { id: temporary.at("id").integer(id, id), bytes: temporary.at("bytes").integer(0, MAX_BUFFER) };
  });
  const count = buffers.length + temporaries.length;
  const variants = [
    ...t
      .at("variants")
      .map((variant, name) => parseWebGpuVariant(variant, name, count, slots))
      .values(),
  ];
  if (variants.length === 0) t.at("variants").fail("is empty");
  const bytes = ["weights", "state", "temporaries"].reduce((sum, kind) => sum + t.at("bytes").at(kind).integer(), 0);
  return { limits: t.at("limits").map((limit) => limit.integer()), bytes, temporaries, variants };
}

function parseWebGpuVariant(v: Value, name: string, bufferCount: number, slots: Slots): WebGpuVariant {
  const kernels = v.at("kernels").list(
    (k): Kernel => ({
      name: k.at("name").text(),
      entry: k.at("entry").text(),
      bindings: k.at("bindings").list((type) => type.oneOf("storage", "read-only-storage")),
      uniform: k.at("uniform").boolean(),
    }),
  );
  const dispatch = (d: Value): Dispatch => {
    const kernel = d.at("kernel").integer(0, kernels.length - 1);
    const { bindings } = kernels[kernel] as Kernel;
    const ids = d.at("buffers");
    const buffers = ids.list((id) => id.integer(0, bufferCount - 1));
    if (buffers.length !== bindings.length) ids.fail(`the kernel has ${bindings.length} bindings`);
    buffers.forEach((id, i) => {
      // WebGPU forbids a written buffer under a second binding of the same dispatch.
      if (bindings[i] === "storage" && buffers.indexOf(id) !== buffers.lastIndexOf(id)) ids.fail(`${id} is written and bound twice`);
    });
    const grid = d.at("grid").list((size) => size.raw((tree, fail) => compileExpression(tree, slots, fail)));
    if (grid.length !== 3) d.at("grid").fail("needs three sizes");
    return { kernel, buffers, grid };
  };
  const entryPoints = v.at("entry_points").map((entry) => entry.at("dispatches").list(dispatch));
  const shared = v.at("shared");
  return {
    name,
    features: v.at("features").list((feature) => feature.text()),
    file: v.at("file").path(),
    shared: shared.present ? shared.list((file) => file.path()) : [],
    kernels,
    entryPoints,
  };
}

function parseWasm(t: Value, buffers: BufferSpec[], variables: Variable[]): WasmTarget {
  const memory = t.at("memory");
  const pages = memory.at("pages").integer(1, 65536);
  /** An address whose `bytes` lie inside the memory. */
  const address = (value: Value, bytes: number, align = 4): number => value.integer(0, pages * PAGE - bytes, align);
  const addresses = new Map<number, number>();
  memory.at("buffers").map((value, key) => {
    const buffer = buffers[Number(key)] ?? value.fail("is not a buffer's id");
    return addresses.set(buffer.id, address(value, buffer.bytes));
  });
  const stacks = memory.at("stacks");
  const maxThreads = stacks.at("max_threads").integer(1, 1024);
  const stackBytes = stacks.at("bytes").integer(16, 2 ** 30, 16);
  const variants = t.at("variants").map((variant, name): WasmVariant => {
    const features = variant.at("features");
    return {
      name,
      features: features.present ? features.list((feature) => feature.text()) : [],
      file: variant.at("file").path(),
      threads: variant.at("threads").boolean(),
    };
  });
  return {
    pages,
    addresses,
    variables: address(memory.at("variables"), 4 * variables.length),
    control: address(memory.at("control"), CONTROL_BYTES),
    stacks: { base: address(stacks.at("base"), stackBytes * maxThreads, 16), bytes: stackBytes, maxThreads },
    variants: [...variants.values()],
    entryPoints: t.at("entry_points").map((entry) => ({
      function: entry.at("function").text(),
      kernels: entry.at("kernels").integer(),
    })),
  };
}
