"""How WGSL spells each operation, with one lane and with four. What it computes is tested by running it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest

from tests.native_runtimes.programs import elementwise, splat
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.render_wgsl import render

F32, I32, U32, BOOL = dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.bool
LESS, WHERE = Ops.LESS, Ops.WHERE


def number(value: float, dtype: DType, n: int) -> UOp:
    return splat(UOp.const(value, dtype), n)


# name, types of a, b, c, type of the result, the operation on w lanes, its text with 1 lane and with 4
SPELLED = [
    ("add", [F32] * 2, F32, lambda w, a, b: a.alu(Ops.ADD, b), "a + b", "a + b"),
    (
        "half_to_float",
        [U32],
        F32,
        lambda w, a: UOp(Ops.F16_TO_F32, F32, (a,)),
        "unpack2x16float(a).x",
        "f16_to_f32_x4(a)",
    ),
    ("float_to_half", [F32], U32, lambda w, a: UOp(Ops.F32_TO_F16, U32, (a,)), "f32_to_f16_x1(a)", "f32_to_f16_x4(a)"),
    (
        "division by 7",
        [I32],
        I32,
        lambda w, a: a.alu(Ops.FLOORDIV, number(7, I32, w)),
        "i32(u32(a) / 7u)",
        "vec4<i32>(vec4<u32>(a) / vec4<u32>(7u))",
    ),
    ("division by 8", [I32], I32, lambda w, a: a.alu(Ops.FLOORDIV, number(8, I32, w)), "a >> 3u", "a >> vec4<u32>(3u)"),
    ("rest of 8", [I32], I32, lambda w, a: a.alu(Ops.MOD, number(8, I32, w)), "a & 7i", "a & vec4<i32>(7i)"),
    ("unsigned rest", [U32], U32, lambda w, a: a.alu(Ops.MOD, number(7, U32, w)), "a % 7u", "a % vec4<u32>(7u)"),
    (
        "division",
        [I32] * 2,
        I32,
        lambda w, a, b: a.alu(Ops.FLOORDIV, b),
        "i32(u32(a) / u32(b))",
        "vec4<i32>(vec4<u32>(a) / vec4<u32>(b))",
    ),
    ("shift by 31", [I32], I32, lambda w, a: a.alu(Ops.SHL, number(31, I32, w)), "a << 31u", "a << vec4<u32>(31u)"),
    (
        "shift by 32",
        [I32],
        I32,
        lambda w, a: a.alu(Ops.SHL, number(32, I32, w)),
        "let c0 = 32i; a << u32(c0)",
        "let c0 = vec4<i32>(32i); a << vec4<u32>(c0)",
    ),
    (
        "unsigned shift by 32",
        [U32],
        U32,
        lambda w, a: a.alu(Ops.SHL, number(32, U32, w)),
        "let c0 = 32u; a << c0",
        "let c0 = vec4<u32>(32u); a << c0",
    ),
    ("shift by 0", [I32], I32, lambda w, a: a.alu(Ops.SHR, number(0, I32, w)), "a >> 0u", "a >> vec4<u32>(0u)"),
    ("signed amount", [I32] * 2, I32, lambda w, a, b: a.alu(Ops.SHR, b), "a >> u32(b)", "a >> vec4<u32>(b)"),
    ("unsigned amount", [U32] * 2, U32, lambda w, a, b: a.alu(Ops.SHR, b), "a >> b", "a >> b"),
    ("maximum", [F32] * 2, F32, lambda w, a, b: a.alu(Ops.MAX, b), "maximum_x1(a, b)", "maximum_x4(a, b)"),
    (
        "maximum with a number",
        [F32],
        F32,
        lambda w, a: a.alu(Ops.MAX, number(0.5, F32, w)),
        "select(a, 0.5f, 0.5f > a)",
        "select(a, vec4<f32>(0.5f), vec4<f32>(0.5f) > a)",
    ),
    (
        "maximum of a number",
        [F32],
        F32,
        lambda w, a: number(0.5, F32, w).alu(Ops.MAX, a),
        "select(a, 0.5f, 0.5f > a)",
        "select(a, vec4<f32>(0.5f), vec4<f32>(0.5f) > a)",
    ),
    (
        "maximum with NaN",
        [F32],
        F32,
        lambda w, a: a.alu(Ops.MAX, number(math.nan, F32, w)),
        "let c0 = bitcast<f32>(nothing | 0x7fc00000u); maximum_x1(a, c0)",
        "let c0 = bitcast<f32>(nothing | 0x7fc00000u); maximum_x4(a, vec4<f32>(c0))",
    ),
    ("maximum of integers", [I32] * 2, I32, lambda w, a, b: a.alu(Ops.MAX, b), "max(a, b)", "max(a, b)"),
    (
        "division by zero",
        [F32],
        F32,
        lambda w, a: a.alu(Ops.DIV, number(0.0, F32, w)),
        "let c0 = 0.0f; a / c0",
        "let c0 = vec4<f32>(0.0f); a / c0",
    ),
    (
        "overflow of constants",
        [F32],
        F32,
        lambda w, a: a.alu(Ops.ADD, number(3e38, F32, w).alu(Ops.MUL, number(10.0, F32, w))),
        "let c0 = 0x1.c363ccp+127f; let c1 = 10.0f; a + (c0 * c1)",
        "let c0 = vec4<f32>(0x1.c363ccp+127f); let c1 = vec4<f32>(10.0f); a + (c0 * c1)",
    ),
    (
        "where",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(WHERE, a, b),
        "select(b, a, (a < b))",
        "select(b, a, (a < b))",
    ),
    (
        "xor",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.XOR, b.alu(LESS, a)).alu(WHERE, a, b),
        "select(b, a, ((a < b) != (b < a)))",
        "select(b, a, ((a < b) != (b < a)))",
    ),
    (
        "not",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.XOR, number(True, BOOL, w)).alu(WHERE, a, b),
        "select(b, a, (!(a < b)))",
        "select(b, a, (!(a < b)))",
    ),
    (
        "or",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.ADD, b.alu(LESS, a)).alu(WHERE, a, b),
        "select(b, a, ((a < b) | (b < a)))",
        "select(b, a, ((a < b) | (b < a)))",
    ),
    (
        "and",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.MUL, b.alu(LESS, a)).alu(WHERE, a, b),
        "select(b, a, ((a < b) & (b < a)))",
        "select(b, a, ((a < b) & (b < a)))",
    ),
    (
        "maximum of bools",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.MAX, b.alu(LESS, a)).alu(WHERE, a, b),
        "select(b, a, ((a < b) | (b < a)))",
        "select(b, a, ((a < b) | (b < a)))",
    ),
    (
        "less of bools",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(LESS, b.alu(LESS, a)).alu(WHERE, a, b),
        "select(b, a, (!(a < b) & (b < a)))",
        "select(b, a, (!(a < b) & (b < a)))",
    ),
    ("fused", [F32] * 3, F32, lambda w, a, b, c: a.alu(Ops.MULADD, b, c), "fma(a, b, c)", "fma(a, b, c)"),
    ("integer fused", [I32] * 3, I32, lambda w, a, b, c: a.alu(Ops.MULADD, b, c), "a * b + c", "a * b + c"),
    ("cast", [I32], F32, lambda w, a: a.cast(F32), "f32(a)", "vec4<f32>(a)"),
    ("bitcast", [I32], F32, lambda w, a: UOp(Ops.BITCAST, F32, (a,)), "bitcast<f32>(a)", "bitcast<vec4<f32>>(a)"),
    (
        "reciprocal, root, negation",
        [F32],
        F32,
        lambda w, a: a.alu(Ops.RECIPROCAL).alu(Ops.SQRT).alu(Ops.NEG),
        "-sqrt(1.0f / a)",
        "-sqrt(1.0f / a)",
    ),
]


@pytest.mark.parametrize(
    ("inputs", "output", "compute", "one", "four"), [r[1:] for r in SPELLED], ids=[r[0] for r in SPELLED]
)
def test_spelling(inputs: list[DType], output: DType, compute: Callable[..., UOp], one: str, four: str) -> None:
    for width, want in ((1, one), (4, four)):
        text = render(elementwise("p", inputs, output, lambda *x, w=width: compute(w, *x), 4, width), {})
        named = " ".join(re.findall(r"^  (let c\d = .*)$", text, re.MULTILINE))
        (stored,) = re.findall(r"^  p0\[.*\] = (.*);$", text, re.MULTILINE)
        stored = re.sub(r"v([123])", lambda m: "abc"[int(m[1]) - 1], stored)
        assert f"{named} {stored}".strip() == want
        assert ("fn maximum" in text) == ("maximum_x" in want) and ("fn f32_to" in text) == ("f32_to" in want)
