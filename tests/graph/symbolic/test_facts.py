"""What is asked about expressions: factors, strides, values under a gate; and `evaluate`."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.symbolic.oracle import (
    RANGE,
    Maker,
    all_values,
    assert_same,
    index_leaves,
    leaf,
    meaning,
    prove_same,
    show,
    small_leaves,
)
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, Variable, as_index
from tinyweb.graph.symbolic import (
    clauses,
    const_factor,
    divides,
    evaluate,
    proves_less,
    simplify,
    simplify_given,
    split_by,
    substitute_ranges,
)

chances = st.randoms(use_true_random=False)
i, j, v = RANGE("i", 100, 0), RANGE("j", 50, 1), RANGE("v", 8, 2)
n = Variable("n", 1, 50)
k = RANGE("k", n, 3)


# -- factors ---------------------------------------------------------------------------------------------------------
@settings(max_examples=300)
@given(chances, st.integers(1, 4), st.sampled_from([None, dtypes.int8, dtypes.uint8]))
def test_const_factor_divides_every_value(chance: random.Random, depth: int, dtype) -> None:
    leaves = index_leaves() if dtype is None else small_leaves(dtype)
    root = Maker(chance, leaves).integer(depth)
    columns = all_values([root], 2000)
    for u in root.toposort():
        if u.dtype.is_int:
            values, defined = meaning(u, columns)
            factor = const_factor(u)
            assert factor >= 0
            assert (values[defined] % factor == 0).all() if factor else (values[defined] == 0).all(), (show(u), factor)


@pytest.mark.parametrize(
    ("expr", "factor"),
    [
        (i * 12 + n * j * 4 + 8, 4),
        (i * 12, 12),
        (i * 6 % 4, 2),
        (i * 12 // 4, 3),
        (as_index(0), 0),
        ((i < 5).where(j * 6, v * 9), 3),
        ((i * 8).maximum(16), 8),
        (i + j, 1),
    ],
)
def test_const_factor(expr: UOp, factor: int) -> None:
    assert const_factor(expr) == factor


def test_divides() -> None:
    assert divides(i * 8 + j * 4, 4)
    assert not divides(i * 8 + j * 2, 4)
    assert divides(24, 8) and not divides(24, 7)
    assert divides(as_index(0), 5)
    assert divides(i * n + n * 3, n)
    assert divides(n * (i + j) * 2, n * 2)
    assert not divides(i * n + 3, n)
    assert divides((n + 1) * (n + 2), n + 1)
    assert divides(i * 8, as_index(4))


# -- strides ---------------------------------------------------------------------------------------------------------
@settings(max_examples=300)
@given(chances, st.integers(1, 4))
def test_split_by_is_the_same_expression(chance: random.Random, depth: int) -> None:
    leaves = index_leaves()
    expr = Maker(chance, leaves).integer(depth)
    for r in (r for r in leaves if r.op is Ops.RANGE):
        parts = split_by(expr, r)
        if parts is None:
            continue
        stride, rest = parts
        assert r not in rest.toposort()
        stride_node = as_index(stride)
        assert r not in stride_node.toposort()
        assert_same(expr, r * stride_node + rest, most=1000)


def test_split_by() -> None:
    assert split_by(i * 4 + j + 2, i) == (4, simplify(j + 2))
    assert split_by(i * n * 3 + j, i) is None  # the stride is no number
    assert split_by((i + j) * 4 - i, i) == (3, simplify(j * 4))
    assert split_by(j + 2, i) == (0, simplify(j + 2))
    assert split_by(i // 2, i) is None
    assert split_by(i * i, i) is None
    assert split_by(i % 4 + i, i) is None
    assert split_by((j // 2) * 4 + i, i) == (1, simplify(j // 2 * 4))


def test_substitute_ranges() -> None:
    assert substitute_ranges(i * 4 + j, {i: 3}) is simplify(j + 12)
    assert substitute_ranges((i * 8 + v) // 8, {i: j + 1}) is simplify(j + 1)
    assert substitute_ranges(i * 4 + j, {i: j, j: i}) is simplify(j * 4 + i)


def test_proves_less() -> None:
    assert proves_less(k, n) and not proves_less(n, k)
    assert proves_less(i * n + k, n * 100)
    assert not proves_less(i * n + k, n * 99)
    assert proves_less(i, as_index(100)) and not proves_less(i, as_index(99))
    assert proves_less(k * 4 + RANGE("w", 4, 9), n * 4)
    assert not proves_less(k * 4 + RANGE("w", 5, 9), n * 4)


def test_sums_that_may_wrap_around_are_compared_by_the_bounds_of_their_type() -> None:
    tripled = leaf("x", 0, 255, dtypes.uint8) * 3
    zero, one = (UOp.const(n, dtypes.uint8) for n in (0, 1))
    assert simplify(tripled.alu(Ops.LESS, zero)).arg is False
    assert simplify(tripled.alu(Ops.LESS, one)).op is not Ops.CONST


# -- gates -----------------------------------------------------------------------------------------------------------
@settings(max_examples=400)
@given(chances, st.integers(1, 4), st.integers(1, 3))
def test_simplify_given_keeps_the_value_where_the_gate_holds(
    chance: random.Random, depth: int, gate_depth: int
) -> None:
    maker = Maker(chance, index_leaves())
    expr, gate = maker.expression(depth), maker.boolean(gate_depth)
    after = simplify_given(expr, gate)
    columns = all_values([expr, gate, after], 2000)
    (old, defined), (new, still) = meaning(expr, columns), meaning(after, columns)
    holds, known = meaning(gate, columns)
    here = defined & known & (holds != 0)
    assert (still[here] & (old == new)[here]).all(), f"{show(expr)} given {show(gate)} → {show(after)}"


def test_simplify_given() -> None:
    assert simplify_given(i // 10, i < 10) is as_index(0)
    assert simplify_given((i + j) // 100, i + j < 100) is as_index(0)
    assert simplify_given((i + j) % 50, i + j < 50) is simplify(i + j)
    assert simplify_given((i < 20) & (j < 3), i < 10) is simplify(j < 3)
    assert simplify_given(i < 10, i < 10) is UOp.const(True, dtypes.bool)
    assert simplify_given((i < 10).where(j, v), i >= 10) is v
    assert simplify_given(i * 2 + j, i.equal(7)) is simplify(j + 14)
    assert simplify_given((i * 4 + v - 3) // 64, (i * 4 + v >= 3) & (i * 4 + v < 67)) is as_index(0)
    # a clause about one sum bounds its terms
    assert simplify_given(i // 5, i * 2 + j < 10) is as_index(0)
    # an impossible gate leaves any value
    assert simplify_given(i // 5, (i < 3) & (i > 7)) is not None


def test_simplify_given_in_z3() -> None:
    x, y = RANGE("x", 4096, 0), RANGE("y", 333, 1)
    for expr, gate in [
        ((x - 3) // 4 * 4 + (x - 3) % 4, x >= 3),
        ((x * 3 + y) // 1000, (x * 3 + y < 2000) & (x * 3 + y >= 1000)),
        ((x + y) % 333, x + y < 333),
        ((x + y) // 64, (x < 64) & (y < 10)),
        ((x < 100) & (y < 100) & (x + y < 150), (x < 50) & (y < 100)),
    ]:
        prove_same(expr, simplify_given(expr, gate), given=gate)


def test_clauses() -> None:
    assert clauses((i < 5) & ((j < 3) & (i < 5))) == [i < 5, j < 3]


# -- evaluation ------------------------------------------------------------------------------------------------------
def test_evaluate_agrees_with_numpy() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        expr = Maker(chance, index_leaves() if seed % 2 else small_leaves(dtypes.int8)).expression(3)
        columns = all_values([expr], 50)
        values, defined = meaning(expr, columns)
        for row in range(0, len(values), 7):
            if defined[row]:
                assert evaluate(expr, {u: int(c[row]) for u, c in columns.items()}) == values[row], show(expr)


def test_evaluate_rounds_as_the_dtype_does() -> None:
    x = leaf("x", 0, 9)
    assert evaluate(x * -1 // 4, {x: 3}) == -1
    assert evaluate((x * -1) % 4, {x: 3}) == 1
    assert evaluate(UOp.const(0.1, dtypes.float32)) == float(np.float32(0.1))
    assert evaluate(UOp.const(200, dtypes.uint8) + 100) == 44
    assert evaluate(UOp.const(1.0, dtypes.bfloat16) + 2**-9) == 1.0
    assert evaluate(UOp.const(70000.0, dtypes.float32).cast(dtypes.float16)) == math.inf


def test_evaluate_says_what_is_missing() -> None:
    x, y = leaf("x", 0, 9), leaf("y", 0, 9)
    with pytest.raises(KeyError, match="VARIABLE"):
        evaluate(x + y, {x: 1})
    with pytest.raises(ZeroDivisionError):
        evaluate(x // y, {x: 1, y: 0})
    # the branch that is not taken may be undefined
    assert evaluate((x < 5).where(x, x // y), {x: 1, y: 0}) == 1
