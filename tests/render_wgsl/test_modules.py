"""Whole WGSL modules, as written for programs by hand. What they compute is tested by running such on every runtime."""

from __future__ import annotations

from textwrap import dedent

from tests.native_runtimes.programs import Writer, index, splat, stack
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, Space, UOp, Variable
from tinyweb.graph.program import Program
from tinyweb.render_wgsl import render

F32, U32, INDEX = dtypes.float32, dtypes.uint32, dtypes.index


def same(program: Program, slots: dict[str, int], want: str) -> None:
    assert render(program, slots).strip().splitlines() == dedent(want).strip().splitlines()


def test_row_sums() -> None:
    """A workgroup adds up a row, four numbers at a time: a loop, shared memory, a variable, a gated store."""
    n = Variable("n", 1, 64)
    w = Writer()
    out, a = w.param(F32, 5), w.param(F32, 1280)
    g, t = w.grid(5), w.thread(32)
    shared = w.buffer(F32, 128, Space.SHARED)
    acc = w.buffer(F32, 4)
    zero = w.store(acc, index(0), splat(UOp.const(0.0, F32), 4))
    i = w.loop((n + 3) // 4)
    total = w.load(acc.after(zero, i), index(0), 4) + w.load(a, g * 256 + i * 4, 4)
    done = w.end(i, w.store(acc.after(zero, i), index(0), total))
    kept = w.store(shared, t * 4, w.load(acc.after(done), index(0), 4))
    bar = w.barrier(kept)
    part = w.load(shared.after(bar), t * 4, 4)
    lane = UOp(Ops.LANE, F32, (part,), 2)
    w.store(out, g, lane, gate=t < 1)
    want = """\
        @group(0) @binding(0) var<storage, read_write> p0: array<f32>;
        @group(0) @binding(1) var<storage, read> p1: array<vec4<f32>>;
        @group(0) @binding(2) var<uniform> variables: array<vec4<i32>, 1>;
        var<workgroup> s2: array<vec4<f32>, 32>;

        @compute @workgroup_size(32, 1, 1)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>) {
          let n1 = variables[0].y;
          let g0 = i32(group.x);
          let t0 = i32(thread.x);
          var r3_0: vec4<f32>;
          r3_0 = vec4<f32>(0.0f);
          let endi0 = (n1 + 3i) >> 2u;
          for (var i0 = 0i; i0 < endi0; i0++) {
            let v0 = r3_0;
            let v1 = p1[((g0 * 256i) + (i0 * 4i)) >> 2u];
            r3_0 = v0 + v1;
          }
          let v2 = r3_0;
          s2[t0] = v2;
          workgroupBarrier();
          let v3 = s2[t0];
          if (t0 < 1i) { p0[g0] = v3.z; }
        }
    """
    same(w.program("row_sums", (5, 1, 1), (32, 1, 1)), {"m": 0, "n": 1}, want)


def test_gates() -> None:
    """Loads and stores of some of four lanes, where vectors are not aligned."""
    w = Writer()
    out, a = w.param(F32, 8), w.param(F32, 8)
    g = w.grid(2)
    at = g * 3
    gate = w.emit(stack(at < 5, at + 1 < 5, at + 2 < 5, at + 3 < 5))
    v = w.load(a, at, 4, gate)
    x = w.load(a, index(5))
    y = w.load(a, index(2), 2)
    w.store(out, at, v, gate)
    w.store(out, index(6), y)
    w.store(out, g, x, gate=g < 1)
    want = """\
        @group(0) @binding(0) var<storage, read_write> p0: array<f32>;
        @group(0) @binding(1) var<storage, read> p1: array<f32>;

        @compute @workgroup_size(1, 1, 1)
        fn main(@builtin(workgroup_id) group: vec3<u32>) {
          let g0 = i32(group.x);
          let v0 = g0 * 3i;
          let v1 = vec4<bool>(v0 < 5i, (v0 + 1i) < 5i, (v0 + 2i) < 5i, (v0 + 3i) < 5i);
          var v2 = vec4<f32>();
          if (v1.x) { v2.x = p1[v0]; }
          if (v1.y) { v2.y = p1[v0 + 1]; }
          if (v1.z) { v2.z = p1[v0 + 2]; }
          if (v1.w) { v2.w = p1[v0 + 3]; }
          let v3 = p1[5];
          let v4 = vec2<f32>(p1[2], p1[3]);
          if (v1.x) { p0[v0] = v2.x; }
          if (v1.y) { p0[v0 + 1] = v2.y; }
          if (v1.z) { p0[v0 + 2] = v2.z; }
          if (v1.w) { p0[v0 + 3] = v2.w; }
          p0[6] = v4.x;
          p0[7] = v4.y;
          if (g0 < 1i) { p0[g0] = v3; }
        }
    """
    same(w.program("gates", (2, 1, 1)), {}, want)


def test_atomics() -> None:
    """Memory that is stored to atomically is also read so."""
    w = Writer()
    out, b = w.param(U32, 8), w.param(U32, 8)
    g = w.grid(2)
    x = w.load(out, g * 2, 2)
    w.store(out, g * 2, x + w.load(b, g * 2, 2))
    w.store(out, g, UOp.const(7, U32), kind="atomic_and")
    w.store(out, g, UOp.const(9, U32), kind="atomic_or")
    w.store(out, g + 1, w.load(out, index(3)))
    want = """\
        @group(0) @binding(0) var<storage, read_write> p0: array<atomic<u32>>;
        @group(0) @binding(1) var<storage, read> p1: array<vec2<u32>>;

        @compute @workgroup_size(1, 1, 1)
        fn main(@builtin(workgroup_id) group: vec3<u32>) {
          let g0 = i32(group.x);
          let v0 = g0 * 2i;
          let v1 = vec2<u32>(atomicLoad(&p0[v0]), atomicLoad(&p0[v0 + 1]));
          let v2 = p1[v0 >> 1u];
          let v3 = v1 + v2;
          atomicStore(&p0[v0], v3.x);
          atomicStore(&p0[v0 + 1], v3.y);
          atomicAnd(&p0[g0], 7u);
          atomicOr(&p0[g0], 9u);
          let v4 = atomicLoad(&p0[3]);
          atomicStore(&p0[g0 + 1i], v4);
        }
    """
    same(w.program("atomics", (2, 1, 1)), {}, want)


def test_registers() -> None:
    """Register memory as an array, as vectors, as scalars; combining a subgroup's values."""
    w = Writer()
    out = w.param(F32, 4)
    g, t = w.grid(2, 1), w.thread(4, 2)
    a = w.buffer(F32, 4)
    b = w.buffer(F32, 6)
    c = w.buffer(F32, 3)
    s1 = w.store(a, t, UOp.const(1.5, F32))
    s2 = [w.store(b, index(2 * i), splat(UOp.const(2.5, F32), 2)) for i in range(3)]
    s3 = [w.store(c, index(0), UOp.const(1.0, F32)), w.store(c, index(1), splat(UOp.const(2.0, F32), 2))]
    v = (
        w.load(a.after(s1), t + 1)
        + UOp(Ops.LANE, F32, (w.load(b.after(*s2), index(4), 2),), 1)
        + w.load(c.after(*s3), index(2))
    )
    size = w.emit(UOp(Ops.SUBGROUP_SIZE, INDEX, ()))
    m = w.emit(UOp(Ops.SUBGROUP, F32, (v,), Ops.MAX))
    m = w.emit(UOp(Ops.SUBGROUP, F32, (m,), Ops.ADD))
    w.store(out, g % size, m)
    want = """\
        enable subgroups;
        @group(0) @binding(0) var<storage, read_write> p0: array<f32>;

        @compute @workgroup_size(1, 1, 4)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) thread: vec3<u32>, @builtin(subgroup_size) subgroup_size: u32) {
          let g1 = i32(group.y);
          let t2 = i32(thread.z);
          var r1: array<f32, 4>;
          var r2_0: vec2<f32>;
          var r2_2: vec2<f32>;
          var r2_4: vec2<f32>;
          var r3_0: f32;
          var r3_1: f32;
          var r3_2: f32;
          r1[t2] = 1.5f;
          r2_0 = vec2<f32>(2.5f);
          r2_2 = vec2<f32>(2.5f);
          r2_4 = vec2<f32>(2.5f);
          r3_0 = 1.0f;
          r3_1 = vec2<f32>(2.0f).x;
          r3_2 = vec2<f32>(2.0f).y;
          let v0 = r1[t2 + 1i];
          let v1 = r2_4;
          let v2 = r3_2;
          let v3 = i32(subgroup_size);
          let v4 = subgroupMax((v0 + v1.y) + v2);
          let v5 = subgroupAdd(v4);
          p0[i32(u32(g1) % u32(v3))] = v5;
        }
    """  # noqa: E501
    same(w.program("registers", (1, 2, 1), (1, 1, 4)), {}, want)


def test_a_register_array_read_in_vectors_alone() -> None:
    """Only memory that other threads see is declared in vectors: an array of a thread's own holds scalars."""
    w = Writer()
    out = w.param(F32, 32)
    g = w.grid(4)
    held = w.buffer(F32, 16)
    kept = w.store(held, g * 4, splat(UOp.const(1.5, F32), 4))
    w.store(out, g * 4, w.load(held.after(kept), g * 4, 4))
    text = render(w.program("held", (4, 1, 1)), {})
    assert "var r1: array<f32, 16>;" in text and "p0: array<vec4<f32>>" in text
    assert [f"r1[v0{o}] = vec4<f32>(1.5f).{c};" in text for o, c in zip(("", " + 1", " + 2", " + 3"), "xyzw")] == [
        True
    ] * 4
    assert "vec4<f32>(r1[v0], r1[v0 + 1], r1[v0 + 2], r1[v0 + 3])" in text
