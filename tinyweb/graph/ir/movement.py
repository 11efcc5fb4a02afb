"""Views of a tensor as nodes of the graph: what changes nothing is the tensor itself."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir.invariants import same_sizes
from tinyweb.graph.ir.ops import Ops
from tinyweb.graph.ir.uop import Shape, Size, UOp, size_max


def reshape(x: UOp, shape: Shape) -> UOp:
    return x if same_sizes(x.shape, shape) else UOp(Ops.RESHAPE, x.dtype, (x,), tuple(shape))


def permute(x: UOp, axes: Sequence[int]) -> UOp:
    return x if tuple(axes) == tuple(range(len(axes))) else UOp(Ops.PERMUTE, x.dtype, (x,), tuple(axes))


def expand(x: UOp, shape: Shape) -> UOp:
    """`x`, of the rank of `shape` or a scalar, with its axes of size 1 grown."""
    x = reshape(x, (1,) * len(shape)) if not x.shape else x
    return x if same_sizes(x.shape, shape) else UOp(Ops.EXPAND, x.dtype, (x,), tuple(shape))


def full(value: float, dtype: DType, shape: Shape) -> UOp:
    return expand(UOp.const(value, dtype), shape)


def flip(x: UOp, axis: int) -> UOp:
    return UOp(Ops.FLIP, x.dtype, (x,), (axis,))


def shrink(x: UOp, axis: int, begin: Size, end: Size) -> UOp:
    """The elements from `begin` to before `end` along an axis."""
    if same_sizes((begin, end), (0, x.shape[axis])):
        return x
    return UOp(Ops.SHRINK, x.dtype, (x,), tuple((begin, end) if a == axis else (0, s) for a, s in enumerate(x.shape)))


def pad(x: UOp, axis: int, before: Size, after: Size = 0) -> UOp:
    """So many zeros before and after along an axis."""
    if same_sizes((before, after), (0, 0)):
        return x
    return UOp(Ops.PAD, x.dtype, (x,), tuple((before, after) if a == axis else (0, 0) for a in range(len(x.shape))))


def iota(size: Size) -> UOp:
    """0 … size-1 as int32."""
    return shrink(UOp(Ops.IOTA, dtypes.int32, (), size_max(size)), 0, 0, size)


def shaped(buffer: UOp, shape: Shape) -> UOp:
    """The first elements of a BUFFER as an array of `shape`; symbolic sizes take their maximum in memory."""
    view = reshape(buffer, tuple(size_max(s) for s in shape))
    if same_sizes(view.shape, shape):
        return view
    return UOp(Ops.SHRINK, buffer.dtype, (view,), tuple((0, s) for s in shape))
