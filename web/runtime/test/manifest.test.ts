import { describe, expect, it } from "vitest";
import { parseManifest } from "../src/manifest.js";
import { fakeBundle } from "./fake-bundle.js";

type Change = NonNullable<Parameters<typeof fakeBundle>[0]>;

const parse = (change?: Change): ReturnType<typeof parseManifest> =>
  parseManifest(JSON.parse(JSON.stringify(fakeBundle(change).manifest)));

describe("manifest", () => {
  it("reads a good one", () => {
    const manifest = parse();
    expect(manifest.chat?.prefill.map(({ block }) => block)).toEqual([8, 2, 1]);
    expect(manifest.wasm?.addresses.get(4)).toBe(68608);
    expect(manifest.webgpu?.variants[0]?.entryPoints.get("decode")).toHaveLength(3);
    expect(manifest.slots.get("count")).toBe(1);
  });

  it("does with one target alone", () => {
    expect(parse((m) => delete m.targets.wasm).wasm).toBeUndefined();
    expect(parse((m) => delete m.targets.webgpu).webgpu).toBeUndefined();
  });

  const faults: [string, Change, string][] = [
    ["another format", (m) => (m.format = "zip"), "format"],
    ["a later version", (m) => (m.version = 2), "reads version 1"],
    ["an unknown task", (m) => (m.task = "paint"), "task"],
    ["no targets", (m) => (m.targets = {}), "targets"],
    ["a list for an object", (m) => (m.model = []), "model: must be an object"],
    ["a shard of another site", (m) => (m.weights.shards[0].file = "https://evil.test/x.bin"), "not a path inside the bundle"],
    ["a shard above the folder", (m) => (m.weights.shards[0].file = "../x.bin"), "not a path inside the bundle"],
    ["an absolute file", (m) => (m.files.tokenizer = "/etc/passwd"), "not a path inside the bundle"],
    ["a file with a query", (m) => (m.files.tokenizer = "a.json?x"), "not a path inside the bundle"],
    ["a bad hash", (m) => (m.weights.shards[1].sha256 = "00"), "SHA-256"],
    ["shards that do not add up", (m) => (m.weights.bytes += 1), "add up"],
    ["an id that is not the index", (m) => (m.buffers[2].id = 7), "buffers[2].id"],
    ["a negative size", (m) => (m.buffers[2].bytes = -4), "outside"],
    ["a fractional size", (m) => (m.buffers[2].bytes = 1.5), "must be an integer"],
    ["an enormous size", (m) => (m.buffers[2].bytes = 2 ** 52), "outside"],
    ["a segment outside its shard", (m) => (m.buffers[0].segments[0].offset = 8), "offset"],
    ["a segment of no shard", (m) => (m.buffers[0].segments[0].shard = 3), "shard"],
    ["a segment outside its buffer", (m) => (m.buffers[0].segments[1].at = 604), "at"],
    ["a segment at an odd place", (m) => (m.buffers[1].segments[1].at = 99), "multiple of 4"],
    ["weights with a gap", (m) => m.buffers[0].segments.pop(), "cover 600 of 1044"],
    ["weights that overlap", (m) => (m.buffers[0].segments[1].at = 400), "gap or overlap"],
    ["state with segments", (m) => (m.buffers[0].kind = "state"), "only weights"],
    ["a variable twice", (m) => m.variables.push({ name: "count", min: 0, max: 1 }), "twice"],
    ["no start_pos", (m) => (m.variables[0].name = "begin"), "start_pos"],
    ["a position that stops before the context", (m) => (m.variables[0].max = 62), "reach 63"],
    ["blocks that are too long for their count", (m) => (m.chat.prefill[0].block = 9), "reach 9"],
    ["an entry point that is missing", (m) => (m.chat.decode = "step"), '"step" is missing'],
    ["an end token outside the vocabulary", (m) => (m.chat.eos = [261]), "outside"],
    ["logits that are too small", (m) => (m.buffers[4].bytes = 4 * 260), "chat.logits"],
    ["ids that are too short", (m) => (m.buffers[2].bytes = 4 * 64), "chat.ids"],
    ["ids that are weights", (m) => (m.chat.ids = 0), "chat.ids"],
    ["a kernel that does not exist", (m) => (m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].kernel = 9), "kernel"],
    ["too few buffers", (m) => m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].buffers.pop(), "3 bindings"],
    ["a buffer that does not exist", (m) => (m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].buffers[1] = 9), "buffers[1]"],
    ["a written buffer bound twice", (m) => (m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].buffers[1] = 3), "bound twice"],
    ["a grid of two", (m) => m.targets.webgpu.variants.base.entry_points.decode.dispatches[0].grid.pop(), "three sizes"],
    ["an unknown binding", (m) => (m.targets.webgpu.variants.base.kernels[0].bindings[0] = "texture"), "must be storage or read-only-storage"],
    ["a temporary with a gap", (m) => (m.targets.webgpu.temporaries[0].id = 9), "temporaries[0].id"],
    ["an address outside the memory", (m) => (m.targets.wasm.memory.buffers = { ...m.targets.wasm.memory.buffers, "0": 4 * 65536 - 4 }), "outside"],
    ["an odd address", (m) => (m.targets.wasm.memory.buffers = { ...m.targets.wasm.memory.buffers, "0": 65537 }), "multiple of 4"],
    ["a weight without address", (m) => (m.targets.wasm.memory.buffers = { "2": 67584 }), "buffer 0 is missing"],
    ["too many pages", (m) => (m.targets.wasm.memory.pages = 65537), "pages"],
    ["stacks outside the memory", (m) => (m.targets.wasm.memory.stacks = { base: 4096, bytes: 65536, max_threads: 4 }), "stacks.base"],
  ];
  it.each(faults)("refuses %s", (_name, change, message) => {
    const changed = (m: Parameters<Change>[0]): void => {
      m.targets.wasm.memory = { ...m.targets.wasm.memory };
      change(m);
    };
    expect(() => parse(changed)).toThrow(expect.objectContaining({ code: "bad-manifest", message: expect.stringContaining(message) }));
  });

  it.each([null, 3, "x", [], {}])("refuses %j for the whole", (json) => {
    expect(() => parseManifest(json)).toThrow(expect.objectContaining({ code: "bad-manifest" }));
  });
});
