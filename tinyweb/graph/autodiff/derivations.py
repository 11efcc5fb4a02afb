"""Small constructions on tensor-graph nodes that the rules share: constants, views, sums."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, Shape, Size, UOp, size_max
from tinyweb.graph.ir.invariants import same_sizes


def reshape(x: UOp, shape: Shape) -> UOp:
    if same_sizes(x.shape, shape):
        return x
    return UOp(Ops.RESHAPE, x.dtype, (x,), tuple(shape))


def permute(x: UOp, axes: Sequence[int]) -> UOp:
    return x if tuple(axes) == tuple(range(len(axes))) else UOp(Ops.PERMUTE, x.dtype, (x,), tuple(axes))


def expand(x: UOp, shape: Shape) -> UOp:
    """`x`, of the rank of `shape` or a scalar, with its axes of size 1 grown."""
    x = reshape(x, (1,) * len(shape)) if not x.shape else x
    return x if same_sizes(x.shape, shape) else UOp(Ops.EXPAND, x.dtype, (x,), tuple(shape))


def full(value: float, dtype: DType, shape: Shape) -> UOp:
    return expand(UOp.const(value, dtype), shape)


def total(x: UOp, axes: Sequence[int]) -> UOp:
    """The sum over axes, which keep size 1; half floats are summed in float32."""
    axes = tuple(a for a in axes if x.shape[a] != 1)
    if not axes:
        return x
    wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
    return UOp(Ops.REDUCE, wide.dtype, (wide,), (Ops.ADD, axes)).cast(x.dtype)


def iota(size: Size) -> UOp:
    """0 … size-1 as int32."""
    whole = UOp(Ops.IOTA, dtypes.int32, (), size_max(size))
    return whole if isinstance(size, int) else UOp(Ops.SHRINK, dtypes.int32, (whole,), ((0, size),))


def not_(x: UOp) -> UOp:
    return UOp(Ops.XOR, dtypes.bool, (x, UOp.const(True, dtypes.bool)))
