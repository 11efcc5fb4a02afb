"""`simplify` as a whole: random expressions keep their value, known ones take their known form, time stays linear."""

from __future__ import annotations

import random

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
from tinyweb.graph.ir import Ops, PatternMatcher, UOp, Variable, as_index, graph_rewrite
from tinyweb.graph.symbolic import simplify, symbolic

chances = st.randoms(use_true_random=False)
a, v, i, j = RANGE("a", 16, 0), RANGE("v", 8, 1), RANGE("i", 100, 2), RANGE("j", 100, 3)
n = Variable("n", 1, 50)
k = RANGE("k", n, 4)
wide_i, wide_j = RANGE("wide_i", 1000, 5), RANGE("wide_j", 77, 6)


@settings(max_examples=400)
@given(chances, st.integers(1, 5))
def test_random_index_expressions_keep_their_value(chance: random.Random, depth: int) -> None:
    before = Maker(chance, index_leaves()).expression(depth)
    assert_same(before, simplify(before), most=2000)


@settings(max_examples=400)
@given(chances, st.integers(1, 5), st.sampled_from([dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32]))
def test_random_expressions_of_data_types_wrap_around_as_before(chance: random.Random, depth: int, dtype) -> None:
    leaves = small_leaves(dtype)
    if dtype.bits > 8:  # the ends of the dtype, which wrap around
        leaves = [leaf("w", int(dtype.max) - 9, int(dtype.max), dtype), *leaves[1:]]
    before = Maker(chance, leaves).expression(depth)
    assert_same(before, simplify(before), most=2000)


@settings(max_examples=300)
@given(chances, st.integers(1, 5))
def test_what_is_simple_stays_as_it_is(chance: random.Random, depth: int) -> None:
    simple = simplify(Maker(chance, index_leaves()).expression(depth))
    assert graph_rewrite(simple, symbolic) is simple


@settings(max_examples=300)
@given(chances, st.integers(1, 4), st.sampled_from([None, dtypes.int8, dtypes.uint8]))
def test_bounds_hold(chance: random.Random, depth: int, dtype) -> None:
    leaves = index_leaves() if dtype is None else small_leaves(dtype)
    root = Maker(chance, leaves).expression(depth)
    columns = all_values([root], 2000)
    for u in root.toposort():
        values, defined = meaning(u, columns)
        if defined.any():
            low, high = u.bounds
            assert low <= values[defined].min() and values[defined].max() <= high, (show(u), u.bounds)


