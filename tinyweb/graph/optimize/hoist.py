"""Hoist: a reduced loop goes outside of output loops; the sums of their block wait in register memory meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyweb.graph.ir import AxisKind, Ops, UOp, row_major, substitute, users
from tinyweb.graph.ir.uop import toposort
from tinyweb.graph.optimize.action import Action, find_axis
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of, renumber, stage_of
from tinyweb.graph.optimize.stage import walked_inside


@dataclass(frozen=True)
class Hoist(Action):
    """The reduced loop `axis` is carried out once in a step of loop `at`, around the output axes inside of that step.

    What its steps have in common can then be staged at `axis` for the whole block of outputs: blocking of a matrix
    product's inner axis (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication). The reduction
    gets axes of its own for the block, `acc.` and the name of the output axis, inside `axis`; the other axes that are
    reduced lie inside of those. Outputs are read from the block's sums when all steps are done.
    """

    axis: str
    at: str

    def apply(self, kernel: UOp) -> UOp:
        axis, at = find_axis(kernel, self.axis), find_axis(kernel, self.at)
        self.require(axis.arg.reduce and axis.arg.kind is AxisKind.LOOP, "the axis must be a loop that is reduced")
        self.require_place(at)
        self.require(not loops_of(kernel).stages, "hoist before anything is staged")
        reduces = [u for u in kernel.toposort() if u.op is Ops.REDUCE and axis in u.src[1:]]
        around = {r for u in reduces for r in u.ranges}
        threads = any(r.arg.kind is AxisKind.THREAD for r in around.union(*(u.src[1:] for u in reduces)))
        self.require(not threads, "threads keep their sums to themselves")
        lanes = any(r.arg.reduce and r.arg.kind is not AxisKind.LOOP for r in around)
        self.require(not lanes, "the sums are terms of others, whose lanes would have to wait as well")
        above = users([kernel])
        below: dict[UOp, bool] = {}  # nodes of the values: whether they are made of what is reduced
        for v in toposort([u.src[0] for u in reduces]):
            below[v] = v.op is Ops.REDUCE or any(below[s] for s in v.src)
        shared = any(inner and not all(w in below or w in reduces for w in above[v]) for v, inner in below.items())
        self.require(not shared, "what is reduced inside is used outside as well")
        block = [r for r in ranges_of(kernel) if r in around and not r.arg.reduce and walked_inside(r, at)]
        walked = any(r.arg.kind is AxisKind.LOOP for r in block)
        self.require(walked, "no output loop inside that axis walks over the sums")
        self.require_small(block)
        copies = {r: r.replace(arg=replace(r.arg, name=f"acc.{r.arg.name}", reduce=True)) for r in block}
        table: dict[UOp, UOp] = {}
        for u in reduces:
            mine = [r for r in block if r in u.ranges]
            inner = [r for r in u.src[1:] if r is not axis]
            value = substitute(u.src[0], copies)
            if inner:
                value = u.replace(src=(value, *inner))
            # lanes last, those of a vector innermost: as they are computed
            layout = sorted(mine, key=lambda r: (r.arg.kind is not AxisKind.LOOP, r.arg.kind is AxisKind.VECTOR))
            sums = u.replace(src=(value, axis))
            table[u] = stage_of(sums, [copies[r] for r in layout]).load(row_major(layout))
        within = {r for u in reduces for r in u.toposort() if r.op is Ops.RANGE and r.arg.reduce and r is not axis}
        kernel = substitute(kernel, table)
        known = ranges_of(kernel)
        outside = [r for r in known if r not in within and r is not axis and r not in copies.values()]
        return renumber(kernel, [*outside, axis, *copies.values(), *(r for r in known if r in within)])
