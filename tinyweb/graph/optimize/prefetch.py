"""Prefetch: memory that is read once, from its beginning to its end, is asked for some way ahead.

A processor's own prefetcher follows such reads as well, but not beyond a page of 4 KiB: behind each it starts anew.
That is hidden where little is computed with a byte, and reading ahead is far ahead: asking as well costs float32 a
tenth of its speed. Weights of 8 or 4 bits keep the processor busy, and gain a fifth or more (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tinyweb.graph.ir import AxisKind, Ops, UOp, axis_size, lane_count, substitute
from tinyweb.graph.optimize.action import Action, Schedule
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of
from tinyweb.graph.symbolic import stride_of
from tinyweb.graph.target import Target

LEAST = 1 << 17  # bytes of a parameter: of a smaller one much is cached already
BLOCK = 1 << 16  # bytes one step of the grid may read: it need not read them in order
WIDTH = 16  # bytes of a load: asking once for every number would cost more than it brings
FARTHEST = 1 << 20


@dataclass(frozen=True)
class Prefetch(Action):
    """Each load of whole vectors of parameter `param` also asks for what lies `ahead` bytes behind it."""

    param: int
    ahead: int

    def apply(self, kernel: UOp) -> UOp:
        found = [u for u in kernel.toposort() if u.op is Ops.PARAM and u.arg.slot == self.param]
        only_read = found and not any(s.src[0] in found for s in kernel.src)
        self.require(only_read, "the kernel has no such parameter that it only reads")
        self.require(0 < self.ahead <= FARTHEST, f"1 to {FARTHEST} bytes ahead")
        return substitute(kernel, {u: u.replace(arg=replace(u.arg, ahead=self.ahead)) for u in found})

    @staticmethod
    def candidates(kernel: UOp, target: Target) -> Iterator[Schedule]:
        """Parameters that are read in order, where the target can ask ahead."""
        for u in read_in_order(kernel) if target.prefetch_bytes else ():
            yield (Prefetch(u.arg.slot, target.prefetch_bytes),)


def read_in_order(kernel: UOp) -> list[UOp]:
    """Large parameters of which each step of the grid reads a block, or one of each of several parts, block after
    block, and every element once.
    """
    grid = [r for r in ranges_of(kernel) if r.arg.kind is AxisKind.GRID]
    steps = axis_size(grid[0]) if len(grid) == 1 else 0
    if not isinstance(steps, int) or not steps:
        return []
    nodes = kernel.toposort()
    stored = {s.src[0] for s in kernel.src}
    staged = {x for u in loops_of(kernel).stages for x in u.toposort()}  # whatever loops read it again
    again: set[UOp] = set()
    for u in (u for u in nodes if u.op is Ops.REDUCE):
        loops = [r for r in u.ranges if r.arg.kind is AxisKind.LOOP]
        again |= {x for x in u.src[0].toposort() if x not in staged and any(r not in x.ranges for r in loops)}
    found: list[UOp] = []
    for p in (u for u in nodes if u.op is Ops.PARAM and u not in stored):
        size, loads = p.arg.size, [u for u in nodes if u.op is Ops.LOAD and u.src[0] is p]
        large = LEAST <= p.dtype.nbytes(size) <= BLOCK * steps and size % steps == 0
        in_order = not any(
            len(u.src) > 2 or u in again or _covered(u, stride_of(u.src[1], grid[0]) * steps) != size for u in loads
        )
        wide = all(p.dtype.nbytes(_covered(u)) >= WIDTH for u in loads)
        if large and in_order and wide and sum(prod(r.src[0].vmax for r in u.src[1].ranges) for u in loads) == size:
            found.append(p)
    return found


def _covered(load: UOp, size: int = 1) -> int:
    """Elements that lie behind each other of which so many are read at a time, by all lanes of a load."""
    for r in sorted(load.lanes, key=lambda r: stride_of(load.src[1], r)):
        size *= lane_count(r) if stride_of(load.src[1], r) == size else 1
    return size
