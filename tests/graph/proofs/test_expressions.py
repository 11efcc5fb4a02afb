"""What the compiler finds out about whole expressions, proven of random ones: simplified forms, forms under a gate,
bounds, factors, strides."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import z3

from tests.graph.proofs.instances import Instances, divided, large_leaves
from tests.graph.proofs.prove import Unproven, cases, needs_words, prove_same, solve
from tests.graph.proofs.terms import Numbers, Words
from tests.graph.symbolic.oracle import Maker, assert_same, show
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp, as_index
from tinyweb.graph.symbolic import const_factor, proves_less, simplify, simplify_given, split_by

TYPES = (dtypes.index, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32)
COUNT, MANY = 15, 250
some = pytest.mark.parametrize("count", [COUNT, pytest.param(MANY, marks=pytest.mark.slow)])


def expressions(dtype: DType, count: int, depth: int = 2) -> Iterator[tuple[Maker, UOp]]:
    for seed in range(count):
        # an index has no numbers near the ends of 32 bits: what overflows is not kept
        maker = (Maker if dtype is dtypes.index else Instances)(random.Random(seed), large_leaves(dtype))
        yield maker, maker.expression(depth)
        yield maker, maker.chance.choice(list(divided(maker)))


def same(before: UOp, after: UOp, given: UOp | None = None) -> bool:
    """Whether it could be proven; what cannot is at least tried out."""
    try:
        prove_same(before, after, given, effort=10)
        return True
    except Unproven:
        if given is None:
            assert_same(before, after, most=2000)
        return False


@some
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_simplify(dtype: DType, count: int) -> None:
    tried = [same(u, simplify(u)) for _, u in expressions(dtype, count)]
    assert sum(tried) > 0.7 * len(tried)


@some
def test_simplify_given(count: int) -> None:
    """Where the gate holds the value is kept; a gate and what is left of another under it say what both said."""
    tried = []
    for maker, u in expressions(dtypes.index, count):
        gate = maker.boolean(1) & maker.boolean(1)
        if not needs_words(u, gate):
            tried.append(same(u, simplify_given(u, gate), gate))
    assert sum(tried) > 0.7 * len(tried)


def holds(u: UOp, claim: object) -> bool:
    """Whether Z3 proves a claim about the value of a node; AssertionError with a counterexample."""
    assert callable(claim)
    for (root,) in cases(u):
        words = needs_words(root)
        terms = Words() if words else Numbers()
        value = terms(root)
        if words:
            value = z3.BV2Int(value, u.dtype.is_signed)
        try:
            model = solve(terms, z3.Not(claim(value)), effort=10)
        except Unproven:
            return False
        assert model is None, f"{show(u)}: {model}"
    return True


@some
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_bounds_and_factors(dtype: DType, count: int) -> None:
    tried = []
    for _, root in expressions(dtype, count):
        for u in root.toposort():
            low, high = u.bounds
            if u.dtype.is_int and u.op is not Ops.CONST and (low, high) != (u.dtype.min, u.dtype.max):
                tried.append(holds(u, lambda v, low=low, high=high: z3.And(low <= v, v <= high)))
            if u.dtype.is_int and (factor := const_factor(u)) > 1:
                tried.append(holds(u, lambda v, factor=factor: v % factor == 0))
    assert sum(tried) > 0.7 * len(tried) and len(tried) > count


@some
def test_strides(count: int) -> None:
    found = 0
    for _, u in expressions(dtypes.index, 2 * count):
        if u.dtype is not dtypes.index:
            continue
        for r in [n for n in u.toposort() if n.op is Ops.RANGE and n.src[0].op is Ops.CONST]:
            parts = split_by(u, r)
            if parts is not None:
                stride, rest = as_index(parts[0]), parts[1]
                assert r not in stride.ranges and r not in rest.ranges
                found += same(u, r * stride + rest)
    assert found >= count // 3


@some
def test_proofs_of_less(count: int) -> None:
    found = 0
    for maker, a in expressions(dtypes.index, 2 * count, depth=1):
        b = maker.integer(1)
        if a.dtype is dtypes.index and not needs_words(a, b):
            for x, y in ((a, b), (a, b + 4096), (a % 8, b.maximum(8)), (a, a + 1)):
                if proves_less(x, y):
                    found += same(x < y, UOp.const(True, dtypes.bool))
    assert found > count // 2
