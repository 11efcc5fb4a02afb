"""Raise: 4-bit integers of dots become unsigned, as instructions want one operand to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, StageArg, UOp, substitute
from tinyweb.graph.optimize.errors import ScheduleError, find_axis
from tinyweb.graph.optimize.rewrite import loops_of
from tinyweb.graph.optimize.stage import MAX_STAGED, walked_inside
from tinyweb.graph.optimize.tensorize import RAISE, dot_operands
from tinyweb.graph.target import Target


@dataclass(frozen=True)
class Raise:
    """Sums of products of a parameter of 4-bit integers are taken of these + 8, which are not negative; 8 times the sum
    of the other factors is subtracted, once computed for a step of loop `at`.

    Instructions that multiply bytes want one of them unsigned, and the two of a byte come out of it by a mask.
    """

    name: ClassVar[str] = "raise"
    param: int
    at: str

    def __str__(self) -> str:
        return f"raise(p{self.param}, at={self.at})"

    def apply(self, kernel: UOp) -> UOp:
        at = find_axis(kernel, self.at, stays=True)
        if at.arg.kind not in (AxisKind.LOOP, AxisKind.GRID) or at.arg.reduce:
            raise ScheduleError(f"{self}: sums are kept for a step of an output loop or of the grid")
        table: dict[UOp, UOp] = {}
        for u in kernel.toposort():
            found = dot_operands(u) if u.op is Ops.REDUCE else None
            if found is None or not self._reads(found[0].src[0]):
                continue
            weights, other = (load.cast(dtypes.int32) for load in found)
            sums = self._sums(other, u, at, len(table))
            table[u] = sums + u.replace(src=((weights + RAISE) * other, *u.src[1:]))
        if not table:
            raise ScheduleError(f"{self}: nothing is a sum of products of 4-bit integers of that parameter")
        return substitute(kernel, table)

    def _reads(self, memory: UOp) -> bool:
        return memory.op is Ops.PARAM and memory.dtype is dtypes.int4 and memory.arg.slot == self.param

    def _sums(self, other: UOp, u: UOp, at: UOp, number: int) -> UOp:
        """-8 times the sums of `other`, kept for a step of `at`."""
        ranges = sorted((r for r in other.ranges if r not in u.src), key=lambda r: (r.arg.order, r.arg.name))
        tile = [r for r in ranges if walked_inside(r, at, Space.REGISTER)]
        sizes = [r.src[0].arg for r in tile]
        if not all(isinstance(s, int) for s in sizes) or prod(sizes) > MAX_STAGED:
            raise ScheduleError(f"{self}: the sums of a step of that axis have no constant size, or are too many")
        tile.sort(key=lambda r: (r.arg.kind is AxisKind.VECTOR, r.arg.order, r.arg.name))
        name = f"raised{self.param}" + (f"_{number}" if number else "")
        copies = {}
        for i, r in enumerate((*tile, *u.src[1:])):
            kind = r.arg.kind if r in u.src or (r is tile[-1] and r.arg.kind is AxisKind.VECTOR) else AxisKind.LOOP
            axis = replace(r.arg, name=f"{name}.{r.arg.name}", order=(1 << 16) + i, kind=kind, reduce=True)
            copies[r] = r.replace(arg=axis)
        value = substitute(other * -RAISE, copies)
        total = u.replace(src=(value, *(copies[r] for r in u.src[1:])))
        stage = UOp(Ops.STAGE, u.dtype, (total, *(copies[r] for r in tile)), StageArg(Space.REGISTER))
        index = UOp.const(0, dtypes.index)
        for r in tile:
            index = index * int(r.src[0].arg) + r
        return stage.load(index)

    @staticmethod
    def candidates(kernel: UOp, target: Target) -> Iterator[tuple[Raise, ...]]:
        """Every parameter of 4-bit integers, at every output loop and at the grid."""
        if not target.dot_lanes:
            return
        slots = [u.arg.slot for u in kernel.toposort() if u.op is Ops.PARAM and u.dtype is dtypes.int4]
        for r in loops_of(kernel).ranges:
            if r.arg.kind in (AxisKind.LOOP, AxisKind.GRID) and not r.arg.reduce:
                yield from ((Raise(slot, r.arg.name),) for slot in slots)
