"""Fuse: two axes become one, such as output axes that walk over memory as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tinyweb.graph.ir import AxisKind, Ops, UOp, axis_size
from tinyweb.graph.optimize.action import Action, ScheduleError, find_axis
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of, replace_range
from tinyweb.graph.symbolic import simplify, split_by


@dataclass(frozen=True)
class Fuse(Action):
    """Two output axes, or two that the same reductions reduce, become one that walks over all steps of `inner` for each
    of `axis`, whose name and place it has.

    Blocks and vectors then cross the end of a row: the positions of a small image are one long axis.
    """

    axis: str
    inner: str

    def apply(self, kernel: UOp) -> UOp:
        outer, inner = find_axis(kernel, self.axis), find_axis(kernel, self.inner)
        sums = [u.src[1:] for u in kernel.toposort() if u.op is Ops.REDUCE]
        alike = outer.arg.reduce == inner.arg.reduce and all((outer in s) == (inner in s) for s in sums)
        alike = alike and outer is not inner
        self.require(alike, "two output axes are fused, or two that are always reduced together")
        free = outer.arg.kind is AxisKind.LOOP and inner.arg.kind is AxisKind.LOOP
        self.require(free, "an axis that is bound stays as it is; fuse before")
        steps, size = axis_size(outer), axis_size(inner)
        staged = any(r in u.ranges or r in u.src for u in loops_of(kernel).stages for r in (outer, inner))
        self.require(not staged, "what is staged knows its axes; fuse before the stage")
        if not isinstance(steps, int) or not isinstance(size, int):
            raise ScheduleError(f"{self}: the sizes must be constant")
        self.require(steps * size <= outer.dtype.max, "an axis has as many steps as an index can count")
        if size == 1:  # what walks over both is `outer` itself
            return simplify(replace_range(kernel, inner, UOp.const(0, inner.dtype), (), None))
        whole = outer.replace(src=(UOp.const(steps * size, outer.dtype),))
        kernel = replace_range(kernel, inner, whole % size, (whole,), None)
        return simplify(replace_range(kernel, outer, whole // size, (), None))


def fuses(kernel: UOp) -> list[Fuse]:
    """What makes one axis of all that every access walks over as one."""
    actions: list[Fuse] = []
    while found := next(((f, k) for f in _neighbours(kernel) if (k := walked_as_one(kernel, f)) is not None), None):
        actions.append(found[0])
        kernel = found[1]
    return actions


def _neighbours(kernel: UOp) -> Iterator[Fuse]:
    loops = loops_of(kernel)
    sums = [u.src[1:] for u in kernel.toposort() if u.op is Ops.REDUCE]
    for a, b in pairwise(() if loops.stages else loops.ranges):
        plain = all(r.arg.kind is AxisKind.LOOP and r.src[0].op is Ops.CONST for r in (a, b))
        if plain and a.arg.reduce == b.arg.reduce and all((a in s) == (b in s) for s in sums):
            yield Fuse(a.arg.name, b.arg.name)


def walked_as_one(kernel: UOp, fuse: Fuse) -> UOp | None:
    """The kernel with two axes fused, if that leaves no division: all that depends on them steps evenly."""
    pair = find_axis(kernel, fuse.axis), find_axis(kernel, fuse.inner)
    for u in kernel.toposort():
        if u.op in (Ops.LOAD, Ops.STORE) and any(r in u.src[1].ranges for r in pair):
            outer, inner = (split_by(u.src[1], r) for r in pair)
            if outer is None or inner is None or outer[0] != inner[0] * int(pair[1].src[0].arg):
                return None
    whole = fuse.apply(kernel)
    # the axis may be gone: of single steps nothing is left
    left = [r for r in ranges_of(whole) if r.arg.name == fuse.axis]
    if any(u.op in (Ops.FLOORDIV, Ops.MOD) and r in u.ranges for r in left for u in whole.toposort()):
        return None
    return whole
