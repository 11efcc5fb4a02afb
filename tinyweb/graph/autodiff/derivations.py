"""Small constructions on tensor-graph nodes that the rules share: sums, scans, scatters."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, size_prod, size_sub
from tinyweb.graph.ir.movement import pad, reshape, shrink


def total(x: UOp, axes: Sequence[int]) -> UOp:
    """The sum over axes, which keep size 1; half floats are summed in float32."""
    axes = tuple(a for a in axes if x.shape[a] != 1)
    if not axes:
        return x
    wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
    return UOp(Ops.REDUCE, wide.dtype, (wide,), (Ops.ADD, axes)).cast(x.dtype)


def shifted(x: UOp, axis: int, by: int) -> UOp:
    """Element i - by in the place of element i, for by = 1 or -1; zero where there is none."""
    if by > 0:
        return pad(shrink(x, axis, 0, size_sub(x.shape[axis], 1)), axis, 1)
    return pad(shrink(x, axis, 1, x.shape[axis]), axis, 0, 1)


def scan(x: UOp, axis: int) -> UOp:
    """Sums of all elements up to each along an axis."""
    return UOp(Ops.SCAN, x.dtype, (x,), (Ops.ADD, axis))


def scatter(x: UOp, index: UOp, values: UOp, shared: int, op: Ops | None) -> UOp:
    """`x` with the values combined at what `index` names: axes as those of TAKE."""
    picks = size_prod(index.shape[shared:])
    index = reshape(index, (*index.shape[:shared], picks))
    values = reshape(values, (*index.shape, *x.shape[shared + 1 :]))
    return UOp(Ops.SCATTER, x.dtype, (x, index, values), (shared, op))


def not_(x: UOp) -> UOp:
    return UOp(Ops.XOR, dtypes.bool, (x, UOp.const(True, dtypes.bool)))
