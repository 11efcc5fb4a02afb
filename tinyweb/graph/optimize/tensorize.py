"""Tensorize: a part of a sum becomes an instruction of the processor; RFactor takes lanes out of such sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, StageArg, UOp, nest_key, nested, row_major, substitute, users
from tinyweb.graph.optimize.action import Action, Schedule
from tinyweb.graph.optimize.errors import ScheduleError, find_axis
from tinyweb.graph.optimize.instructions import INSTRUCTIONS, SMALL, Match, unify
from tinyweb.graph.optimize.rewrite import loops_of, replace_range
from tinyweb.graph.optimize.stage import MAX_STAGED, walked_inside
from tinyweb.graph.target import Target

LARGEST = 1 << 31  # what integer sums must stay below


@dataclass(frozen=True)
class Tensorize(Action):
    """All that is reduced over an axis are sums that an instruction computes, the axis being its first.

    Where an operand is unsigned and what stands there is not, a constant is added to it, and as many times the sum of
    the other factors is subtracted: that sum is computed once for a step of loop `at`.
    """

    name: ClassVar[str] = "tensorize"
    axis: str
    instruction: str
    at: str = ""

    def apply(self, kernel: UOp) -> UOp:
        instruction = INSTRUCTIONS.get(self.instruction)
        if instruction is None:
            raise ScheduleError(f"{self}: there is no such instruction, but {', '.join(INSTRUCTIONS)}")
        r = find_axis(kernel, self.axis)
        self.check_unbound(r)
        reduces = [u for u in kernel.toposort() if u.op is Ops.REDUCE and r in u.src[1:]]
        matches = {u: unify(instruction, u, r) for u in reduces}
        if not matches or None in matches.values():
            raise ScheduleError(f"{self}: the instruction takes {instruction}")
        if any(r in u.ranges for u in loops_of(kernel).stages):
            raise ScheduleError(f"{self}: what was staged depends on the axis; tensorize before the stage")
        shifted = {u: m for u, m in matches.items() if m is not None and any(m.shifts)}
        kernel = self._shifted(kernel, r, shifted) if shifted else kernel
        bound = r.replace(arg=replace(r.arg, kind=AxisKind.DOT))
        return replace_range(kernel, r, bound, (bound,), None)

    def _shifted(self, kernel: UOp, r: UOp, matches: dict[UOp, Match]) -> UOp:
        """Σ a · b as Σ (a + s) · b − s · Σ b."""
        at = find_axis(kernel, self.at, stays=True)
        if at.arg.kind not in (AxisKind.LOOP, AxisKind.GRID) or at.arg.reduce:
            raise ScheduleError(f"{self}: sums are kept for a step of an output loop or of the grid")
        table: dict[UOp, UOp] = {}
        names: dict[str, None] = {}
        for u, match in matches.items():
            (a, b), (shift, other) = match.factors, match.shifts
            if other or any(x.op is Ops.LOAD and x.src[0].op is not Ops.PARAM for x in a.toposort()):
                raise ScheduleError(f"{self}: one operand is shifted, which is read of a parameter")
            slot = next(x.arg.slot for x in a.toposort() if x.op is Ops.PARAM)
            name = f"raised{slot}"
            name += f"_{sum(n.startswith(name) for n in names)}" if name in names else ""
            names[name] = None
            table[u] = self._kept(b, -shift, u, at, name) + u.replace(src=((a + shift) * b, *u.src[1:]))
        return substitute(kernel, table)

    def _kept(self, other: UOp, factor: int, u: UOp, at: UOp, name: str) -> UOp:
        """The sums of what the shifted operand is multiplied with, times a factor, kept for a step of `at`."""
        ranges = nested(r for r in other.ranges if r not in u.src)
        tile = [r for r in ranges if walked_inside(r, at, Space.REGISTER)]
        sizes = [r.src[0].arg for r in tile]
        if not all(isinstance(s, int) for s in sizes) or prod(sizes) > MAX_STAGED:
            raise ScheduleError(f"{self}: the sums of a step of that axis have no constant size, or are too many")
        tile.sort(key=lambda r: (r.arg.kind is AxisKind.VECTOR, nest_key(r)))
        copies = {}
        for i, r in enumerate((*tile, *u.src[1:])):
            kind = AxisKind.LOOP
            if r.arg.name == self.axis:
                kind = AxisKind.DOT
            elif r in u.src or (r is tile[-1] and r.arg.kind is AxisKind.VECTOR):
                kind = r.arg.kind
            axis = replace(r.arg, name=f"{name}.{r.arg.name}", order=(1 << 16) + i, kind=kind, reduce=True)
            copies[r] = r.replace(arg=axis)
        value = substitute(other * factor, copies)
        total = u.replace(src=(value, *(copies[r] for r in u.src[1:])))
        stage = UOp(Ops.STAGE, u.dtype, (total, *(copies[r] for r in tile)), StageArg(Space.REGISTER))
        return stage.load(row_major(tile))

    @staticmethod
    def candidates(kernel: UOp, target: Target) -> Iterator[Schedule]:
        """Every reduced axis that has an instruction's steps, with the sums of shifts kept for any output loop."""
        ranges = loops_of(kernel).ranges
        for r in ranges:
            if not r.arg.reduce or r.arg.kind is not AxisKind.LOOP:
                continue
            for name in target.instructions:
                match = next((m for u in kernel.toposort() if (m := unify(INSTRUCTIONS[name], u, r))), None)
                if match is None:
                    continue
                places = [
                    o.arg.name for o in ranges if o.arg.kind in (AxisKind.LOOP, AxisKind.GRID) and not o.arg.reduce
                ]
                for at in places if any(match.shifts) else [""]:
                    yield (Tensorize(r.arg.name, name, at),)


def products(reduce: UOp) -> tuple[UOp, UOp] | None:
    """The two loads of a REDUCE that adds up products of small integers in int32, the narrower one first."""
    value = reduce.src[0]
    if reduce.arg is not Ops.ADD or reduce.dtype is not dtypes.int32 or value.op is not Ops.MUL:
        return None
    found = tuple(s.src[0] for s in value.src if s.op is Ops.CAST and s.src[0].op is Ops.LOAD)
    if len(found) != 2 or not all(u.dtype in SMALL for u in found):
        return None
    a, b = sorted(found, key=lambda u: u.dtype.bits)
    return (a, b)


@dataclass(frozen=True)
class RFactor(Action):
    """An axis of integer sums inside of a float sum goes to the float sum: Σ s · float(Σ v) becomes Σ Σ s · float(v).

    Each lane of the axis then has a sum of its own until the end, instead of being added up in every step of the outer
    sum. Only of integers that cannot overflow; where they are beyond 2²⁴, both ways round to float32, at other places.
    """

    name: ClassVar[str] = "rfactor"
    axis: str

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
    def candidates(kernel: UOp, target: Target) -> Iterator[Schedule]:
        """Every reduced axis of integer sums that stand inside of others."""
        for r in loops_of(kernel).ranges:
            if r.arg.reduce and any(
                u.op is Ops.REDUCE and r in u.src[1:] and len(u.src) > 2 and u.dtype.is_int for u in kernel.toposort()
            ):
                yield (RFactor(r.arg.name),)
