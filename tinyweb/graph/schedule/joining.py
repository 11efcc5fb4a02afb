"""Arrays one behind the other, as nodes."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, Size, UOp, size_add, size_sub
from tinyweb.graph.ir.movement import expand, iota, pad, reshape


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
    place = expand(reshape(iota(total), tuple(total if a == axis else 1 for a in range(len(shape)))), shape)
    result: UOp | None = None
    at: Size = 0
    for p in parts:
        wide = pad(p, axis, at, size_sub(size_sub(total, at), p.shape[axis]))
        if result is None:
            result = wide
        else:
            start = at if isinstance(at, UOp) else UOp.const(at, dtypes.int32)
            before = UOp(Ops.LESS, dtypes.bool, (place, start.cast(dtypes.int32)))
            result = UOp(Ops.WHERE, p.dtype, (before, result, wide))
        at = size_add(at, p.shape[axis])
    assert result is not None
    return result
