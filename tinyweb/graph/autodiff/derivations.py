"""Small constructions on tensor-graph nodes that the rules share: constants, views, sums."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, Shape, Size, UOp, size_max, size_prod, size_sub
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


def flip(x: UOp, axis: int) -> UOp:
    return UOp(Ops.FLIP, x.dtype, (x,), (axis,))


def shifted(x: UOp, axis: int, by: int) -> UOp:
    """Element i - by in the place of element i, for by = 1 or -1; zero where there is none."""
    end = size_sub(x.shape[axis], 1)
    part = (0, end) if by > 0 else (1, x.shape[axis])
    around = (1, 0) if by > 0 else (0, 1)
    kept = UOp(Ops.SHRINK, x.dtype, (x,), tuple(part if a == axis else (0, s) for a, s in enumerate(x.shape)))
    return UOp(Ops.PAD, x.dtype, (kept,), tuple(around if a == axis else (0, 0) for a in range(len(x.shape))))


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