KNOWN = [
    # sums
    (i + 0, i),
    (i * 1, i),
    (i * 3 + i - j * 2 + 4 - i * 4, j * -2 + 4),
    ((i + 3) * 4 - 12, i * 4),
    (3 + i, i + 3),
    (j + i, i + j),
    (n + i, n + i),
    (as_index(2) * i * 8, i * 16),
    ((i + j) * 4, i * 4 + j * 4),
    (n * i - i * n, as_index(0)),
    # floor division and remainder
    ((8 * a + v) // 32, a // 4),
    ((8 * a + v) % 32, (a % 4) * 8 + v),
    (((8 * a + v) // 32) * 32 + (8 * a + v) % 32, a * 8 + v),
    ((i // 4) // 5, i // 20),
    ((i + 5) // 4 // 5, (i + 5) // 20),
    (i % 32 % 8, i % 8),
    (i % 8 % 32, i % 8),
    (i % 8 // 2, i // 2 % 4),
    ((i * 6 + 4) // 9, (i * 2 + 1) // 3),
    ((i * 9 + v) % 8, (i + v) % 8),
    ((i % 8 + j) % 4, (i + j) % 4),
    ((wide_i * 64 + a * 4) // 64, wide_i),
    (i // 128, as_index(0)),
    (i % 128, i),
    ((i + 200) // 100, as_index(2)),
    ((i + 200) % 100, i),
    ((i - 1) // 2, (i + 1) // 2 - 1),
    (i // 4 * 4 + i % 4, i),
    ((i + 5) // 4 * 4 + (i + 5) % 4, i + 5),
    (wide_i // 4 % 2 * 4 + wide_i % 4, wide_i % 8),
    (wide_i // 8 * 2 + wide_i // 4 % 2, wide_i // 4),
    ((i * 100 + j) // 100, i),
    ((i * 100 + j) % 100 // 10, j // 10),
    ((99 - i) // 100, as_index(0)),
    # symbolic sizes
    ((i * n + k) // n, i),
    ((i * n + k) % n, k),
    ((n * i) % n, as_index(0)),
    ((i * n + k) // n * n + (i * n + k) % n, n * i + k),
    (k < n, UOp.const(True, dtypes.bool)),
    (n <= k, UOp.const(False, dtypes.bool)),
    (i * n + k < n * 100, UOp.const(True, dtypes.bool)),
    (k.equal(n), UOp.const(False, dtypes.bool)),
    # comparisons and gates
    (8 * a + v < 32, a < 4),
    (4 * i + 2 < 10, i < 2),
    (as_index(50) < 100 - i, i < 50),
    (i // 4 < 6, i < 24),
    (i + 5 < j + 5, simplify(i < j)),
    ((i < 5) & (i < 8), i < 5),
    ((i >= 5) & (i < 6), i.equal(5)),
    ((i < 5) & (i >= 5), UOp.const(False, dtypes.bool)),
    ((i < 5) & (j < 3) & (i < 5), (i < 5) & (j < 3)),
    ((i < 5) | (i >= 5), UOp.const(True, dtypes.bool)),
    (i < 100, UOp.const(True, dtypes.bool)),
    ((i * 2).equal(7), UOp.const(False, dtypes.bool)),
    ((i < 5).logical_not().logical_not(), i < 5),
    # choices, maxima
    ((i < 5).where(i, i), i),
    ((i < 5).logical_not().where(i, j), (i < 5).where(j, i)),
    ((i < 5).where((i < 5).where(i, v), j), (i < 5).where(i, j)),
    ((i < 5).where((j < 3).where(i, v), v), ((i < 5) & (j < 3)).where(i, v)),
    (i.maximum(-1), i),
    (i.maximum(3).maximum(5), i.maximum(5)),
    # casts
    (i.cast(dtypes.int64).cast(dtypes.index), i),
    ((i < 5).cast(dtypes.int32).cast(dtypes.float32), (i < 5).cast(dtypes.float32)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(KNOWN)))
def test_known_forms(number: int) -> None:
    before, after = KNOWN[number]
    assert simplify(before) is simplify(after), f"{show(before)} → {show(simplify(before))}, wanted {show(after)}"
    assert len(simplify(before).toposort()) <= len(before.toposort()) + 2


def kernel_expressions() -> list[UOp]:
    """Index expressions as fusion, splitting and packing make them, over large ranges."""
    x, y, z, w = RANGE("x", 256, 0), RANGE("y", 333, 1), RANGE("z", 64, 2), RANGE("w", 4, 3)
    s = Variable("s", 0, 1023)
    flat = x * 1024 + z * 16 + w * 4
    odd = (y * 64 + z) * 3 + w
    return [
        flat // 4096, flat % 4096 // 64, flat // 64 % 64, odd // 192, odd % 192 // 3, odd // 3 % 64,
        (flat + 7) // 8, (flat - 3) // 16, (odd + s) // 64, (odd + s) % 64, (y + s - 7) // 5 * 5 + (y + s - 7) % 5,
        (x * 64 + z) // 4 % 16 * 4 + (x * 64 + z) % 4, (x + y).maximum(z * 100) // 7, (y * 7 + w) // 28,
        (flat // 4 * 4 + flat % 4) // 1024 % 256, (z < 32).where(flat, odd) // 3, (y * 3 + w < 700) & (y < 200),
        (flat < 256 * 512) | (x >= 200), (y + z < s).where(y, z) % 8, 255 - x - (255 - x) // 9 * 9,
        ((x * 64 + z) % 48 * 4 + w) // 6, ((x * 64 + z) % 48 * 4 + w) % 6, (x % 12 + y % 4) % 4, (-x + 5000) // 17,
        as_index(700) < y * 3 + w, (y * 6 + z * 2).equal(w * 4 + 1), (x * 8 + z // 8).equal(s * 8),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(kernel_expressions())))
def test_z3_finds_no_difference_over_large_ranges(number: int) -> None:
    before = kernel_expressions()[number]
    prove_same(before, simplify(before))


def test_z3_finds_no_difference_in_random_expressions() -> None:
    proven = 0
    for seed in range(200):
        maker = Maker(
            random.Random(seed), [RANGE("x", 4096, 0), RANGE("y", 333, 1), RANGE("w", 4, 3), leaf("s", -50, 900)]
        )
        before = maker.expression(2)
        after = simplify(before)
        divisors = [u.src[1] for u in (*before.toposort(), *after.toposort()) if u.op in (Ops.FLOORDIV, Ops.MOD)]
        bits = any(u.op in (Ops.SHL, Ops.SHR, Ops.NEG, Ops.CAST) for u in before.toposort())
        bits |= any(u.op in (Ops.AND, Ops.OR, Ops.XOR) and u.dtype is not dtypes.bool for u in before.toposort())
        products = any(u.op is Ops.MUL and u.src[1].op is not Ops.CONST for u in before.toposort())
        compared = any(u.op in (Ops.LESS, Ops.EQUAL) and u.src[0].dtype is dtypes.bool for u in before.toposort())
        if bits or products or compared or any(d.op is not Ops.CONST or d.arg <= 0 for d in divisors):
            continue
        prove_same(before, after)
        proven += 1
    assert proven > 50


# -- effort ----------------------------------------------------------------------------------------------------------
def long_sum(terms: int) -> UOp:
    total = as_index(0)
    for t in range(terms):
        total = total + RANGE(f"r{t}", 7, t) * 3 + 1
    return total


def long_chain(steps: int) -> UOp:
    x = RANGE("x", 1000)
    total: UOp = x
    for t in range(steps):
        total = (total * 3 + RANGE(f"r{t}", 7, t)) // 2 % 1000
    return total


def long_gate(clauses: int) -> UOp:
    gate = UOp.const(True, dtypes.bool)
    for t in range(clauses):
        gate = gate & (RANGE(f"r{t}", 70, t) + t < 50 + t)
    return gate


@pytest.mark.parametrize("make", [long_sum, long_chain, long_gate])
def test_effort_grows_linearly(make, monkeypatch) -> None:
    steps = 0
    plain = PatternMatcher.rewrite

    def counted(self, u, ctx=None):
        nonlocal steps
        steps += 1
        return plain(self, u, ctx)

    monkeypatch.setattr(PatternMatcher, "rewrite", counted)
    efforts = []
    for size in (600, 1200):
        before = make(size)
        assert len(before.toposort()) > 2 * size
        steps = 0
        simplify(before)
        efforts.append(steps)
        steps = 0
        simplify(before)
        assert steps == 0, "what has been simplified once is remembered on the node"
    assert efforts[1] < 2.2 * efforts[0]


def test_an_expression_of_thousands_of_nodes() -> None:
    before = long_chain(1700)
    assert len(before.toposort()) > 5000
    simplify(before)


def test_shared_subexpressions_are_not_unfolded() -> None:
    x: UOp = i
    for _ in range(60):
        x = (x + x) % 97 + (x // 3)
    simplify(x)
    y: UOp = i + j
    for _ in range(200):
        y = (y + y) % 1009
    assert simplify(y) is not None
