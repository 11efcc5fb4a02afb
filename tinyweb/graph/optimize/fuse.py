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
    while found := next(_walked_as_one(kernel), None):
        actions.append(found[0])
        kernel = found[1]
    return actions


def _walked_as_one(kernel: UOp) -> Iterator[tuple[Fuse, UOp]]:
    """What fuses neighbouring axes so that no division is left, as all that depends on them steps evenly; and the
    kernel then."""
    accesses = [u.src[1] for u in kernel.toposort() if u.op in (Ops.LOAD, Ops.STORE)]
    for outer, inner in pairwise(ranges_of(kernel)):
        steps = ((split_by(u, outer), split_by(u, inner)) for u in accesses if {outer, inner} & u.ranges)
        size = axis_size(inner)
        if not isinstance(size, int) or not all(a and b and a[0] == b[0] * size for a, b in steps):
            continue
        fuse = Fuse(outer.arg.name, inner.arg.name)
        try:
            whole = fuse.apply(kernel)
        except ScheduleError:
            continue
        # the axis may be gone: of single steps nothing is left
        left = [r for r in ranges_of(whole) if r.arg.name == fuse.axis]
        if not any(u.op in (Ops.FLOORDIV, Ops.MOD) and r in u.ranges for r in left for u in whole.toposort()):
            yield fuse, whole
