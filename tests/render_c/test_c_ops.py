"""How C emits each operation, with one lane and with four. What it computes is tested by running it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.native_runtimes.programs import Writer, elementwise, index, splat
from tinyweb.dtype import DType, dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Axis, Ops, UOp, Variable, as_index
from tinyweb.render_c import dots, render, size_text
from tinyweb.render_c.c_types import literal
from tinyweb.tensor import Tensor

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
        "p0[v0] = at_least_f32x1((f32x1)(0.5f), (f32x1)(v1))[0];",
        "*(f32x4_m *)(p0 + v0) = at_least_f32x4((f32x4)(0.5f), v1);",
    ),
    (
        "maximum of a number",
        [F32],
        F32,
        lambda w, a: number(0.5, F32, w).alu(Ops.MAX, a),
        "p0[v0] = at_least_f32x1((f32x1)(0.5f), (f32x1)(v1))[0];",
        "*(f32x4_m *)(p0 + v0) = at_least_f32x4((f32x4)(0.5f), v1);",
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
        "*(b8x4_m *)(p0 + v0) = (b8x4)(__builtin_convertvector((i32x4)(v1 != (i32x4)(0)), i8x4) & (i8x4)((i8)1));",
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


def text_of(inputs: list[tuple[DType, int]], output: DType, lanes: int, compute: Callable[..., UOp]) -> tuple[str, str]:
    """All of the C text, and the stored value, of lanes made of vectors of the inputs."""
    w = Writer()
    out = w.param(output, lanes)
    sources = [(w.param(t, n), n) for t, n in inputs]
    w.emit(w.grid(1))
    w.store(out, index(0), compute(*[w.load(s, index(0), n) for s, n in sources]))
    text = render([w.program("p")])
    return text, text[text.index("_m *)(p0 + 0) = ") :].split(" = ", 1)[1].split(";")[0]


def dot(*values: UOp, arg: int | None = None) -> UOp:
    return UOp(Ops.DOT, I32, values, arg)


@pytest.mark.parametrize("n", [4, 8, 16, 32])
def test_sums_of_products_of_bytes(n: int) -> None:
    inputs = [(I8, 4 * n), (I8, 4 * n), (I32, n)]
    text, value = text_of(inputs, I32, n, dot)
    assert value == f"dot_x{n}(v0, v1, v2)"
    # each width from instructions of its own or of two halves, declared before it is used, once
    widths = [m for m in (4, 8, 16, 32) if m <= n]
    heads = [f"i32x{m} dot_x{m}(i8x{4 * m} a, i8x{4 * m} b, i32x{m} c) {{" for m in widths]
    assert [text.count(head) for head in heads] == [1] * len(widths)
    assert sorted(map(text.index, heads)) == list(map(text.index, heads))
    assert ("__builtin_ia32_vpdpbusd128" in text) and ("__builtin_ia32_vpdpbusd256" in text) == (n >= 8)
    assert ("__builtin_ia32_pmaddwd256" in text) == (n >= 8) and "nibbles" not in text
    for m in widths[2:]:
        halves = ", ".join(f"dot_x{m // 2}(a.{part}, b.{part}, c.{part})" for part in ("lo", "hi"))
        order = ", ".join(map(str, range(m)))
        assert f"return __builtin_shufflevector({halves}, {order});" in text
    for m in widths:
        for declared in (f"i8x{4 * m}", f"i16x{2 * m}", f"i32x{m}", f"u32x{m}"):
            assert re.search(rf"^typedef \w+ {declared} __attribute__\(\(ext_vector_type", text, re.MULTILINE)


def test_sums_of_products_of_nibbles_and_pairs() -> None:
    text, value = text_of([(U32, 8), (I8, 32), (I8, 32), (I32, 8)], I32, 8, dot)
    assert "nibbles_x8(v0, v1, v2, v3)" in text
    assert "__builtin_ia32_pmaddubsw256" in text and "dot_x8" in text
    for place, field in ((0, "v0 & 15"), (1, "v0 >> 4 & 15"), (2, "v0 >> 8 & 15"), (3, "v0 >> 12")):
        text, value = text_of(
            [(U32, 4), (dtypes.int16, 8), (I32, 4)], I32, 4, lambda a, b, c, p=place: dot(a, b, c, arg=p)
        )
        assert value == f"v2 + pairs_x4((i16x8)((u16x8){field}), v1)"
        assert "i32x4 pairs_x4(i16x8 a, i16x8 b) {" in text and "dot_x4(" not in text
    assert text_of([(dtypes.int16, 8), (dtypes.int16, 8), (I32, 4)], I32, 4, dot)[1] == "v2 + pairs_x4(v0, v1)"


@pytest.mark.parametrize("dtype", [I8, dtypes.uint8, dtypes.int16, dtypes.uint16])
def test_narrow_integers_become_singles_side_by_side(dtype: DType) -> None:
    kind = {"int": "i", "uint": "u"}[dtype.kind] + str(dtype.bits)
    for n in (8, 16):
        text, value = text_of([(dtype, n)], F32, n, lambda a: a.cast(F32))
        assert value == f"{kind}x{n}_to_f32x{n}(v0)"
        assert text.count(f"f32x8 {kind}x8_to_f32x8({kind}x8 narrow) {{") == 1
        assert (f"return __builtin_shufflevector({kind}x8_to_f32x8(" in text) == (n == 16)
    assert text_of([(dtype, 4)], F32, 4, lambda a: a.cast(F32))[1] == "__builtin_convertvector(v0, f32x4)"
    values = np.arange(dtype.min, int(dtype.max) + 1)
    for device in ("CPU", "WASM"):
        found = Tensor(values, dtype=dtype, device=device).float().numpy()
        np.testing.assert_array_equal(found, values.astype(np.float32))


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_widths_that_no_dot_has(n: int) -> None:
    with pytest.raises(ValueError, match=f"not {n}"):
        dots.helpers(n)


def test_masks_between_types() -> None:
    of_long = text_of([(I64, 4)], I64, 4, lambda a: a.cast(BOOL).alu(WHERE, a, number(1, I64, 4)))[1]
    assert of_long == "(i64x4)(v0 != (i64x4)(0ll)) ? v0 : (i64x4)(1ll)"

    def again(a: UOp, b: UOp) -> UOp:
        return UOp(Ops.BITCAST, BOOL, (a.alu(LESS, b),)).alu(WHERE, a, b)  # of a mask: not the bytes that memory holds

    assert text_of([(F32, 4)] * 2, F32, 4, again)[1] == "(i32x4)(v0 < v1) ? v0 : v1"


def test_grid_sizes() -> None:
    n, m = Variable("n", 0, 8), Variable("m", -5, 5)
    slots = {"n": 0, "m": 3}
    for size, want in (
        (7, "7"), (n, "variables[0]"), (m, "variables[3]"), (n * 2 + 1, "((variables[0] * 2) + 1)"),
        ((n + 3) // 4, "((variables[0] + 3) / 4)"), (n % 4, "(variables[0] % 4)"),
        (m // 2, "floor_divide(variables[3], 2)"),
        (m % 2, "floor_modulo(variables[3], 2)"),
        (n.alu(Ops.MAX, m), "__builtin_elementwise_max(variables[0], variables[3])"),
        (n + -1, "(variables[0] + (-1))"), (n.bind(3), "variables[0]"),
    ):  # fmt: skip
        assert size_text(size, slots) == want
    with pytest.raises(DeviceError, match="LESS"):
        size_text(n < 3, slots)


@pytest.mark.parametrize(("width", "reduce", "size", "rolled"), [
    (32, True, 4, True), (31, True, 4, False), (32, False, 4, False), (32, True, None, False),
])  # fmt: skip
def test_loops_that_hold_many_sums_are_not_unrolled(width: int, reduce: bool, size: int | None, rolled: bool) -> None:
    w = Writer()
    out = w.param(F32, 32)
    w.emit(w.grid(1))
    acc = w.buffer(F32, width)
    n = Variable("n", 1, 8)
    r = w.emit(UOp(Ops.RANGE, dtypes.index, (as_index(size or n),), Axis("r", 1, reduce=reduce)))
    for i in range(width):
        w.store(acc.after(r), index(i), UOp.const(1.0, F32))
    w.end(r)
    w.store(out, index(0), w.load(acc, index(0)))
    text = render([w.program("p", (n, 1, 1))])
    assert ("    ROLLED\n    for (" in text) == rolled == ("#define ROLLED" in text)
    # every sum is declared, and once
    declared = ", ".join(re.findall(r"^ *f32 (r\d_[^=;]*);$", text, re.MULTILINE)).split(", ")
    assert declared == [f"r1_{i}" for i in range(width)]


def test_an_array_is_in_no_register() -> None:
    """What is found by an index that is not known lies on the stack."""
    w = Writer()
    out = w.param(F32, 64)
    w.emit(w.grid(1))
    array = w.buffer(F32, 64)
    r = w.emit(UOp(Ops.RANGE, dtypes.index, (as_index(64),), Axis("r", 1, reduce=True)))
    done = w.end(r, w.store(array.after(r), r, UOp.const(1.0, F32)))
    w.store(out, index(0), w.load(array.after(done), index(0)))
    text = render([w.program("p", (1, 1, 1))])
    assert "[64] __attribute__((aligned(64)));" in text and "ROLLED" not in text


def test_a_vector_of_one() -> None:
    w = Writer()
    out, a = w.param(F32, 4), w.param(F32, 4)
    g = w.grid(4)
    w.store(out, g, UOp(Ops.STACK, F32, (w.load(a, g),)) + UOp.const(1.0, F32))
    assert re.search(
        r"p0\[grid\] = \(?v0\)? \+ 1\.0f;|p0\[grid\] = p1\[grid\] \+ 1\.0f;", render([w.program("p", (4, 1, 1))])
    )


def test_literals() -> None:
    for value, dtype, want in (
        (1.5, F64, "1.5"), (-1.5, F64, "(-1.5)"), (0.0, F64, "0.0"), (-0.0, F64, "(-0.0)"),
        (1 / 3, F64, "0x1.5555555555555p-2"), (-1 / 3, F64, "(-0x1.5555555555555p-2)"),
        (float("inf"), F64, "__builtin_bit_cast(f64, 0x7ff0000000000000ull)"),
        (float("-inf"), F64, "__builtin_bit_cast(f64, 0xfff0000000000000ull)"),
        (float("nan"), F64, "__builtin_bit_cast(f64, 0x7ff8000000000000ull)"),
        (1.5, F32, "1.5f"), (-1.5, F32, "(-1.5f)"), (float("inf"), F32, "__builtin_bit_cast(f32, 0x7f800000u)"),
        (1.5, F16, "(f16)1.5f"), (-2.0, F16, "(f16)(-2.0f)"), (1e6, F16, "__builtin_bit_cast(f16, (u16)0x7c00)"),
        (-1e6, F16, "__builtin_bit_cast(f16, (u16)0xfc00)"), (True, BOOL, "(b8)1"), (False, BOOL, "(b8)0"),
        (-128, I8, "(i8)(-128)"), (255, U8, "(u8)255"), (0, I8, "(i8)0"), (-(2**31), I32, "(-2147483647 - 1)"),
        (-5, I32, "(-5)"), (5, I32, "5"), (2**32 - 1, U32, "4294967295u"), (0, U32, "0u"),
        (-(2**63), I64, "(-9223372036854775807ll - 1)"), (2**64 - 1, dtypes.uint64, "18446744073709551615ull"),
    ):  # fmt: skip
        assert literal(value, dtype) == want
