"""How WGSL emits each operation, with one lane and with four. What it computes is tested by running it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest

from tests.native_runtimes.programs import Writer, elementwise, index, splat, stack
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp, Variable
from tinyweb.render_wgsl import render
from tinyweb.render_wgsl.wgsl_types import literal

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
    (
        "shift of a sum",
        [I32] * 2,
        I32,
        lambda w, a, b: (a + b).alu(Ops.SHL, number(3, I32, w)),
        "(a + b) << 3u",
        "(a + b) << vec4<u32>(3u)",
    ),
    (
        "xor with false",
        [F32] * 2,
        F32,
        lambda w, a, b: a.alu(LESS, b).alu(Ops.XOR, number(False, BOOL, w)).alu(WHERE, a, b),
        "select(b, a, ((a < b) != false))",
        "select(b, a, ((a < b) != vec4<bool>(false)))",
    ),
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
        for letter, name in zip("abc", re.findall(r"^  let (v\d) = p\d\[.*;$", text, re.MULTILINE)):
            stored = re.sub(rf"\b{name}\b", letter, stored)
        assert f"{named} {stored}".strip() == want
        assert ("fn maximum" in text) == ("maximum_x" in want) and ("fn f32_to" in text) == ("f32_to" in want)


def stored(compute: Callable[..., UOp], inputs: list[DType], output: DType, lanes: int) -> str:
    """The value that four (or two) lanes made of one element of each input are stored with."""
    w = Writer()
    out, *sources = [w.param(t, 4) for t in (output, *inputs)]
    g = w.grid(1)
    w.store(out, g * lanes, compute(*[w.load(s, g) for s in sources]))
    (found,) = re.findall(r"^  p0\[.*\] = (.*);$", render(w.program("p"), {}), re.MULTILINE)
    return str(found)


def numbers(*values: int) -> UOp:
    return stack(*[UOp.const(v, U32) for v in values])


def test_four_bytes_with_their_signs_are_one_builtin() -> None:
    def unpack(word: UOp, up: UOp, down: int) -> UOp:
        high = UOp(Ops.BITCAST, I32, (stack(*[word] * 4).alu(Ops.SHL, up),))
        return high.alu(Ops.SHR, number(down, I32, 4))

    def text(up: UOp, down: int) -> str:
        return stored(lambda word: unpack(word, up, down), [U32], I32, 4)

    assert text(numbers(24, 16, 8, 0), 24) == "unpack4xI8(v0)"
    for up, down in (
        ((24, 16, 8, 1), 24), ((24, 17, 8, 0), 24), ((25, 16, 8, 0), 24), ((24, 16, 8, 0), 23),
    ):  # fmt: skip
        assert "unpack" not in text(numbers(*up), down)
    different = stored(
        lambda a, b: unpack(a, numbers(24, 16, 8, 0), 24) + unpack(b, numbers(24, 16, 8, 0), 24), [U32] * 2, I32, 4
    )
    assert different == "unpack4xI8(v0) + unpack4xI8(v1)"


def test_both_halves_of_words_are_one_builtin() -> None:
    def halves(*words: UOp, by: UOp) -> UOp:
        return UOp(Ops.F16_TO_F32, F32, (stack(*words).alu(Ops.SHR, by),))

    two, four = numbers(0, 16), numbers(0, 16, 0, 16)
    assert stored(lambda a: halves(a, a, by=two), [U32], F32, 2) == "unpack2x16float(v0)"
    both = stored(lambda a, b: halves(a, a, b, b, by=four), [U32] * 2, F32, 4)
    assert both == "vec4<f32>(unpack2x16float(v0), unpack2x16float(v1))"
    for words, by in (("abab", four), ("aabb", numbers(0, 16, 16, 0)), ("aabb", numbers(0, 15, 0, 16))):
        text = stored(lambda a, b, w=words, y=by: halves(*[a if c == "a" else b for c in w], by=y), [U32] * 2, F32, 4)
        assert text.startswith("f16_to_f32_x4(")
    assert stored(lambda a: halves(a, a, by=numbers(16, 0)), [U32], F32, 2).startswith("f16_to_f32_x2(")


def test_lengths_and_names_of_loops() -> None:
    """A constant and a variable stand as they are, an expression is computed once; no loop is called i32."""
    n = Variable("n", 1, 8)
    w = Writer()
    out = w.param(I32, 64)
    loops = [w.loop(size) for size in (3, n, n * 2, *[2] * 30)]
    w.store(out, loops[0], UOp.const(1, I32))
    for r in reversed(loops):
        w.end(r)
    text = render(w.program("nest"), {"n": 0})
    heads = re.findall(r"for \(var (\w+) = 0i; (\w+) < (\w+); (\w+)\+\+\)", text)
    assert [h[2] for h in heads] == ["3i", "n0", "endi2", *["2i"] * 30]
    assert [h[0] for h in heads] == [*[f"i{i}" for i in range(32)], "i32_"] and len(set(h[0] for h in heads)) == 33
    assert all(h[0] == h[1] == h[3] for h in heads)
    assert "let endi2 = n0 * 2i;" in text and text.count("{") == text.count("}")


def test_an_operand_that_is_needed_twice_has_a_name() -> None:
    """The other side of a maximum with a number, and the value of stores lane by lane."""
    sum_first = stored(lambda a, b: (a + b).alu(Ops.MAX, UOp.const(0.5, F32)), [F32] * 2, F32, 1)
    assert sum_first == "select(v2, 0.5f, 0.5f > v2)"
    negative = elementwise("p", [F32], F32, lambda a: a.alu(Ops.MAX, UOp.const(-math.inf, F32)), 4, 1)
    assert "let c0 = bitcast<f32>(nothing | 0xff800000u);" in render(negative, {})
    assert "select(v1, c0, c0 > v1)" in render(negative, {})


def test_one_extension_where_subgroups_are_used() -> None:
    plain = elementwise("p", [F32], F32, lambda a: a, 4, 1)
    assert render(plain, {}).startswith("@group(0)")
    combined = elementwise("p", [F32], F32, lambda a: UOp(Ops.SUBGROUP, F32, (a,), Ops.ADD), 4, 1)
    assert render(combined, {}).startswith("enable subgroups;\n") and "subgroupAdd(v1)" in render(combined, {})


def test_halves_that_only_look_so() -> None:
    """Neighbouring halves are told by shifts: other operations with the same numbers are something else."""
    four = numbers(0, 16, 0, 16)
    text = stored(lambda a, b: UOp(Ops.F16_TO_F32, F32, (stack(a, a, b, b) & four,)), [U32] * 2, F32, 4)
    assert text.startswith("f16_to_f32_x4(")


def test_the_lane_of_a_number_is_the_number() -> None:
    assert stored(lambda a: UOp(Ops.LANE, F32, (a,), 0) * 2.0, [F32], F32, 1) == "v0 * 2.0f"


def test_literals() -> None:
    for value, dtype, want in (
        (-(2**31), I32, "i32(-2147483648)"), (-(2**31) + 1, I32, "(-2147483647i)"), (2**31 - 1, I32, "2147483647i"),
        (0, I32, "0i"), (-1, I32, "(-1i)"), (2**32 - 1, U32, "4294967295u"), (True, BOOL, "true"), (0, BOOL, "false"),
        (0.0, F32, "0.0f"), (-0.0, F32, "bitcast<f32>(nothing | 0x80000000u)"), (-1.5, F32, "(-1.5f)"),
        (math.inf, F32, "bitcast<f32>(nothing | 0x7f800000u)"), (1e-40, F32, "bitcast<f32>(0x000116c2u)"),
    ):  # fmt: skip
        assert literal(value, dtype) == want


def test_one_lane_that_is_shifted_too_far() -> None:
    """A constant amount of all lanes would not compile."""
    text = render(elementwise("p", [U32], U32, lambda a: a.alu(Ops.SHL, numbers(0, 31, 32, 5)), 4, 4), {})
    assert "let c0 = vec4<u32>(0u, 31u, 32u, 5u);" in text and "<< c0" in text


def test_differences_bytes_and_bounds_are_one_operation() -> None:
    assert stored(lambda a, b: a + (-b), [F32] * 2, F32, 1) == "v0 - v1"
    assert stored(lambda a, b: (-a) + b, [F32] * 2, F32, 1) == "v1 - v0"
    assert stored(lambda a, b: a + b * -1, [I32] * 2, I32, 1) == "v0 - v1"
    assert stored(lambda a, b: ((a < b) | a.equal(b)).where(a, b), [F32] * 2, F32, 1) == "select(v1, v0, (v0 <= v1))"
    bytes_of = numbers(0, 8, 16, 24)
    assert stored(lambda a: stack(*[a] * 4).alu(Ops.SHR, bytes_of) & number(255, U32, 4), [U32], U32, 4) == (
        "unpack4xU8(v0)"
    )
    assert "unpack" not in stored(lambda a: stack(*[a] * 4).alu(Ops.SHR, bytes_of) & number(127, U32, 4), [U32], U32, 4)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_four_bytes_of_a_word_are_stored_together(order: tuple[int, ...]) -> None:
    w = Writer()
    out, a = w.param(U32, 1), w.param(U32, 4)
    vector = w.load(a, index(0), 4)
    word = None
    for place, i in enumerate(order):
        x = UOp(Ops.LANE, U32, (vector,), i)
        x = x if place == 3 else x & 255
        x = x.alu(Ops.SHL, 8 * place) if place else x
        word = x if word is None else word | x
    assert word is not None
    w.store(out, index(0), w.emit(word))
    assert ("pack4xU8(v0)" in render(w.program("p"), {})) == (order == (0, 1, 2, 3))
