"""Sums of products of small integers: which axes an integer dot instruction can carry out, and Spread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, substitute, users
from tinyweb.graph.optimize.errors import ScheduleError, find_axis
from tinyweb.graph.optimize.rewrite import loops_of
from tinyweb.graph.target import Target

# products that a dot instruction adds up: of 8-bit integers, and of 16-bit ones, which 8-bit ones can be widened to
DOT_STEPS, DOT_PAIRS = 4, 2
FIELD = 4  # integers of 4 bits in 16: a shift takes the same one out of all half words of a vector
NIBBLES = 2  # integers of 4 bits in a byte: a mask takes the same one out of all bytes of a vector
RAISE = 8  # makes 4-bit integers 0 … 15, as instructions want one operand to be
SMALL = (dtypes.int4, dtypes.int8, dtypes.int16)
LARGEST = 1 << 31  # what integer sums must stay below


def dot_operands(reduce: UOp) -> tuple[UOp, UOp] | None:
    """The two loads of a REDUCE that adds up products of small signed integers as int32, the narrower one first."""
    value = reduce.src[0]
    if reduce.arg is not Ops.ADD or reduce.dtype is not dtypes.int32 or value.op is not Ops.MUL:
        return None
    found = tuple(s.src[0] for s in value.src if s.op is Ops.CAST and s.src[0].op is Ops.LOAD)
    if len(found) != 2 or not all(u.dtype in SMALL for u in found):
        return None
    a, b = sorted(found, key=lambda u: u.dtype.bits)
    return (a, b)


def dot_steps(reduce: UOp) -> tuple[int, ...]:
    """How many products a dot may take of a REDUCE's; none where there is no such instruction."""
    found = dot_operands(reduce)
    if found is None or all(u.dtype is dtypes.int4 for u in found):
        return ()
    return (DOT_PAIRS,) if dtypes.int16 in (u.dtype for u in found) else (DOT_STEPS, DOT_PAIRS)


def are_dots(kernel: UOp, r: UOp) -> bool:
    """Whether all that is reduced over an axis are sums of products for dots of as many steps as the axis has."""
    reduces = [u for u in kernel.toposort() if u.op is Ops.REDUCE and r in u.src[1:]]
    return bool(reduces) and all(r.src[0].arg in dot_steps(u) for u in reduces)


@dataclass(frozen=True)
class Spread:
    """An axis of integer sums inside of a float sum goes to the float sum: Σ s · float(Σ v) becomes Σ Σ s · float(v).

    Each lane of the axis then has a sum of its own until the end, instead of being added up in every step of the outer
    sum. Only of integers that cannot overflow; where they are beyond 2²⁴, both ways round to float32, at other places.
    """

    name: ClassVar[str] = "spread"
    axis: str

    def __str__(self) -> str:
        return f"spread({self.axis})"

    def apply(self, kernel: UOp) -> UOp:
        r = find_axis(kernel, self.axis)
        inner = [u for u in kernel.toposort() if u.op is Ops.REDUCE and r in u.src[1:]]
        if not inner:
            raise ScheduleError(f"{self}: the axis is not reduced")
        above = users([kernel])
        changed: dict[UOp, UOp] = {}
        outer: dict[UOp, None] = {}
        for u in inner:
            self._check(u)
            if len(u.src) == 2:
                raise ScheduleError(f"{self}: no integer sum would be left inside")
            changed[u] = u.replace(src=tuple(s for s in u.src if s is not r))
            outer[self._float_sum(u, above)] = None
        table = {o: o.replace(src=(substitute(o.src[0], changed), *o.src[1:], r)) for o in outer}
        return substitute(kernel, table)

    def _check(self, u: UOp) -> None:
        value = u.src[0]
        steps = prod(s.src[0].vmax for s in u.src[1:])
        if u.arg is not Ops.ADD or not u.dtype.is_int or max(-value.vmin, value.vmax) * steps >= LARGEST:
            raise ScheduleError(f"{self}: it must be an axis of a sum of integers that cannot overflow")

    def _float_sum(self, u: UOp, above: dict[UOp, list[UOp]]) -> UOp:
        """The sum that an integer sum is a term of, up to factors."""
        node = u
        while len(above[node]) == 1:
            (user,) = above[node]
            if user.op is Ops.REDUCE and user.arg is Ops.ADD and user.dtype is dtypes.float32:
                return user
            scaled = user.op is Ops.MUL and user.dtype is dtypes.float32 and user.src[0] is not user.src[1]
            cast = user.op is Ops.CAST and user.dtype is dtypes.float32 and node is u
            if not (scaled or cast):
                break
            node = user
        raise ScheduleError(f"{self}: the integer sum is no term of a sum of floats")

    @staticmethod
    def candidates(kernel: UOp, target: Target) -> Iterator[tuple[Spread, ...]]:
        """Every reduced axis of integer sums that stand inside of others."""
        for r in loops_of(kernel).ranges:
            if r.arg.reduce and any(
                u.op is Ops.REDUCE and r in u.src[1:] and len(u.src) > 2 and u.dtype.is_int for u in kernel.toposort()
            ):
                yield (Spread(r.arg.name),)
