"""The C text: what it declares, and what it refuses. What it computes is tested by running it."""

import math
import re

import numpy as np
import pytest

from tests.native_runtimes.programs import Writer, elementwise, index, splat
from tinyweb.dtype import ALL, dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import BufferArg, Ops, Space, UOp, Variable
from tinyweb.graph.ir.ops import ELEMENTWISE, TRANSCENDENTAL
from tinyweb.graph.program import Program
from tinyweb.render_c import render
from tinyweb.render_c.c_ops import EMITTERS
from tinyweb.render_c.c_types import literal
from tinyweb.render_common import bare, f32_text

F32 = dtypes.float32


def accumulate(width: int, dynamic: bool) -> Program:
    w = Writer()
    out, a = w.param(F32, 8), w.param(F32, 8)
    g = w.grid(Variable("n", 0, 2))
    acc = w.buffer(F32, 8)
    at = g * 0 if dynamic else index(0)
    init = w.store(acc, at, splat(UOp.const(0.0, F32), width))
    value = w.load(acc.after(init), at, width) + w.load(a, g * width, width)
    w.store(out, g * width, value)
    return w.program("accumulate", (Variable("n", 0, 2), 1, 1))


def test_every_operation_has_a_spelling_but_those_lowering_replaces() -> None:
    assert ELEMENTWISE - set(EMITTERS) == TRANSCENDENTAL | {Ops.LOOKUP}
    program = elementwise("sine", [F32], F32, lambda x: x.alu(Ops.SIN), 4, 1)
    with pytest.raises(DeviceError, match="program sine: C has no text for SIN of float32"):
        render([program])


def test_what_is_written_is_not_const_and_nothing_aliases() -> None:
    text = render([accumulate(4, dynamic=False)])
    assert "accumulate_body(f32 *restrict p0, const f32 *restrict p1, const i32 *variables, i32 begin, i32 end)" in text
    assert "void accumulate(void *const *buffers, const int *variables, int begin, int end)" in text
    assert "int accumulate_grid(const int *variables) { return variables[0]; }" in text
    assert "#include" not in text
    assert text == render([accumulate(4, dynamic=False)])
    assert render([accumulate(4, dynamic=False)] * 2) == text  # equal programs once


def test_registers_are_variables_where_indices_are_constant() -> None:
    assert re.search(r"f32x4 r\d_0, r\d_4;", render([accumulate(4, dynamic=False)]))
    assert re.search(r"f32 r\d\[8\]", render([accumulate(4, dynamic=True)]))


@pytest.mark.parametrize("gated", ["always", "together", "by lane"])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_accesses_are_whole_where_they_can_be(width: int, gated: str) -> None:
    """Powers of two of elements under one gate are one access, and one load with a mask where each has its own; others
    one by one, each behind its gate.
    """
    w = Writer()
    out, a, g = w.param(F32, 16), w.param(F32, 16), w.grid(4)
    lanes = UOp(Ops.STACK, dtypes.index, tuple(g * width + i for i in range(width)))
    gates = {"together": g < 2, "by lane": lanes.alu(Ops.LESS, splat(index(7), width))}
    w.store(out, g * width, w.load(a, g * width, width, gates.get(gated)), gates.get(gated))
    text = render([w.program("accesses", (4, 1, 1))])
    if width != 3 and gated != "by lane":
        whole, zero = f"*(f32x{width}_m *)", f"(f32x{width})(0.0f)"
        assert text.count(f"{whole}(p1 + v0)") == text.count(f"{whole}(p0 + v0) = ") == 1
        assert text.count(f"v1 ? {whole}(p1 + v0) : {zero}") == (gated == "together")
        assert text.count(f"if (v1) {whole}(p0 + v0)") == (gated == "together")
        return
    for i, at in enumerate(["v0", *(f"v0 + {i}" for i in range(1, width))]):
        gate = {"together": "v1", "by lane": f"v1[{i}]"}.get(gated)
        if gated == "by lane" and width != 3:
            assert f" = masked_f32x{width}(p1 + v0, v1);" in text and f"m[{i}] ? p[{i}] : 0" in text
        else:
            assert (f"{gate} ? p1[{at}] : 0" if gate else f"p1[{at}]") in re.split(r", |[{}]", text)
        assert re.search(
            rf"^ *{re.escape(f'if ({gate}) ' if gate else '')}p0\[{re.escape(at)}\] = v\d\[{i}\];$", text, re.M
        )


@pytest.mark.parametrize(("other", "helper"), [(None, "maximum"), (0.0, "at_least"), (math.nan, "maximum")])
def test_maxima_with_a_number_need_no_test_for_nan(other: float | None, helper: str) -> None:
    program = elementwise(
        "larger", [F32, F32], F32, lambda a, b: a.alu(Ops.MAX, b if other is None else UOp.const(other, F32)), 4, 1
    )
    text = render([program])
    assert f"{helper}_f32x1(" in text and {"maximum": "at_least", "at_least": "maximum"}[helper] not in text


def test_deep_expressions_are_cut_into_statements() -> None:
    """Compilers limit how deep parentheses may nest."""

    def deep(x: UOp) -> UOp:
        for i in range(2000):
            x = x * 1.5 + float(i)
        return x

    text = render([elementwise("deep", [F32], F32, deep, 4, 4)])
    assert max(len(line) for line in text.splitlines()) < 250
    assert max(line.count("(") for line in text.splitlines()) < 40


def test_types_and_memory_that_c_does_not_have() -> None:
    w = Writer()
    out = w.param(dtypes.int4, 4)
    w.store(out, w.grid(1), UOp.const(1, dtypes.int4))
    with pytest.raises(DeviceError, match="int4 has no C type"):
        render([w.program("nibble")])
    w = Writer()
    out = w.param(F32, 4)
    w.store(out, w.thread(4), UOp.const(1.0, F32))
    with pytest.raises(DeviceError, match=r"C has no hardware index \('thread', 0\)"):
        render([w.program("threads")])
    w = Writer()
    w.emit(UOp(Ops.BUFFER, F32, (), BufferArg(Space.SHARED, 0, 4)))
    with pytest.raises(DeviceError, match=r"C has no Space\.SHARED memory"):
        render([w.program("shared")])


@pytest.mark.parametrize("dtype", [t for t in ALL if t.is_int and t.bits >= 8])
def test_integer_literals(dtype) -> None:
    """C's own rules read back from the text."""
    for value in (0, 1, int(dtype.min), int(dtype.max), -1 if dtype.is_signed else 7):
        text = re.sub(r"\(([iu]\d+)\)|(?<=\d)(ull|ll|u)", "", literal(value, dtype))
        assert eval(text) == value


def test_float_literals_are_exact() -> None:
    rng = np.random.default_rng(0)
    bits = np.concatenate(
        [rng.integers(0, 2**32, 5000, dtype=np.uint32), np.float32([0, 1, 0.1, 1e10, 3.4e38]).view(np.uint32)]
    )
    for value in bits.view(np.float32):
        text = f32_text(float(value))
        if text is None:
            assert not np.isfinite(value) or abs(value) < 2.0**-126
        else:
            read = float.fromhex(text) if "x" in text else float(text)  # as a compiler that goes through double
            assert np.float32(read).view(np.uint32) == value.view(np.uint32)
    assert (f32_text(0.5), f32_text(-0.0), f32_text(1e-7), f32_text(1e-40)) == ("0.5", "-0.0", "0x1.ad7f2ap-24", None)


def test_bare() -> None:
    assert bare("(a + b)") == "a + b"
    assert bare("(a) + (b)") == "(a) + (b)"
    assert bare("f(a)") == "f(a)"
