"""The largest place at which something holds, looked for in ascending order, is the last one found.

A maximum of `condition ? place : identity` whose places grow from step to step needs no comparison of places: each one
found replaces the one before. Places that fall, as those of the first of several maxima, grow from the last step on.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.graph.ir import ELEMENTWISE, Ops, UOp, identity, substitute
from tinyweb.graph.symbolic import simplify


def last_found(value: UOp, loops: Sequence[UOp]) -> tuple[UOp, UOp] | None:
    """Of a value whose maximum is taken over nested `loops`, outermost first: (condition, place), in an order of steps
    in which no place is less than one found before; None where that is not known."""
    if value.op is not Ops.WHERE or not value.dtype.is_int or not loops:
        return None
    condition, place, other = value.src
    neutral = identity(Ops.MAX, value.dtype)
    if place is neutral:
        condition, place, other = condition.logical_not(), other, place
    if other is not neutral:
        return None
    slope = _slope(place, loops)
    if slope > 0:
        return condition, place
    if slope < 0 and all(_is_movable(u, loops) for u in value.toposort()):
        back = {r: r.src[0] - 1 - r for r in loops}
        return substitute(condition, back), substitute(place, back)
    return None


def _slope(place: UOp, loops: Sequence[UOp]) -> int:
    """1 where places never fall from one step to the next, -1 where they never rise, 0 where neither is known."""
    if place.op is Ops.MUL and place.src[1].op is Ops.CONST and place.src[1].arg == -1:
        return -_slope(place.src[0], loops)
    if place.op is Ops.CAST and place.src[0].dtype.is_int and place.src[0].dtype.bits <= place.dtype.bits:
        return _slope(place.src[0], loops)
    if place.dtype.kind != "index" or any(r in loops for s in loops for r in s.src[0].ranges):
        return 0
    steps = []
    for i, r in enumerate(loops):  # from the last step of the loops inside of r to the first of them in the next
        inner = loops[i + 1 :]
        after = substitute(place, {r: r + 1} | {s: UOp.const(0, s.dtype) for s in inner})
        steps.append(simplify(after - substitute(place, {s: s.src[0] - 1 for s in inner})))
    if all(s.vmin >= 0 for s in steps):
        return 1
    return -1 if all(s.vmax <= 0 for s in steps) else 0


def _is_movable(u: UOp, loops: Sequence[UOp]) -> bool:
    """Whether a node can be computed for another step: one of arithmetic, or a load of what steps leave alone."""
    if u in loops or u.ranges.isdisjoint(loops):
        return True
    return u.op in ELEMENTWISE or (u.op is Ops.LOAD and u.src[0].ranges.isdisjoint(loops))
