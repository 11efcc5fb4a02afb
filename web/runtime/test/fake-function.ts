/** A bundle made by hand that holds a function: y = x · w + n, and which of the first three of x are positive. */

import { finish, fixture, sha256, type FakeBundle } from "./fake-bundle.js";

const WEIGHT = new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer);

const WGSL = `//# kernel affine
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read> n: array<i32>;
@compute @workgroup_size(4) fn main(@builtin(local_invocation_id) at: vec3<u32>) { y[at.x] = x[at.x] * w[at.x] + f32(n[0]); }
//# kernel positive
@group(0) @binding(0) var<storage, read_write> p: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@compute @workgroup_size(1) fn main() { p[0] = u32(x[0] > 0.0) | (u32(x[1] > 0.0) << 8) | (u32(x[2] > 0.0) << 16); }
`;

type Json = any;

/** For two threads. */
export function threaded(manifest: Json): void {
  const { wasm } = manifest.targets;
  wasm.memory.stacks.max_threads = 2;
  wasm.variants["simd-threads"] = { file: "kernels/simd-threads.wasm", threads: true };
}

export function fakeFunction(change: (manifest: Json) => void = () => undefined): FakeBundle {
  const state = (id: number, name: string, dtype: string, shape: number[], bytes: number): Json => ({
    id,
    name,
    kind: "state",
    dtype,
    shape,
    bytes,
  });
  const manifest: Json = {
    format: "tinyweb-bundle",
    version: 2,
    task: "function",
    name: "affine",
    weights: { bytes: 16, sha256: sha256(WEIGHT), shards: [{ file: "weights/000.bin", bytes: 16, sha256: sha256(WEIGHT) }] },
    buffers: [
      { id: 0, name: "w", kind: "weight", dtype: "f32", shape: [4], bytes: 16, segments: [{ shard: 0, offset: 0, bytes: 16, at: 0 }] },
      state(1, "x", "f32", [2, 2], 16),
      state(2, "n", "i32", [], 4),
      state(3, "y", "f32", [2, 2], 16),
      state(4, "positive", "bool", [3], 3),
    ],
    variables: [],
    functions: {
      run: {
        inputs: [
          { name: "x", buffer: 1, dtype: "f32", shape: [2, 2] },
          { name: "n", buffer: 2, dtype: "i32", shape: [] },
        ],
        outputs: [
          { name: "y", buffer: 3, dtype: "f32", shape: [2, 2] },
          { name: "positive", buffer: 4, dtype: "bool", shape: [3] },
        ],
      },
    },
    targets: {
      webgpu: {
        limits: { maxBufferSize: 16 },
        bytes: { weights: 16, state: 40, temporaries: 0 },
        temporaries: [],
        variants: {
          base: {
            features: [],
            file: "kernels/webgpu.wgsl",
            kernels: [
              {
                name: "affine",
                entry: "main",
                bindings: ["storage", "read-only-storage", "read-only-storage", "read-only-storage"],
                uniform: false,
              },
              { name: "positive", entry: "main", bindings: ["storage", "read-only-storage"], uniform: false },
            ],
            entry_points: {
              run: {
                variables: [],
                dispatches: [
                  { kernel: 0, buffers: [3, 1, 0, 2], grid: [1, 1, 1] },
                  { kernel: 1, buffers: [4, 1], grid: [1, 1, 1] },
                ],
              },
            },
          },
        },
      },
      wasm: {
        bytes: { weights: 16, state: 40, temporaries: 0 },
        memory: {
          pages: 4,
          buffers: { "0": 65536, "1": 65600, "2": 65664, "3": 65728, "4": 65792 },
          variables: 1024,
          control: 2048,
          stacks: { base: 4096, bytes: 4096, max_threads: 1 },
        },
        variants: { simd: { file: "kernels/simd.wasm", threads: false } },
        entry_points: { run: { function: "run", variables: [], kernels: 2 } },
      },
    },
  };
  const files = new Map<string, Uint8Array>([
    ["kernels/webgpu.wgsl", new TextEncoder().encode(WGSL)],
    ["kernels/simd.wasm", fixture("fake-function.wasm")],
    ["kernels/simd-threads.wasm", fixture("fake-function-threads.wasm")],
    ["weights/000.bin", WEIGHT],
  ]);
  return finish(files, manifest, change);
}
