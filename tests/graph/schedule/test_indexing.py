"""Index arithmetic against NumPy and brute force: strides, reshapes, gathers, borders, reductions over nothing."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.graph.lower.evaluation import evaluate, leaf
from tests.graph.schedule.kernel_oracle import Oracle
from tinyweb import Tensor, Variable
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.schedule import schedule
from tinyweb.graph.schedule.indexing import (
    MAX_INDEX,
    ZERO,
    ElementBuilder,
    both,
    fits,
    flat_index,
    reshape_groups,
    reshape_index,
    same,
    strides,
    unbound,
)

F32, INDEX, BOOL = dtypes.float32, dtypes.index, dtypes.bool
N, M = Variable("n", 0, 6), Variable("m", 1, 4)


def test_gates_are_joined() -> None:
    a, b = leaf(BOOL, 0), leaf(BOOL, 1)
    assert both(None, None) is None
    assert both(a, None) is a and both(None, b) is b and both(a, a) is a
    assert both(a, b) is a & b


def test_the_largest_index() -> None:
    assert fits(MAX_INDEX) == MAX_INDEX == 2**31 - 2**16
    with pytest.raises(NotImplementedError, match=f"{MAX_INDEX + 1} elements with one index, and {MAX_INDEX}"):
        fits(MAX_INDEX + 1)
    assert strides((2, MAX_INDEX)) == [MAX_INDEX, 1]
    with pytest.raises(NotImplementedError):
        strides((2, MAX_INDEX + 1))
    with pytest.raises(NotImplementedError):
        unbound(MAX_INDEX + 1)


def test_the_largest_address() -> None:
    """Of more memory than an index reaches the beginning is used, and no more."""
    shape, half, last = (4, 2**29), Variable("half", 0, 2**29 - 1), UOp.const(3, INDEX)
    assert flat_index((UOp.const(2, INDEX), half), shape).vmax == 3 * 2**29 - 1
    for first in (last, Variable("first", 0, 3), leaf(INDEX, 0)):  # the last one may be any number
        with pytest.raises(NotImplementedError, match=f"goes through {2**31} elements with one index"):
            flat_index((first, half), shape)


def test_strides_and_addresses() -> None:
    assert strides(()) == [] and strides((4,)) == [1]
    assert strides((2, N + 1, 5)) == [35, 5, 1], "symbolic sizes take their maximum"
    for shape in ((3, 4), (2, 3, 5), (1, 4, 1), (2, 1, 3), (7,)):
        index = tuple(ZERO if s == 1 else leaf(INDEX, k) for k, s in enumerate(shape))
        places = list(product(*map(range, shape)))
        values = {u: np.array([p[k] for p in places], np.int32) for k, u in enumerate(index) if u is not ZERO}
        want = [np.ravel_multi_index(p, shape) for p in places]
        np.testing.assert_array_equal(evaluate(flat_index(index, shape), values), want)
    assert flat_index((ZERO, ZERO), (1, 1)) is ZERO and flat_index((), ()) is ZERO
    i = leaf(INDEX)
    assert flat_index((ZERO, i), (1, 4)) is i, "no product with 1, no sum with 0"


def test_what_counts_as_the_same_size() -> None:
    assert same(3, 3) and not same(3, 4) and same(N, N) and not same(N, M) and not same(N, 6) and not same(6, N)


def test_bound_variables_are_plain_in_kernels() -> None:
    assert unbound(N.bind(3)) is N
    assert unbound(N.bind(3) + 1) is N + 1
    assert unbound((N.bind(3) + 1) * 2) is (N + 1) * 2
    assert unbound(5).arg == 5 and unbound(N) is N


def factorisations(n: int, most: int) -> list[tuple[int, ...]]:
    if most == 0:
        return [()] if n == 1 else []
    out = [(n,)] + [(d, *rest) for d in range(1, n + 1) if n % d == 0 for rest in factorisations(n // d, most - 1)]
    return list(dict.fromkeys(out))


SHAPES = [s for s in factorisations(12, 3) if math.prod(s) == 12]


def test_every_reshape_of_twelve_elements() -> None:
    """Groups are as many as can be: they end wherever both shapes have gone through equally many elements."""
    for old, new in product(SHAPES, SHAPES):
        groups = reshape_groups(old, new)
        assert [k for olds, _ in groups for k in olds] == list(range(len(old)))
        assert [k for _, news in groups for k in news] == list(range(len(new)))
        for olds, news in groups:
            assert math.prod(old[k] for k in olds) == math.prod(new[k] for k in news)
            if not (olds and news):
                continue
            inside = {math.prod(old[olds[0] : k]) for k in olds} & {math.prod(new[news[0] : k]) for k in news}
            assert inside == {1}, (old, new, groups)
        index = tuple(ZERO if s == 1 else leaf(INDEX, k) for k, s in enumerate(new))
        places = list(product(*map(range, new)))
        values: dict[UOp, Any] = {
            u: np.array([p[k] for p in places], np.int32) for k, u in enumerate(index) if u is not ZERO
        }
        got = reshape_index(index, old, new)
        assert all(u is ZERO for u, s in zip(got, old, strict=True) if s == 1)
        want = np.unravel_index(np.arange(12), old)
        for u, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.broadcast_to(evaluate(u, values), 12), w, err_msg=f"{old} {new}")


def test_reshapes_that_keep_axes_keep_their_index() -> None:
    """An axis that is not touched costs no arithmetic."""
    i, j, k = (leaf(INDEX, n) for n in range(3))
    assert reshape_index((i, j, k), (3, 4, 5), (3, 4, 5)) == (i, j, k)
    assert reshape_index((i, j, ZERO), (3, 4), (3, 4, 1)) == (i, j)
    assert reshape_index((i, j), (3, 1, 4), (3, 4)) == (i, ZERO, j)
    merged = reshape_index((i, j), (3, 4, 5), (12, 5))
    assert merged[2] is j and merged[0].op is Ops.FLOORDIV and merged[1].op is Ops.MOD
    assert reshape_index((i, j, k), (12, 5), (3, 4, 5)) == (i * 4 + j, k)
    assert reshape_index((i, ZERO, j), (12,), (3, 1, 4)) == (i * 4 + j,)
    assert reshape_index((i,), (0, 3), (0,)) == (ZERO, ZERO) and reshape_index((i, j), (3, 0), (0, 5)) == (ZERO, ZERO)


def test_reshapes_without_elements_are_one_group() -> None:
    assert reshape_groups((0, 3), (5, 0, 2)) == [(range(2), range(3))]
    assert reshape_groups((3, 2), (5, 0)) == [(range(2), range(2))] == reshape_groups((0, 2), (5, 3))


def test_variables_are_values() -> None:
    assert one(N) is N and one(N.bind(3)) is N and one(UOp.const(2, INDEX)).arg == 2


def test_symbolic_reshapes() -> None:
    assert reshape_groups((N, 4), (N, 2, 2)) == [(range(0, 1), range(0, 1)), (range(1, 2), range(1, 3))]
    i = leaf(INDEX)
    (a, b) = reshape_index((i,), (N, 4), (N * 4,))
    assert a is i // 4 and b is i % 4
    for old, new in (((2, 3), (5,)), ((N,), (M,)), ((4,), (2, 3)), ((2, 3), (2, 3, 2)), ((2, 3, 2), (2, 3))):
        with pytest.raises(ValueError, match=r"cannot reshape .* the number of elements differs"):
            reshape_groups(old, new)


def one(u: UOp) -> UOp:
    """The kernel's expression of one element; what is read stays the memory's node."""
    build = ElementBuilder(lambda x: x if x.op is Ops.BUFFER else None, lambda b: b)
    index = tuple(ZERO if s == 1 else build.range(s, reduce=False, number=n) for n, s in enumerate(u.shape))
    return build.value(u, index)


def test_ranges_of_kernels() -> None:
    build = ElementBuilder(lambda x: None, lambda b: b)
    i, r = build.range(5, reduce=False, number=2), build.range(N + 1, reduce=True, number=2)
    assert (i.arg.name, i.arg.order, i.arg.reduce, i.src[0].arg) == ("i2", 2, False, 5)
    assert (r.arg.name, r.arg.order, r.arg.reduce, r.src[0]) == ("r2", 1002, True, N + 1)


def test_reduces_open_ranges_in_order() -> None:
    x = Tensor.empty(2, 1, 3)
    value = one(x.sum((0, 1)).uop)
    assert value.op is Ops.REDUCE and [r.arg.name for r in value.src[1:]] == ["r0"], "an axis of one element is none"
    assert one(x.sum(1).uop).op is Ops.LOAD
    two = one((x.sum(0) * Tensor.empty(4, 1, 3).max(0)).uop)
    assert sorted(u.arg.name for u in two.toposort() if u.op is Ops.RANGE) == ["i1", "r0", "r1"]
    assert [r.arg.name for r in one(x.sum().uop).src[1:]] == ["r0", "r1"]


@pytest.mark.parametrize(("op", "want"), [("sum", 0.0), ("prod", 1.0), ("max", -np.inf)])
def test_reductions_over_nothing(op: str, want: float) -> None:
    kind = {"sum": Ops.ADD, "prod": Ops.MUL, "max": Ops.MAX}[op]
    empty = UOp(Ops.REDUCE, F32, (Tensor.empty(3, 0).uop,), (kind, (1,)))
    assert one(empty) is UOp.const(want, F32)


def test_borders_are_gates() -> None:
    """Only the sides that have one; outside of it a load yields 0, and what is made of loads is chosen."""
    x = Tensor.empty(4, 5)
    for pads, conditions in (
        (((0, 0), (0, 0)), 0),
        (((1, 0), (0, 0)), 1),
        (((0, 2), (0, 0)), 1),
        (((1, 1), (2, 1)), 4),
    ):
        value = one(UOp(Ops.PAD, F32, (x.uop,), pads))
        (load,) = [u for u in value.toposort() if u.op is Ops.LOAD]
        assert value is load and (conditions == 0) == (len(load.src) == 2)
        assert sum(u.op is Ops.LESS for u in value.toposort()) == conditions
        plus = one(UOp(Ops.PAD, F32, ((x + 1).uop,), pads))
        assert sum(u.op is Ops.LESS for u in plus.toposort()) == conditions
        if conditions:
            assert plus.op is Ops.WHERE and plus.src[1].src[0] is load and plus.src[2].arg == 0
            assert plus.src[0] is load.src[2]


@pytest.mark.parametrize("axis", [0, 1])
def test_gathers(axis: int) -> None:
    """Rows out of order, picked again, and outside of the table: those are 0."""
    oracle = Oracle()
    table = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    ids = np.array([[3, 0, 2], [-1, 5, 3]] if axis == 0 else [[5, 0, 2, 4], [6, -3, 1, 1]], np.int32)
    node = UOp(Ops.TAKE, F32, (oracle.tensor(table).uop, oracle.tensor(ids[0] if axis == 0 else ids).uop), 0)
    if axis:  # with an axis that table and picks share
        ids = np.array([[5, 0], [6, -3], [1, 1], [-1, 3]], np.int32)
        node = UOp(Ops.TAKE, F32, (oracle.tensor(table).uop, oracle.tensor(ids).uop), 1)
        inside = (ids >= 0) & (ids < 6)
        want = np.where(inside, np.take_along_axis(table, np.where(inside, ids, 0), 1), 0)
    else:
        want = table[ids[0]]
    got = oracle.numpy(Tensor(node))
    np.testing.assert_array_equal(got, want)
    for picks in (np.array([0, 4, 3, -1], np.int32), np.array([[1], [7]], np.int32)):
        node = UOp(Ops.TAKE, F32, (oracle.tensor(table).uop, oracle.tensor(picks).uop), 0)
        inside = (picks >= 0) & (picks < 4)
        want = np.where(inside[..., None], table[np.where(inside, picks, 0)], 0)
        np.testing.assert_array_equal(oracle.numpy(Tensor(node)), want)


def test_a_gathered_product_is_zero_by_its_loads() -> None:
    """Where all that a value is made of is read behind the gate, it is 0 outside without being asked."""
    table, scale = Tensor.empty(4, 6), Tensor.empty(4, 1)
    picks = Tensor.empty(3, dtype=dtypes.int32).uop
    for value, plain in ((table.uop, True), ((table * scale).uop, True), (table.cast(dtypes.int32).uop, True),
                         ((table + 1.0).uop, False), ((table * 2.0).uop, False)):  # fmt: skip
        top = one(UOp(Ops.TAKE, value.dtype, (value, picks), 0))
        assert (top.op is not Ops.WHERE) == plain, value.op


def test_numbers_along_an_axis() -> None:
    oracle = Oracle()
    for dtype in (dtypes.int64, dtypes.int32):
        node = UOp(Ops.IOTA, dtype, (), 7)
        np.testing.assert_array_equal(oracle.numpy(Tensor(node)), np.arange(7))


def test_flips_and_cuts() -> None:
    oracle, x = Oracle(), np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    t = oracle.tensor(x).uop
    for axes in ((0,), (1, 2), (0, 1, 2), (2,)):
        np.testing.assert_array_equal(oracle.numpy(Tensor(UOp(Ops.FLIP, F32, (t,), axes))), np.flip(x, axes))
    cut = UOp(Ops.SHRINK, F32, (t,), ((1, 3), (0, 4), (2, 4)))
    np.testing.assert_array_equal(oracle.numpy(Tensor(cut)), x[1:3, :, 2:4])
    for order in ((2, 0, 1), (1, 0, 2)):
        np.testing.assert_array_equal(oracle.numpy(Tensor(UOp(Ops.PERMUTE, F32, (t,), order))), x.transpose(order))


def test_what_is_no_part_of_a_kernel() -> None:
    with pytest.raises(NotImplementedError, match="LEAF cannot be part of a kernel"):
        one(UOp(Ops.LEAF, F32, (Tensor.empty(3).uop,), 0))
    assert len(schedule([UOp(Ops.CONTIGUOUS, F32, (Tensor.empty(3).uop,))]).calls) == 1
