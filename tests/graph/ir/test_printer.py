"""Graphs as text: the Python form builds the same nodes again; the other one is for people."""

from __future__ import annotations

import math
import random

import pytest

from tests.graph.ir.graphs import (
    F32,
    INDEX,
    const,
    from_bits,
    kernel_graph,
    loop,
    param,
    program_list,
    random_graph,
    start,
    tensor_graph,
)
from tinyweb.dtype import ALL, dtypes
from tinyweb.graph.ir import KernelInfo, Ops, Space, UOp, as_index, size_add
from tinyweb.graph.ir.ops import BufferArg, Ordered
from tinyweb.graph.ir.printer import NAMESPACE, brief, from_python, to_python, to_text


@pytest.mark.parametrize("make", [tensor_graph, kernel_graph])
def test_python_builds_the_same_graph(make) -> None:
    root = make()
    assert from_python(to_python(root)) is root


def test_python_builds_the_same_program() -> None:
    listed = program_list()
    again = from_python(to_python(listed))
    assert isinstance(again, tuple) and len(again) == len(listed)
    assert all(a is b for a, b in zip(again, listed))


@pytest.mark.parametrize("seed", range(50))
def test_python_builds_any_graph(seed: int) -> None:
    root = random_graph(random.Random(seed))
    assert from_python(to_python(root)) is root


def test_the_text_needs_nothing_but_the_namespace() -> None:
    root = kernel_graph()
    scope = {"__builtins__": {}, **NAMESPACE}
    exec(to_python(root), scope)
    assert scope["root"] is root


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 0.1, math.inf, -math.inf, math.nan, from_bits(0x7FF8000000000123), 1e-310]
)
def test_every_float_comes_back(value: float) -> None:
    for dtype in ALL:
        if dtype.is_float:
            u = UOp(Ops.CONST, dtype, (), value)
            assert from_python(to_python(u)) is u
    negative = UOp(Ops.CONST, dtypes.float32, (), -0.0)
    assert negative is not UOp(Ops.CONST, dtypes.float32, (), 0.0)
    assert "-0.0" in to_python(negative)


def test_constants_that_compare_equal_stay_apart() -> None:
    one = [
        UOp(Ops.CONST, dtypes.float32, (), 1.0),
        UOp(Ops.CONST, dtypes.index, (), 1),
        UOp(Ops.CONST, dtypes.bool, (), True),
    ]
    assert len(set(one)) == 3
    assert from_python(to_python(one)) == tuple(one)


def test_an_update_step_by_step_comes_back() -> None:
    memory, value = (UOp(Ops.BUFFER, F32, (), BufferArg(Space.DEVICE, i, 8)) for i in range(2))
    update = UOp(Ops.ASSIGN, F32, (memory, value), Ordered(0, 1))
    assert from_python(to_python(update)) is update


def test_sizes_inside_args_are_nodes_of_the_text() -> None:
    size = size_add(start, 3)
    root = UOp(Ops.RESHAPE, F32, (const(0.0),), (size, 2))
    text = to_python(root)
    assert "VARIABLE" in text and "arg=(i0, 2)" in text
    assert from_python(text) is root


def test_one_assignment_per_node_in_order() -> None:
    lines = to_python(kernel_graph()).splitlines()
    assert len(lines) == len(kernel_graph().toposort()) + 1
    known: set[str] = set()
    for line in lines[:-1]:
        name, _, call = line.partition(" = ")
        inside = call[call.index("(") + 1 : -1].split(", arg=")[0]
        assert {part for part in inside.split(", ")[1:]} <= known
        known.add(name)
    assert lines[-1].startswith("root = ")


def test_args_the_printer_does_not_know_are_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        to_python(UOp(Ops.CONST, F32, (), frozenset({1})))


# -- for people ------------------------------------------------------------------------------------------------------
def test_text_of_a_kernel() -> None:
    text = to_text(kernel_graph())
    assert text.splitlines()[:3] == [
        "# split(i1, 4)",
        "# bind(i1.1, vector)",
        "matmul: for i0 in 32 grid.x, i1.0 in 8, i1.1 in 4 vector:",
    ]
    assert "stage shared(s1 in 64: p1[i0 · 101 + s1])[r0 % 64]" in text
    assert "sum(r0 in start + 1: " in text
    assert "if t0: p0[i0 · 32 + (i1.0 · 4 + i1.1)] = " in text


def test_text_of_a_program() -> None:
    text = to_text(program_list())
    assert "register0[0] = <0.0>×4" in text
    assert "for r0 in start + 1:" in text
    assert "\n  register0[0] = " in text, "what a loop does is indented"
    assert "barrier" in text
    assert "p0[thread.x] = atomic_or " in text


def test_text_keeps_the_order_of_operations() -> None:
    i, j = loop("i", 10), loop("j", 10, 1)

    def shown(u: UOp) -> str:
        return to_text(u)

    assert shown((i + 1) * 3) == "(i + 1) · 3"
    assert shown(i + j * 3) == "i + j · 3"
    assert shown((i + j) // 3 % 2) == "(i + j) // 3 % 2"
    assert shown(i // (j + 1)) == "i // (j + 1)"
    assert shown(i // (j * 2)) == "i // (j · 2)"
    assert shown((i < 3) & (j < 4)) == "(i < 3) & (j < 4)"
    assert shown((i < 3).logical_not()) == "not (i < 3)"
    assert shown((i < 3).where(i, j) + 1) == "(i if i < 3 else j) + 1"
    assert shown(i - j) == "i - j"
    assert shown(i + -3) == "i - 3"
    assert shown(i + j * -3) == "i - j · 3"
    assert shown(i + (j + 2) * -1) == "i - (j + 2)"
    assert shown(-const(2.0).alu(Ops.SQRT)) == "-sqrt(2.0)"


def test_long_and_repeated_values_get_a_name() -> None:
    i = loop("i", 10)
    x = param(0, 100).load(i * 7 + 3)
    text = to_text((x + 1.0) * (x + 1.0))
    assert text.splitlines()[0].startswith("t0 = ")
    deep = x
    for _ in range(3000):
        deep = deep * 1.5 + x
    assert max(map(len, to_text(deep).splitlines())) < 400


def test_brief_stays_short() -> None:
    assert brief(loop("i", 10) * 4) == "MUL.index(i, 4:index)"
    wide = UOp(Ops.STACK, F32, tuple(const(float(n)) for n in range(50)))
    assert len(brief(wide)) < 200
    deep: UOp = const(1.0)
    for _ in range(100):
        deep = deep + 1.5
    assert len(brief(deep)) < 200


def test_an_empty_kernel_has_a_text() -> None:
    root = param(0, 1).store(as_index(0), const(1.0)).sink(arg=KernelInfo())
    assert to_text(root) == "kernel:\n  p0[0] = 1.0"
    assert to_text(UOp.const(3, INDEX)) == "3"
