"""What every stage asks of RANGEs and REDUCEs: sizes, how they nest, which are lanes, and the number of a step."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir.on_node import on_node
from tinyweb.graph.ir.ops import AxisKind, Ops
from tinyweb.graph.ir.uop import Size, UOp

LANES = frozenset({AxisKind.VECTOR, AxisKind.UNROLL, AxisKind.DOT, AxisKind.TILE})


def axis_size(r: UOp) -> Size:
    """The size of a RANGE (or of a hardware index) as an int where it is constant."""
    return int(r.src[0].arg) if r.src[0].op is Ops.CONST else r.src[0]


def nest_key(r: UOp) -> tuple[int, str]:
    """Sorts ranges from the outside in."""
    return (r.arg.order, r.arg.name)


def nested(ranges: Iterable[UOp]) -> list[UOp]:
    """Ranges from the outside in."""
    return sorted(ranges, key=nest_key)


def is_lane(u: UOp) -> bool:
    return u.op is Ops.RANGE and u.arg.kind in LANES


def lane_count(r: UOp) -> int:
    """The size of a lane range; ValueError if it is not constant."""
    size = axis_size(r)
    if not isinstance(size, int):
        raise ValueError(f"axis {r.arg.name} is bound to {r.arg.kind.name.lower()} and needs a constant size")
    return size


def volume(ranges: Iterable[UOp]) -> int:
    """Steps of a nest of ranges, at most."""
    return prod(r.src[0].vmax for r in ranges)


def row_major(ranges: Iterable[UOp]) -> UOp:
    """The number of a step of ranges that nest in this order, the last fastest."""
    index = UOp.const(0, dtypes.index)
    for r in ranges:
        index = index * r.src[0] + r
    return index


def identity(op: Ops, dtype: DType) -> UOp:
    """The value that changes nothing when it is reduced with `op`."""
    if op is Ops.ADD:
        return UOp.const(0, dtype)
    if op is Ops.MUL:
        return UOp.const(1, dtype)
    if op is Ops.MAX:
        return UOp.const(dtype.min, dtype)
    raise ValueError(f"no reduction with {op.name}: use ADD, MUL or MAX")


def specials_of(u: UOp) -> frozenset[UOp]:
    """The hardware indices that a value varies over: not those it is reduced or staged over."""
    return on_node(u, "_specials", _specials_of)


def _specials_of(u: UOp) -> frozenset[UOp]:
    if u.op is Ops.SPECIAL:
        return frozenset((u,))
    found: frozenset[UOp] = frozenset().union(*(specials_of(s) for s in u.src))
    return found.difference(u.src[1:]) if u.op in (Ops.REDUCE, Ops.STAGE) else found
