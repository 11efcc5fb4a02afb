"""Scans and scatters: one axis is serial, so that lanes, workers and threads share out the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Axis, AxisKind, Ops, UOp, as_index, substitute
from tinyweb.graph.optimize.action import Action, Schedule
from tinyweb.graph.optimize.errors import find_axis
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target

MOST_PARTS = 1 << 16


@dataclass(frozen=True)
class Partition(Action):
    """The memory that an ordered axis scatters to is divided into `parts` of equal length, which become an output axis
    `axis.part`: every part walks over the whole axis, and does the steps that store to it.
    """

    name: ClassVar[str] = "partition"
    axis: str
    parts: int

    def apply(self, kernel: UOp) -> UOp:
        r = find_axis(kernel, self.axis)
        self.require(r.arg.kind is AxisKind.ORDERED and scatters(kernel), "not the axis of a scatter")
        name = f"{self.axis}.part"
        once = all(o.arg.name != name for o in ranges_of(kernel))
        self.require(once and 1 <= self.parts <= MOST_PARTS, f"1 to {MOST_PARTS} parts, once")
        part = UOp(Ops.RANGE, dtypes.index, (as_index(self.parts),), Axis(name, r.arg.order - 1))
        stores = []
        for store in kernel.src:
            memory, index, value, *gate = store.src
            length = -(-memory.arg.size // self.parts)
            mine = (index // length).equal(part)
            whole = gate[0] & mine if gate else mine
            # what is stored by others is not loaded either
            skipped = {
                u: u.src[0].load(u.src[1], u.src[2] & mine if len(u.src) > 2 else mine)
                for u in value.toposort()
                if u.op is Ops.LOAD and r in u.ranges and u not in index.toposort()
            }
            stores.append(memory.store(index, substitute(value, skipped), whole))
        return simplify(kernel.replace(src=tuple(stores)))

    @staticmethod
    def candidates(kernel: UOp, target: Target) -> Iterator[Schedule]:
        """Parts for many threads."""
        if target.thread_dims and scatters(kernel):
            for r in serial_axes(kernel):
                for parts in (64, 256, 1024):
                    yield (Partition(r.arg.name, parts),)


def serial_axes(kernel: UOp) -> list[UOp]:
    """The ordered axes."""
    return [r for r in ranges_of(kernel) if r.arg.kind is AxisKind.ORDERED]


def scatters(kernel: UOp) -> bool:
    """Whether all that is stored lies where an index in memory says."""
    return all(any(u.op is Ops.LOAD for u in store.src[1].toposort()) for store in kernel.src)
