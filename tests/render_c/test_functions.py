"""Whole C functions, as written for programs by hand. What they compute is tested by running such on every runtime."""

from __future__ import annotations

from textwrap import dedent

from tests.native_runtimes.programs import Writer, index, splat, stack
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, Variable
from tinyweb.graph.program import Program
from tinyweb.render_c import render

F32, BOOL = dtypes.float32, dtypes.bool


def same(program: Program, want: str) -> None:
    text = render([program])
    assert text[text.index("static void ") :].strip().splitlines() == dedent(want).strip().splitlines()


def test_loops_and_masks() -> None:
    """A loop whose length is a variable's, a vector of bool, a gated store."""
    n = Variable("n", 1, 64)
    w = Writer()
    out, a, flags = w.param(F32, 8), w.param(F32, 512), w.param(BOOL, 64)
    g = w.grid(n)
    acc = w.buffer(F32, 4)
    zero = w.store(acc, index(0), splat(UOp.const(0.0, F32), 4))
    i = w.loop((n + 3) // 4)
    total = w.load(acc.after(zero, i), index(0), 4) + w.load(a, g * 64 + i * 4, 4)
    done = w.end(i, w.store(acc.after(zero, i), index(0), total))
    bits = w.load(flags, g * 4, 4)
    part = bits.where(w.load(acc.after(done), index(0), 4), splat(UOp.const(0.0, F32), 4))
    w.store(out, g, UOp(Ops.LANE, F32, (part,), 2) + UOp(Ops.LANE, F32, (part,), 3), g < 5)
    w.store(flags, g * 4, splat(UOp.const(True, BOOL), 4))
    want = """\
        static void sums_body(f32 *restrict p0, const f32 *restrict p1, b8 *restrict p2, const i32 *variables, i32 begin, i32 end) {
          const i32 n_n = variables[0];
          for (i32 grid = begin; grid < end; ++grid) {
            f32x4 r3_0;
            const f32x4 v0 = (f32x4)(0.0f);
            r3_0 = v0;
            const i32 ni0 = (i32)((u32)(n_n + 3) / (u32)4);
            for (i32 i0 = 0; i0 < ni0; ++i0) {
              const f32x4 v1 = r3_0;
              const f32x4 v2 = *(f32x4_m *)(p1 + ((grid * 64) + (i0 * 4)));
              r3_0 = v1 + v2;
            }
            const i32 v3 = grid * 4;
            const i8x4 v4 = -(i8x4)(*(b8x4_m *)(p2 + v3));
            const f32x4 v5 = r3_0;
            const f32x4 v6 = __builtin_convertvector(v4, i32x4) ? v5 : v0;
            if ((b8)(grid < 5)) p0[grid] = v6[2] + v6[3];
            *(b8x4_m *)(p2 + v3) = (b8x4)(__builtin_convertvector((i32x4)(-(i32)(b8)1), i8x4) & (i8x4)((i8)1));
          }
        }

        void sums(void *const *buffers, const int *variables, int begin, int end) {
          sums_body(buffers[0], buffers[1], buffers[2], variables, begin, end);
        }
        int sums_grid(const int *variables) { return (variables[0] * 2); }
    """  # noqa: E501
    same(w.program("sums", (n * 2, 1, 1)), want)


def test_gates() -> None:
    """Three lanes of which some are loaded and stored, and lanes that go together."""
    w = Writer()
    out, a = w.param(F32, 8), w.param(F32, 8)
    g = w.grid(2)
    at = g * 3
    gate = w.emit(stack(*[at + i < 5 for i in range(3)]))
    v = w.load(a, at, 3, gate)
    x = w.load(a, at + 1, 2, g < 1)
    y = w.load(a, index(2), 3)
    w.store(out, at, v, gate)
    w.store(out, at, y)
    w.store(out, at, x, g < 1)
    want = """\
        static void gates_body(f32 *restrict p0, const f32 *restrict p1, const i32 *variables, i32 begin, i32 end) {
          for (i32 grid = begin; grid < end; ++grid) {
            const i32 v0 = grid * 3;
            const i32 v1 = v0 + 1;
            const i32x3 v2 = (i32x3){-(i32)(b8)((v0 + 0) < 5), -(i32)(b8)(v1 < 5), -(i32)(b8)((v0 + 2) < 5)};
            const f32x3 v3 = (f32x3){v2[0] ? p1[v0] : 0, v2[1] ? p1[v0 + 1] : 0, v2[2] ? p1[v0 + 2] : 0};
            const b8 v4 = (b8)(grid < 1);
            const f32x2 v5 = v4 ? *(f32x2_m *)(p1 + v1) : (f32x2)(0.0f);
            const f32x3 v6 = (f32x3){p1[2], p1[2 + 1], p1[2 + 2]};
            const f32x3 v7 = v3;
            if (v2[0]) p0[v0] = v7[0];
            if (v2[1]) p0[v0 + 1] = v7[1];
            if (v2[2]) p0[v0 + 2] = v7[2];
            const f32x3 v8 = v6;
            p0[v0] = v8[0];
            p0[v0 + 1] = v8[1];
            p0[v0 + 2] = v8[2];
            if (v4) *(f32x2_m *)(p0 + v0) = v5;
          }
        }

        void gates(void *const *buffers, const int *variables, int begin, int end) {
          gates_body(buffers[0], buffers[1], variables, begin, end);
        }
        int gates_grid(const int *variables) { return 2; }
    """
    same(w.program("gates", (2, 1, 1)), want)


def test_registers() -> None:
    """Register memory as an array, as vectors, as scalars."""
    w = Writer()
    out = w.param(F32, 4)
    g = w.grid(2)
    a, b, c = w.buffer(F32, 4), w.buffer(F32, 6), w.buffer(F32, 3)
    s1 = w.store(a, g, UOp.const(1.5, F32))
    s2 = [w.store(b, index(2 * i), splat(UOp.const(2.5, F32), 2)) for i in range(3)]
    s3 = [w.store(c, index(0), UOp.const(1.0, F32)), w.store(c, index(1), splat(UOp.const(2.0, F32), 2))]
    v = (
        w.load(a.after(s1), g + 1)
        + UOp(Ops.LANE, F32, (w.load(b.after(*s2), index(4), 2),), 1)
        + w.load(c.after(*s3), index(2))
    )
    w.store(out, g, v)
    want = """\
        static void regs_body(f32 *restrict p0, const i32 *variables, i32 begin, i32 end) {
          for (i32 grid = begin; grid < end; ++grid) {
            f32 r1[4] __attribute__((aligned(64)));
            f32x2 r2_0, r2_2, r2_4;
            f32 r3_0, r3_1, r3_2;
            r1[grid] = 1.5f;
            const f32x2 v0 = (f32x2)(2.5f);
            r2_0 = v0;
            r2_2 = v0;
            r2_4 = v0;
            r3_0 = 1.0f;
            const f32x2 v1 = (f32x2)(2.0f);
            r3_1 = v1[0];
            r3_2 = v1[1];
            const f32 v2 = r1[grid + 1];
            const f32x2 v3 = r2_4;
            const f32 v4 = r3_2;
            p0[grid] = (v2 + v3[1]) + v4;
          }
        }

        void regs(void *const *buffers, const int *variables, int begin, int end) {
          regs_body(buffers[0], variables, begin, end);
        }
        int regs_grid(const int *variables) { return 2; }
    """
    same(w.program("regs", (2, 1, 1)), want)


def test_loops_in_loops_have_names_of_their_own() -> None:
    w = Writer()
    out, a = w.param(F32, 24), w.param(F32, 24)
    g = w.grid(2)
    i = w.loop(3)
    j = w.loop(4)
    w.store(out, g * 12 + i * 4 + j, w.load(a, g * 12 + i * 4 + j))
    w.end(j)
    w.end(i)
    text = render([w.program("nest", (2, 1, 1))])
    assert "for (i32 i0 = 0; i0 < 3; ++i0)" in text and "for (i32 i1 = 0; i1 < 4; ++i1)" in text
