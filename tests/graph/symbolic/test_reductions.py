"""A reduction of what is its identity in all steps of a loop but one is that step: on all values of small types, and
with the memory that it reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest

from tests.graph.symbolic.oracle import RANGE, assert_same, leaf
from tinyweb import Tensor
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp, identity, substitute
from tinyweb.graph.symbolic import simplify
from tinyweb.tracing import capture

SIZE = 6
TYPES = (dtypes.int8, dtypes.uint8, dtypes.index)
FOLDS: dict[Ops, Callable[[UOp, UOp], UOp]] = {
    Ops.ADD: lambda a, b: a + b, Ops.MUL: lambda a, b: a * b, Ops.MAX: lambda a, b: a.maximum(b)
}  # fmt: skip


def step(r: UOp, dtype: DType) -> UOp:
    return r if dtype is dtypes.index else r.cast(dtype)


def unrolled(u: UOp) -> UOp:
    """A reduction written out."""
    (r,) = u.src[1:]
    steps = [substitute(u.src[0], {r: UOp.const(i, r.dtype)}) for i in range(SIZE)]
    return reduce(FOLDS[u.arg], steps)


def reduced(value: UOp, r: UOp, op: Ops) -> UOp:
    return UOp(Ops.REDUCE, value.dtype, (value, r), op)


@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
def test_one_step_of_a_loop_is_chosen(dtype: DType, op: Ops) -> None:
    r, other = RANGE("r", SIZE), leaf("y", -1, 3, dtypes.int8)
    low, high = (-9, 12) if dtype is dtypes.index else (int(dtype.min), int(dtype.max))
    e, k = leaf("e", low, high, dtype), step(r, dtype)
    nothing = identity(op, dtypes.int8)
    value = (r * 3 - 7).cast(dtypes.int8)
    conditions = [k.equal(e), (k + 2).equal(e), e.equal(k), k.equal(e) & (other < 2)]
    conditions += [(-k).equal(e + 1)] if dtype is not dtypes.uint8 else []
    values = [c.where(value, nothing) for c in conditions]
    values.append(conditions[1].where((other < 2).where(value, nothing), nothing))
    values.append(conditions[0].logical_not().where(nothing, value))
    if op is Ops.ADD:
        one = conditions[3].cast(dtypes.int8)
        values += [
            one,
            one * value,
            value * other * one,
            -(one * value),
            (one * other).cast(dtypes.int32) * r.cast(dtypes.int32),
        ]
    for v in values:
        u = reduced(v, r, op)
        out = simplify(u)
        assert not any(n.op is Ops.REDUCE for n in out.toposort()), v
        assert_same(unrolled(u), out)


def test_what_several_steps_contribute_to_stays_a_reduction() -> None:
    one, nothing = (UOp.const(n, dtypes.int32) for n in (1, 0))
    r, e, b = RANGE("r", SIZE), leaf("e", 0, 255, dtypes.uint8), leaf("b", 0, 1, dtypes.bool)
    value, k = (r * 3).cast(dtypes.int32), r.cast(dtypes.uint8)
    long = RANGE("l", 300)
    for v, loop in (
        (k.equal(e).where(value, one), r),  # not the identity elsewhere
        ((k.equal(e) | b).where(value, nothing), r),
        ((k * 2).equal(e).where(value, nothing), r),  # may have no solution within
        ((k * k).equal(e).where(value, nothing), r),
        (k.equal((r // 2).cast(dtypes.uint8)).where(value, nothing), r),
        (long.cast(dtypes.uint8).equal(e).where((long * 3).cast(dtypes.int32), nothing), long),  # 255 is followed by 0
        (value.cast(dtypes.float32) * k.equal(e).cast(dtypes.float32), r),  # an infinity times 0 is not 0
    ):
        out = simplify(reduced(v, loop, Ops.ADD))
        assert any(n.op is Ops.REDUCE for n in out.toposort()), v


def test_other_loops_stay() -> None:
    r, q = RANGE("r", SIZE), RANGE("q", 4, 1)
    e = leaf("e", -2, 9)
    v = r.equal(e).where((r * 5 + q).cast(dtypes.int32), UOp.const(0, dtypes.int32))
    out = simplify(UOp(Ops.REDUCE, v.dtype, (v, r, q), Ops.ADD))
    (left,) = (n for n in out.toposort() if n.op is Ops.REDUCE)
    assert left.src[1:] == (q,)


@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
def test_only_the_chosen_element_is_read(device: str) -> None:
    """Also where the index lies outside: nothing is read then."""
    random = np.random.default_rng(7)
    rows, classes = 23, 37
    x = random.standard_normal((rows, classes), dtype=np.float32)
    x[:, 5] = np.nan
    index = random.choice([i for i in range(-3, classes + 3) if i != 5], rows).astype(np.int32)
    table, places = Tensor(x, device=device).realize(), Tensor(index, device=device).realize()
    inside = (index >= 0) & (index < classes)
    expected = np.where(inside, np.take_along_axis(x, np.clip(index, 0, classes - 1)[:, None], 1)[:, 0], 0)

    def chosen() -> Tensor:
        return places.one_hot(classes).bool().where(table, 0).sum(1)

    np.testing.assert_array_equal(chosen().numpy(), expected)
    (call,) = capture(chosen).calls
    assert not any(u.op is Ops.REDUCE for u in call.kernel.toposort())
    best = places.one_hot(classes).bool().where(table, -np.inf).max(1).numpy()
    np.testing.assert_array_equal(best, np.where(inside, expected, -np.inf))
