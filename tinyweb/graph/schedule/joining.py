"""Arrays one behind the other, as nodes."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, Size, UOp, size_add, size_sub, through
from tinyweb.graph.ir.invariants import same_sizes
from tinyweb.graph.ir.movement import expand, iota, pad, reshape

RENAMED = (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND)


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


def is_join(u: UOp) -> bool:
    """Whether a choice is one between the two sides of a constant step of an axis."""
    return _axis_size(u) is not None


def parts_of(u: UOp) -> list[UOp]:
    """The parts that a value is a join of along an axis; itself, if it is none."""
    parts: list[UOp] = []
    size = _axis_size(u)
    while size is not None and same_sizes((_axis_size(u) or 0,), (size,)):
        parts.append(u.src[2])
        u = u.src[1]
    return [p.src[0] if p.op is Ops.PAD else p for p in (*parts, u)] if parts else [u]


def _axis_size(u: UOp) -> Size | None:
    """How long the axis is that a value is a join of two sides along; None if it is none."""
    sides = [through(s, RENAMED)[1] for s in u.src[0].src] if u.op is Ops.WHERE and u.src[0].op is Ops.LESS else []
    places, step = (s.src[0] if s.op is Ops.CAST else s for s in sides) if sides else (u, u)
    return places.shape[0] if (places.op, step.op) == (Ops.IOTA, Ops.CONST) else None
