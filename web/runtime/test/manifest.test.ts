import { describe, expect, it } from "vitest";
import { parseManifest } from "../src/manifest.js";
import { CONTEXT, EOS, fakeBundle, VOCAB } from "./fake-bundle.js";
import { fakeFunction } from "./fake-function.js";

type Change = NonNullable<Parameters<typeof fakeBundle>[0]>;

const parse = (change?: Change): ReturnType<typeof parseManifest> => parseManifest(JSON.parse(JSON.stringify(fakeBundle(change).manifest)));

describe("manifest", () => {
  it("reads a good one", () => {
    const manifest = parse();
    expect(manifest.chat?.prefill.map(({ block }) => block)).toEqual([8, 2, 1]);
    expect(manifest.wasm?.addresses.get(4)).toBe(68608);
    expect(manifest.webgpu?.variants[0]?.entryPoints.get("decode")).toHaveLength(3);
    expect(manifest.slots.get("count")).toBe(1);
  });

  it("reads all of a chat", () => {
    const { manifest: written } = fakeBundle();
    const { name, weights, buffers, variables, slots, chat, function: functions, sections } = parse();
    expect({ name, weights, variables, functions, sections }).toEqual({
      name: "fake",
      weights: written.weights,
      variables: written.variables,
      functions: undefined,
      sections: {},
    });
    expect([...slots]).toEqual([
      ["start_pos", 0],
      ["count", 1],
    ]);
    expect(buffers).toEqual(written.buffers.map((buffer: object) => ({ segments: [], ...buffer })));
    expect(chat).toEqual({
      vocabSize: VOCAB,
      context: CONTEXT,
      positions: CONTEXT + 8,
      bytesPerToken: 8,
      eos: [EOS],
      files: { tokenizer: "tokenizer.json", tokenizerConfig: "tokenizer_config.json", chatTemplate: "chat_template.jinja" },
      prefill: [
        { entry: "prefill_8", block: 8 },
        { entry: "prefill_2", block: 2 },
        { entry: "decode", block: 1 },
      ],
      decode: "decode",
      sample: "sample",
      greedy: "greedy",
      rewinds: true,
      verify: { entry: "verify", block: 4, tokens: 7 },
      ids: 2,
      logits: 4,
      samplingF: 5,
      samplingI: 6,
      defaults: { temperature: 0, topP: 1, topK: 0, repetitionPenalty: 1, maxTokens: 20 },
      entries: ["prefill_8", "prefill_2", "decode", "sample", "greedy", "verify"],
      buffers: [2, 4, 5, 6, 7],
    });
    const plain = parse((m) => {
      delete m.chat.verify;
      m.chat.prefill.reverse();
      m.model.extra = 1;
    });
    expect(plain.chat).toMatchObject({
      verify: undefined,
      buffers: [2, 4, 5, 6],
      prefill: chat?.prefill,
      entries: ["prefill_8", "prefill_2", "decode", "sample", "greedy"],
    });
    expect(
      parse((m) => {
        m.chat.prefill = [];
      }).chat?.prefill,
    ).toEqual([{ entry: "decode", block: 1 }]);
  });

  it("reads all of a WebGPU target", () => {
    const change: Change = (m) => {
      const { base } = m.targets.webgpu.variants;
      m.targets.webgpu.variants = { base, fast: { ...base, features: ["shader-f16"], shared: ["kernels/more.wgsl"] } };
      m.targets.webgpu.temporaries = [
        { id: 8, bytes: 4 },
        { id: 9, bytes: 8 },
      ];
    };
    const { webgpu } = parse(change);
    const { variants: written, limits } = fakeBundle(change).manifest.targets.webgpu;
    expect([...(webgpu?.limits ?? [])]).toEqual(Object.entries(limits));
    expect(webgpu).toMatchObject({
      bytes: 1308 + 1700 + 4,
      temporaries: [
        { id: 8, bytes: 4 },
        { id: 9, bytes: 8 },
      ],
    });
    expect(webgpu?.variants.map(({ name, features, file, shared }) => [name, features, file, shared])).toEqual([
      ["base", [], "kernels/webgpu.wgsl", []],
      ["fast", ["shader-f16"], "kernels/webgpu.wgsl", ["kernels/more.wgsl"]],
    ]);
    const base = webgpu?.variants[0];
    expect(base?.kernels).toEqual(written.base.kernels);
    expect([...(base?.entryPoints.keys() ?? [])]).toEqual(Object.keys(written.base.entry_points));
    const [keys, , logits, never] = base?.entryPoints.get("prefill_8") ?? [];
    expect([keys?.kernel, keys?.buffers, logits?.kernel]).toEqual([0, [3, 2, 0], 4]);
    const at = (values: number[]): number[][] =>
      [keys, never].map((dispatch) => dispatch?.grid.map((size) => size(Int32Array.from(values))) ?? []);
    expect(at([0, 1])).toEqual([
      [1, 1, 1],
      [0, 1, 1],
    ]);
    expect(at([5, 6])).toEqual([
      [2, 1, 1],
      [0, 1, 1],
    ]);
  });

  it("reads all of a WASM target", () => {
    const change: Change = (m) => (m.targets.wasm.variants.simd.features = ["relaxed-simd"]);
    const { wasm } = parse(change);
    const { memory, entry_points } = fakeBundle(change).manifest.targets.wasm;
    expect(wasm).toMatchObject({
      pages: 4,
      variables: 1024,
      control: 2048,
      stacks: { base: 4096, bytes: 4096, maxThreads: 4 },
      variants: [
        { name: "simd", features: ["relaxed-simd"], file: "kernels/simd.wasm", threads: false },
        { name: "simd-threads", features: [], file: "kernels/simd-threads.wasm", threads: true },
      ],
    });
    expect(Object.fromEntries(wasm?.addresses ?? [])).toEqual(memory.buffers);
    expect([...(wasm?.entryPoints ?? [])]).toEqual(
      Object.entries<any>(entry_points).map(([name, { function: f, kernels }]) => [name, { function: f, kernels }]),
    );
  });

  it("reads functions, and leaves what it does not know to others", () => {
    const written = fakeFunction((m) => {
      m.detect = { labels: ["cat"] };
      m.functions.again = { inputs: [], outputs: m.functions.run.outputs };
      for (const points of [m.targets.wasm.entry_points, m.targets.webgpu.variants.base.entry_points]) points.again = points.run;
    }).manifest;
    const { chat, function: functions, sections } = parseManifest(written);
    expect(chat).toBeUndefined();
    expect(sections).toEqual({ detect: { labels: ["cat"] } });
    expect([...(functions?.functions ?? [])]).toEqual([
      ["run", { entry: "run", ...written.functions.run, steps: [] }],
      ["again", { entry: "again", ...written.functions.again, steps: [] }],
    ]);
    expect(functions?.entries).toEqual(["run", "again"]);
    expect(functions?.buffers).toEqual([1, 2, 3, 4, 3, 4]);
  });

  it.each<[string, Change]>([
    ["segments in any order", (m) => m.buffers[0].segments.reverse()],
    ["a buffer that is read twice", (m) => (m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].buffers[1] = 0)],
    ["variables at the very end of the memory", (m) => (m.targets.wasm.memory.variables = 4 * 65536 - 8)],
    [
      "state without address that only kernels use",
      (m) => {
        const { 3: _, ...buffers } = m.targets.wasm.memory.buffers;
        m.targets.wasm.memory = { ...m.targets.wasm.memory, buffers };
      },
    ],
    ["as much context as its state allows", (m) => (m.buffers[2].bytes = 4 * 65)],
    ["the last token as an end", (m) => (m.chat.eos = [0, VOCAB - 1])],
    ["no end tokens", (m) => (m.chat.eos = [])],
    [
      "the largest defaults",
      (m) => (m.chat.defaults = { temperature: 100, top_p: 0, top_k: 2 ** 31 - 1, repetition_penalty: 100, max_tokens: 2 ** 31 - 1 }),
    ],
    ["the smallest defaults", (m) => (m.chat.defaults = { temperature: 0, top_p: 0, top_k: 0, repetition_penalty: 0.01, max_tokens: 1 })],
  ])("accepts %s", (_name, change) => {
    const own: Change = (m) => {
      m.targets.wasm.memory = { ...m.targets.wasm.memory };
      change(m);
    };
    expect(parse(own).name).toBe("fake");
  });

  it("does with one target alone", () => {
    expect(parse((m) => delete m.targets.wasm).wasm).toBeUndefined();
    expect(parse((m) => delete m.targets.webgpu).webgpu).toBeUndefined();
  });

  const faults: [string, Change, string][] = [
    ["another format", (m) => (m.format = "zip"), "format"],
    ["a later version", (m) => (m.version = 3), "manifest.json: version: is 3, this library reads version 2: update tinyweb"],
    ["an earlier version", (m) => (m.version = 1), "manifest.json: version: is 1, this library reads version 2: export the model again"],
    ["an unknown task", (m) => (m.task = "paint"), 'manifest.json: task: "paint" has no functions: load it with tinyweb/load'],
    ["no targets", (m) => (m.targets = {}), "manifest.json: targets: neither webgpu nor wasm is there"],
    ["a list for an object", (m) => (m.model = []), "model: must be an object"],
    ["a shard of another site", (m) => (m.weights.shards[0].file = "https://evil.test/x.bin"), "not a path inside the bundle"],
    ["a shard above the folder", (m) => (m.weights.shards[0].file = "../x.bin"), "not a path inside the bundle"],
    ["an absolute file", (m) => (m.files.tokenizer = "/etc/passwd"), "not a path inside the bundle"],
    ["a file with a query", (m) => (m.files.tokenizer = "a.json?x"), "not a path inside the bundle"],
    ["a bad hash", (m) => (m.weights.shards[1].sha256 = "00"), "SHA-256"],
    ["shards that do not add up", (m) => (m.weights.bytes += 1), "manifest.json: weights.bytes: is 1306, but the shards add up to 1305"],
    ["an id that is not the index", (m) => (m.buffers[2].id = 7), "buffers[2].id"],
    ["a negative size", (m) => (m.buffers[2].bytes = -4), "outside"],
    ["a fractional size", (m) => (m.buffers[2].bytes = 1.5), "must be an integer"],
    ["an enormous size", (m) => (m.buffers[2].bytes = 2 ** 52), "outside"],
    ["a segment outside its shard", (m) => (m.buffers[0].segments[0].offset = 8), "buffers[0].segments[0].offset: 8 is outside 0 … 0"],
    ["a segment of no shard", (m) => (m.buffers[0].segments[0].shard = 3), "segments[0].shard: 3 is outside 0 … 2"],
    ["a segment outside its buffer", (m) => (m.buffers[0].segments[1].at = 604), "buffers[0].segments[1].at: 604 is outside 0 … 600"],
    ["a segment at an odd place", (m) => (m.buffers[1].segments[1].at = 99), "multiple of 4"],
    ["weights with a gap", (m) => m.buffers[0].segments.pop(), "cover 600 of 1044"],
    ["weights that overlap", (m) => (m.buffers[0].segments[1].at = 400), "gap or overlap"],
    ["state with segments", (m) => (m.buffers[0].kind = "state"), "only weights"],
    ["a variable twice", (m) => m.variables.push({ name: "count", min: 0, max: 1 }), "manifest.json: variables: a name appears twice"],
    ["no start_pos", (m) => (m.variables[0].name = "begin"), "start_pos"],
    ["a position that stops before the context", (m) => (m.variables[0].max = 62), "reach 63"],
    ["blocks that are too long for their count", (m) => (m.chat.prefill[0].block = 9), "reach 9"],
    ["an entry point that is missing", (m) => (m.chat.decode = "step"), '"step" is missing'],
    ["an end token outside the vocabulary", (m) => (m.chat.eos = [261]), "outside"],
    ["logits that are too small", (m) => (m.buffers[4].bytes = 4 * 260), "chat.logits"],
    ["ids that are too short", (m) => (m.buffers[2].bytes = 4 * 64), "chat.ids"],
    ["ids that are weights", (m) => (m.chat.ids = 0), "chat.ids"],
    [
      "a kernel that does not exist",
      (m) => (m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].kernel = 9),
      "entry_points.decode.dispatches[0].kernel: 9 is outside 0 … 8",
    ],
    ["too few buffers", (m) => m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].buffers.pop(), "3 bindings"],
    [
      "a buffer that does not exist",
      (m) => (m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].buffers[1] = 9),
      "buffers[1]",
    ],
    [
      "a written buffer bound twice",
      (m) => (m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].buffers[1] = 3),
      "bound twice",
    ],
    [
      "a grid of two",
      (m) => m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].grid.pop(),
      "decode.dispatches[0].grid: needs three sizes",
    ],
    [
      "an unknown binding",
      (m) => (m.targets.webgpu.variants.base.kernels[0].bindings[0] = "texture"),
      "must be storage or read-only-storage",
    ],
    ["a temporary with a gap", (m) => (m.targets.webgpu.temporaries[0].id = 9), "temporaries[0].id"],
    [
      "an address outside the memory",
      (m) => (m.targets.wasm.memory.buffers = { ...m.targets.wasm.memory.buffers, "0": 4 * 65536 - 4 }),
      "outside",
    ],
    ["an odd address", (m) => (m.targets.wasm.memory.buffers = { ...m.targets.wasm.memory.buffers, "0": 65537 }), "multiple of 4"],
    [
      "a weight without address",
      (m) => (m.targets.wasm.memory.buffers = { "2": 67584 }),
      "targets.wasm.memory.buffers: buffer 0 is missing",
    ],
    ["too many pages", (m) => (m.targets.wasm.memory.pages = 65537), "pages"],
    ["stacks outside the memory", (m) => (m.targets.wasm.memory.stacks = { base: 4096, bytes: 65536, max_threads: 4 }), "stacks.base"],
  ];
  const more: [string, Change, string][] = [
    ["a segment behind its shard", (m) => (m.buffers[0].segments[1].offset = 101), "offset: 101 is outside 0 … 100"],
    ["a limit that is no number", (m) => (m.targets.webgpu.limits.maxBufferSize = "large"), "limits.maxBufferSize"],
    ["a shape that is no size", (m) => (m.buffers[2].shape = [-1]), "buffers[2].shape[0]"],
    ["a shared file that is no path", (m) => (m.targets.webgpu.variants.base.shared = [5]), "base.shared[0]"],
    ["a feature that is no name", (m) => (m.targets.webgpu.variants.base.features = [5]), "base.features[0]"],
    ["a feature of WASM that is no name", (m) => (m.targets.wasm.variants.simd.features = [5]), "simd.features[0]"],
    ["no variants", (m) => (m.targets.webgpu.variants = {}), "manifest.json: targets.webgpu.variants: is empty"],
    [
      "a grid that reads no variable",
      (m) => (m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].grid[1] = { var: "no" }),
      "dispatches[0].grid[1]",
    ],
    [
      "an address of no buffer",
      (m) => (m.targets.wasm.memory.buffers = { ...m.targets.wasm.memory.buffers, 8: 4096 }),
      "memory.buffers.8: is not a buffer's id",
    ],
    [
      "variables outside the memory",
      (m) => (m.targets.wasm.memory.variables = 4 * 65536 - 4),
      "memory.variables: 262140 is outside 0 … 262136",
    ],
    [
      "a control block outside the memory",
      (m) => (m.targets.wasm.memory.control = 4 * 65536 - 124),
      "memory.control: 262020 is outside 0 … 262016",
    ],
    ["a variable without values", (m) => (m.variables[1].min = 9), "variables[1].max: 8 is outside 9"],
    [
      "an entry point missing for WASM",
      (m) => delete m.targets.wasm.entry_points.verify,
      'manifest.json: targets: entry point "verify" is missing',
    ],
    [
      "a state without address that is written",
      (m) => (m.targets.wasm.memory.buffers = { ...m.targets.wasm.memory.buffers, 7: undefined }),
      "targets.wasm.memory.buffers: buffer 7 is missing",
    ],
    [
      "weights that begin late",
      (m) => {
        m.buffers[0].segments = [{ shard: 0, offset: 0, bytes: 600, at: 4 }];
      },
      "leave a gap or overlap at byte 0",
    ],
    ["logits of another type", (m) => (m.buffers[4].dtype = "f16"), "chat.logits: buffer 4 must be f32 state of at least 1044 bytes"],
    [
      "sampling settings that are too few",
      (m) => (m.buffers[5].bytes = 12),
      "chat.sampling_f: buffer 5 must be f32 state of at least 16 bytes",
    ],
    ["a seed without room", (m) => (m.buffers[6].bytes = 4), "chat.sampling_i: buffer 6 must be i32 state of at least 8 bytes"],
    [
      "room for too few checked guesses",
      (m) => (m.buffers[7].bytes = 12),
      "chat.verify.tokens: buffer 7 must be i32 state of at least 16 bytes",
    ],
    ["ids of no buffer", (m) => (m.chat.ids = 8), "chat.ids: 8 is outside 0 … 7"],
    ["a block of nothing", (m) => (m.chat.prefill[1].block = 0), "chat.prefill[1].block"],
    ["a block that is too large", (m) => (m.chat.prefill[1].block = 65537), "chat.prefill[1].block: 65537 is outside 1 … 65536"],
    ["no count", (m) => (m.variables[1].name = "n"), 'manifest.json: variables: "count" must be there and reach 8'],
    ["a temperature below zero", (m) => (m.chat.defaults.temperature = -0.1), "chat.defaults.temperature"],
    ["a top_p above one", (m) => (m.chat.defaults.top_p = 1.1), "chat.defaults.top_p"],
    ["a penalty of nothing", (m) => (m.chat.defaults.repetition_penalty = 0), "chat.defaults.repetition_penalty"],
    ["answers without tokens", (m) => (m.chat.defaults.max_tokens = 0), "chat.defaults.max_tokens"],
    ["half a choice", (m) => (m.chat.defaults.top_k = 0.5), "chat.defaults.top_k"],
  ];
  it.each([...faults, ...more])("refuses %s", (_name, change, message) => {
    const changed = (m: Parameters<Change>[0]): void => {
      m.targets.wasm.memory = { ...m.targets.wasm.memory };
      change(m);
    };
    expect(() => parse(changed)).toThrow(expect.objectContaining({ code: "bad-manifest", message: expect.stringContaining(message) }));
  });

  const ofFunctions: [string, (m: any) => unknown, string][] = [
    ["no functions", (m) => (m.functions = {}), "manifest.json: functions: is empty"],
    [
      "an array larger than its buffer",
      (m) => (m.functions.run.inputs[0].shape = [2, 3]),
      "functions.run.inputs[0].buffer: buffer 1 must be f32 state of at least 24 bytes",
    ],
    [
      "a weight as an input",
      (m) => (m.functions.run.inputs[0].buffer = 0),
      "functions.run.inputs[0].buffer: buffer 0 must be f32 state of at least 16 bytes",
    ],
    [
      "another type than the buffer's",
      (m) => (m.functions.run.inputs[0].dtype = "i32"),
      "functions.run.inputs[0].buffer: buffer 1 must be i32 state of at least 16 bytes",
    ],
    ["a buffer that is not there", (m) => (m.functions.run.inputs[0].buffer = 5), "functions.run.inputs[0].buffer: 5 is outside 0 … 4"],
    ["a name twice", (m) => (m.functions.run.inputs[1].name = "x"), 'functions.run.inputs[1]: "x" appears twice'],
    [
      "a buffer twice",
      (m) => (m.functions.run.outputs[1] = { ...m.functions.run.outputs[0], name: "z" }),
      'functions.run.outputs[1]: "3" appears twice',
    ],
    [
      "a type that is unknown",
      (m) => (m.functions.run.inputs[0].dtype = "f64"),
      "functions.run.inputs[0].dtype: must be f32 or i32 or u32",
    ],
    ["a shape of no size", (m) => (m.functions.run.inputs[0].shape = [2, -2]), "functions.run.inputs[0].shape[1]"],
  ];
  it.each(ofFunctions)("refuses functions with %s", (_name, change, message) => {
    expect(() => parseManifest(JSON.parse(JSON.stringify(fakeFunction(change).manifest)))).toThrow(
      expect.objectContaining({ code: "bad-manifest", message: expect.stringContaining(message) }),
    );
  });

  it.each([null, 3, "x", [], {}])("refuses %j for the whole", (json) => {
    expect(() => parseManifest(json)).toThrow(expect.objectContaining({ code: "bad-manifest" }));
  });
});
