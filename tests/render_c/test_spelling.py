"""How C spells each operation, with one lane and with four. What it computes is tested by running it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.native_runtimes.programs import elementwise, splat
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.render_c import render

BOOL, I8, U8, U16 = dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.uint16
I32, U32, I64, F16, F32, F64 = (
    dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.float16, dtypes.float32, dtypes.float64,
)  # fmt: skip
LESS, WHERE = Ops.LESS, Ops.WHERE


def number(value: float, dtype: DType, n: int) -> UOp:
    return splat(UOp.const(value, dtype), n)


# name, types of the inputs (loaded as v1, v2, v3), type of the result, the operation on w lanes, its statements
# with 1 lane and with 4
SPELLED = [
    ("float sum", [F32] * 2, F32, lambda w, a, b: a + b, "p0[v0] = v1 + v2;", "*(f32x4_m *)(p0 + v0) = v1 + v2;"),
    ("half sum", [F16] * 2, F16, lambda w, a, b: a + b, "p0[v0] = (f16)(v1 + v2);", "*(f16x4_m *)(p0 + v0) = v1 + v2;"),
    (
        "integer sum",
        [I32] * 2,
        I32,
        lambda w, a, b: a + b,
        "p0[v0] = (i32)((u32)v1 + (u32)v2);",
        "*(i32x4_m *)(p0 + v0) = (i32x4)((u32x4)v1 + (u32x4)v2);",
    ),
    (
        "byte sum",
        [I8] * 2,
        I8,
        lambda w, a, b: a + b,
        "p0[v0] = (i8)((u32)v1 + (u32)v2);",
        "*(i8x4_m *)(p0 + v0) = (i8x4)((u8x4)v1 + (u8x4)v2);",
    ),
    ("unsigned sum", [U32] * 2, U32, lambda w, a, b: a + b, "p0[v0] = v1 + v2;", "*(u32x4_m *)(p0 + v0) = v1 + v2;"),
    (
        "unsigned byte product",
        [U8] * 2,
        U8,
        lambda w, a, b: a * b,
        "p0[v0] = (u8)((u32)v1 * (u32)v2);",
        "*(u8x4_m *)(p0 + v0) = v1 * v2;",
    ),
    (
        "long product",
        [I64] * 2,
        I64,
        lambda w, a, b: a * b,
        "p0[v0] = (i64)((u64)v1 * (u64)v2);",
        "*(i64x4_m *)(p0 + v0) = (i64x4)((u64x4)v1 * (u64x4)v2);",
    ),
    (
        "integer negation",
        [I32],
        I32,
        lambda w, a: a.alu(Ops.NEG),
        "p0[v0] = (i32)(-(u32)v1);",
        "*(i32x4_m *)(p0 + v0) = (i32x4)(-(u32x4)v1);",
    ),
    ("float negation", [F32], F32, lambda w, a: a.alu(Ops.NEG), "p0[v0] = -v1;", "*(f32x4_m *)(p0 + v0) = -v1;"),
    (
        "unsigned negation",
        [U32],
        U32,
        lambda w, a: a.alu(Ops.NEG),
        "p0[v0] = (u32)(-(u32)v1);",
        "*(u32x4_m *)(p0 + v0) = -v1;",
    ),
    (
        "shift to the left",
        [I32] * 2,
        I32,
        lambda w, a, b: a.alu(Ops.SHL, b),
        "p0[v0] = (i32)((u32)v1 << (u32)v2);",
        "*(i32x4_m *)(p0 + v0) = (i32x4)((u32x4)v1 << (u32x4)v2);",
    ),
    (
        "unsigned shift to the left",
        [U32] * 2,
        U32,
        lambda w, a, b: a.alu(Ops.SHL, b),
        "p0[v0] = v1 << v2;",
        "*(u32x4_m *)(p0 + v0) = v1 << v2;",
    ),
    (
        "shift to the right",
        [I32] * 2,
        I32,
        lambda w, a, b: a.alu(Ops.SHR, b),
        "p0[v0] = v1 >> v2;",
        "*(i32x4_m *)(p0 + v0) = v1 >> v2;",
    ),
    (
        "byte shift to the right",
        [U8],
        U8,
        lambda w, a: a.alu(Ops.SHR, number(4, U8, w)),
        "p0[v0] = (u8)(v1 >> (u8)4);",
        "*(u8x4_m *)(p0 + v0) = v1 >> (u8x4)((u8)4);",
    ),
    (
        "byte shift of different lanes",
        [U8] * 2,
        U8,
        lambda w, a, b: a.alu(Ops.SHR, b),
        "p0[v0] = (u8)(v1 >> v2);",
        "const u8x4 v3 = __builtin_convertvector(__builtin_convertvector(v1, u32x4) >> "
        '(__builtin_convertvector(v2, u32x4) ^ ({ u32 zero = 0; __asm__("" : "+r"(zero)); (u32x4)zero; })), '
        "u8x4); *(u8x4_m *)(p0 + v0) = v3;",
    ),
    (
        "division",
        [I32] * 2,
        I32,
        lambda w, a, b: a.alu(Ops.FLOORDIV, b),
        "p0[v0] = (i32)((u32)v1 / (u32)v2);",
        "*(i32x4_m *)(p0 + v0) = (i32x4)((u32x4)v1 / (u32x4)v2);",
    ),
    (
        "rest",
        [U16] * 2,
        U16,
        lambda w, a, b: a.alu(Ops.MOD, b),
        "p0[v0] = (u16)(v1 % v2);",
        "*(u16x4_m *)(p0 + v0) = v1 % v2;",
    ),
    (
        "maximum",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(Ops.MAX, b),
        "p0[v0] = maximum_f32x1((f32x1)(v1), (f32x1)(v2))[0];",
        "*(f32x4_m *)(p0 + v0) = maximum_f32x4(v1, v2);",
    ),
    (
        "maximum with a number",
        [F32],
        F32,
        lambda w, a: a.alu(Ops.MAX, number(0.5, F32, w)),
        "p0[v0] = maximum_f32x1((f32x1)(0.5f), (f32x1)(v1))[0];",
        "*(f32x4_m *)(p0 + v0) = maximum_f32x4((f32x4)(0.5f), v1);",
    ),
    (
        "maximum of a number",
        [F32],
        F32,
        lambda w, a: number(0.5, F32, w).alu(Ops.MAX, a),
        "p0[v0] = maximum_f32x1((f32x1)(0.5f), (f32x1)(v1))[0];",
        "*(f32x4_m *)(p0 + v0) = maximum_f32x4((f32x4)(0.5f), v1);",
    ),
    (
        "maximum of integers",
        [I8] * 2,
        I8,
        lambda w, a, b: a.alu(Ops.MAX, b),
        "p0[v0] = __builtin_elementwise_max(v1, v2);",
        "*(i8x4_m *)(p0 + v0) = __builtin_elementwise_max(v1, v2);",
    ),
    (
        "bits",
        [U8] * 2,
        U8,
        lambda w, a, b: (a & b) | (a ^ b),
        "p0[v0] = (u8)((u8)(v1 & v2) | (u8)(v1 ^ v2));",
        "*(u8x4_m *)(p0 + v0) = (v1 & v2) | (v1 ^ v2);",
    ),
    (
        "where",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(WHERE, a, b),
        "p0[v0] = (b8)(v1 < v2) ? v1 : v2;",
        "*(f32x4_m *)(p0 + v0) = (i32x4)(v1 < v2) ? v1 : v2;",
    ),
    (
        "where of bytes by floats",
        [F32, I8],
        I8,
        lambda w, a, b: a.alu(LESS, number(0.0, F32, w)).alu(WHERE, b, number(1, I8, w)),
        "p0[v0] = (i8)((b8)(v1 < 0.0f) ? v2 : (i8)1);",
        "*(i8x4_m *)(p0 + v0) = __builtin_convertvector((i32x4)(v1 < (f32x4)(0.0f)), i8x4) ? v2 : (i8x4)((i8)1);",
    ),
    (
        "where of bools",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(WHERE, a.alu(Ops.EQUAL, b), b.alu(LESS, a)).alu(WHERE, a, b),
        "p0[v0] = (b8)((b8)(v1 < v2) ? (b8)(v1 == v2) : (b8)(v2 < v1)) ? v1 : v2;",
        "*(f32x4_m *)(p0 + v0) = ((i32x4)(v1 < v2) ? (i32x4)(v1 == v2) : (i32x4)(v2 < v1)) ? v1 : v2;",
    ),
    (
        "xor",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.XOR, b.alu(LESS, a)).alu(WHERE, a, b),
        "p0[v0] = (b8)((b8)(v1 < v2) ^ (b8)(v2 < v1)) ? v1 : v2;",
        "*(f32x4_m *)(p0 + v0) = ((i32x4)(v1 < v2) ^ (i32x4)(v2 < v1)) ? v1 : v2;",
    ),
    (
        "not",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.XOR, number(True, BOOL, w)).alu(WHERE, a, b),
        "p0[v0] = (b8)(!(b8)(v1 < v2)) ? v1 : v2;",
        "*(f32x4_m *)(p0 + v0) = (~(i32x4)(v1 < v2)) ? v1 : v2;",
    ),
    (
        "or",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.ADD, b.alu(LESS, a)).alu(WHERE, a, b),
        "p0[v0] = (b8)((b8)(v1 < v2) | (b8)(v2 < v1)) ? v1 : v2;",
        "*(f32x4_m *)(p0 + v0) = ((i32x4)(v1 < v2) | (i32x4)(v2 < v1)) ? v1 : v2;",
    ),
    (
        "and",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.MUL, b.alu(LESS, a)).alu(WHERE, a, b),
        "p0[v0] = (b8)((b8)(v1 < v2) & (b8)(v2 < v1)) ? v1 : v2;",
        "*(f32x4_m *)(p0 + v0) = ((i32x4)(v1 < v2) & (i32x4)(v2 < v1)) ? v1 : v2;",
    ),
    (
        "maximum of bools",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.MAX, b.alu(LESS, a)).alu(WHERE, a, b),
        "p0[v0] = (b8)((b8)(v1 < v2) | (b8)(v2 < v1)) ? v1 : v2;",
        "*(f32x4_m *)(p0 + v0) = ((i32x4)(v1 < v2) | (i32x4)(v2 < v1)) ? v1 : v2;",
    ),
    (
        "less of bools",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(LESS, b.alu(LESS, a)).alu(WHERE, a, b),
        "p0[v0] = (b8)((b8)(v1 < v2) < (b8)(v2 < v1)) ? v1 : v2;",
        "*(f32x4_m *)(p0 + v0) = (~(i32x4)(v1 < v2) & (i32x4)(v2 < v1)) ? v1 : v2;",
    ),
    (
        "equal bools",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.EQUAL, b.alu(LESS, a)).alu(WHERE, a, b),
        "p0[v0] = (b8)((b8)(v1 < v2) == (b8)(v2 < v1)) ? v1 : v2;",
        "*(f32x4_m *)(p0 + v0) = (~((i32x4)(v1 < v2) ^ (i32x4)(v2 < v1))) ? v1 : v2;",
    ),
    (
        "bools of two widths",
        [F32, I64],
        F32,
        lambda w, a, b: (a.alu(LESS, number(0.0, F32, w)) & b.alu(LESS, number(0, I64, w))).alu(
            WHERE, a, number(0.0, F32, w)
        ),
        "p0[v0] = (b8)((b8)(v1 < 0.0f) & (b8)(v2 < 0ll)) ? v1 : 0.0f;",
        "const f32x4 v3 = (f32x4)(0.0f); const f32x4 v4 = "
        "__builtin_convertvector((__builtin_convertvector((i32x4)(v1 < v3), i64x4) & (i64x4)(v2 < "
        "(i64x4)(0ll))), i32x4) ? v1 : v3; *(f32x4_m *)(p0 + v0) = v4;",
    ),
    (
        "fused",
        [F32] * 3,
        F32,
        lambda w, a, b, c: a.alu(Ops.MULADD, b, c),
        "p0[v0] = v1 * v2 + v3;",
        "*(f32x4_m *)(p0 + v0) = v1 * v2 + v3;",
    ),
    (
        "integer fused",
        [I32] * 3,
        I32,
        lambda w, a, b, c: a.alu(Ops.MULADD, b, c),
        "p0[v0] = (i32)((u32)v1 * (u32)v2 + (u32)v3);",
        "*(i32x4_m *)(p0 + v0) = (i32x4)((u32x4)v1 * (u32x4)v2 + (u32x4)v3);",
    ),
    (
        "cast",
        [I32],
        F32,
        lambda w, a: a.cast(F32),
        "p0[v0] = (f32)v1;",
        "*(f32x4_m *)(p0 + v0) = __builtin_convertvector(v1, f32x4);",
    ),
    (
        "narrowing cast",
        [I32],
        I8,
        lambda w, a: a.cast(I8),
        "p0[v0] = (i8)v1;",
        "*(i8x4_m *)(p0 + v0) = __builtin_convertvector(v1, i8x4);",
    ),
    (
        "cast of a bool",
        [F32],
        I32,
        lambda w, a: a.alu(LESS, number(0.0, F32, w)).cast(I32),
        "p0[v0] = (i32)(b8)(v1 < 0.0f);",
        "*(i32x4_m *)(p0 + v0) = (i32x4)(v1 < (f32x4)(0.0f)) ? (i32x4)(1) : (i32x4)(0);",
    ),
    (
        "cast to bool",
        [I32],
        BOOL,
        lambda w, a: a.cast(BOOL),
        "p0[v0] = (b8)(v1 != 0);",
        "*(b8x4_m *)(p0 + v0) = (b8x4)(__builtin_convertvector((i32x4)(v1 != (i32x4)(0)), i8x4) & 1);",
    ),
    (
        "bool from memory",
        [BOOL, F32],
        F32,
        lambda w, a, b: a.alu(WHERE, b, number(1.0, F32, w)),
        "p0[v0] = v1 ? v2 : 1.0f;",
        "*(f32x4_m *)(p0 + v0) = __builtin_convertvector(v1, i32x4) ? v2 : (f32x4)(1.0f);",
    ),
    (
        "bitcast",
        [I32],
        F32,
        lambda w, a: UOp(Ops.BITCAST, F32, (a,)),
        "p0[v0] = __builtin_bit_cast(f32, v1);",
        "*(f32x4_m *)(p0 + v0) = __builtin_bit_cast(f32x4, v1);",
    ),
    (
        "reciprocal",
        [F32],
        F32,
        lambda w, a: a.alu(Ops.RECIPROCAL),
        "p0[v0] = 1.0f / v1;",
        "*(f32x4_m *)(p0 + v0) = (f32x4)(1.0f) / v1;",
    ),
    (
        "root",
        [F64],
        F64,
        lambda w, a: a.alu(Ops.SQRT),
        "p0[v0] = __builtin_elementwise_sqrt(v1);",
        "*(f64x4_m *)(p0 + v0) = __builtin_elementwise_sqrt(v1);",
    ),
    (
        "half to float",
        [U32],
        F32,
        lambda w, a: UOp(Ops.F16_TO_F32, F32, (a,)),
        "p0[v0] = f16_in_u32_to_f32x1((u32x1)(v1))[0];",
        "*(f32x4_m *)(p0 + v0) = f16_in_u32_to_f32x4(v1);",
    ),
    (
        "half to float, widened",
        [U16],
        F32,
        lambda w, a: UOp(Ops.F16_TO_F32, F32, (a.cast(U32),)),
        "p0[v0] = f16_in_u16_to_f32x1((u16x1)(v1))[0];",
        "*(f32x4_m *)(p0 + v0) = f16_in_u16_to_f32x4(v1);",
    ),
    (
        "float to half",
        [F32],
        U32,
        lambda w, a: UOp(Ops.F32_TO_F16, U32, (a,)),
        "p0[v0] = f32_to_f16x1((f32x1)(v1))[0];",
        "*(u32x4_m *)(p0 + v0) = f32_to_f16x4(v1);",
    ),
]


@pytest.mark.parametrize(
    ("inputs", "output", "compute", "one", "four"), [r[1:] for r in SPELLED], ids=[r[0] for r in SPELLED]
)
def test_spelling(inputs: list[DType], output: DType, compute: Callable[..., UOp], one: str, four: str) -> None:
    for width, want in ((1, one), (4, four)):
        text = render([elementwise("p", inputs, output, lambda *x, w=width: compute(w, *x), 4, width)])
        body = text[text.index("static void p_body") :].splitlines()[3:]  # after the head, the loop and v0
        statements = [line.strip() for line in body[: body.index("  }")]]
        assert " ".join(statements[len(inputs) :]) == want
