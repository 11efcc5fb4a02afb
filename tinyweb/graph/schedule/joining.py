"""Arrays one behind the other, as nodes."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, Size, UOp, size_add, size_max, size_sub


def joined(parts: Sequence[UOp], axis: int) -> UOp:
    """`parts`, of one dtype and of shapes that differ along `axis` alone, one behind the other.

    An element is chosen by the part that it comes from, not made a sum of parts with zeros around: NaN and -0 survive.
    """
    if len(parts) == 1:
        return parts[0]
    total: Size = 0
    for p in parts:
        total = size_add(total, p.shape[axis])
    shape = tuple(total if a == axis else s for a, s in enumerate(parts[0].shape))
    place = UOp(Ops.IOTA, dtypes.int32, (), size_max(total))
    if not isinstance(total, int):
        place = UOp(Ops.SHRINK, dtypes.int32, (place,), ((0, total),))
    if len(shape) > 1:
        place = UOp(Ops.RESHAPE, dtypes.int32, (place,), tuple(total if a == axis else 1 for a in range(len(shape))))
    if place.shape != shape:
        place = UOp(Ops.EXPAND, dtypes.int32, (place,), shape)
    result: UOp | None = None
    at: Size = 0
    for p in parts:
        around = (at, size_sub(size_sub(total, at), p.shape[axis]))
        wide = p
        if around != (0, 0):
            wide = UOp(Ops.PAD, p.dtype, (p,), tuple(around if a == axis else (0, 0) for a in range(len(shape))))
        if result is None:
            result = wide
        else:
            start = at if isinstance(at, UOp) else UOp.const(at, dtypes.int32)
            before = UOp(Ops.LESS, dtypes.bool, (place, start.cast(dtypes.int32)))
            result = UOp(Ops.WHERE, p.dtype, (before, result, wide))
        at = size_add(at, p.shape[axis])
    assert result is not None
    return result
