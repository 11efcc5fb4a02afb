"""Reuse: what an output axis and reductions along the same row compute alike is computed once, and staged."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tinyweb.graph.ir import ELEMENTWISE, TRANSCENDENTAL, AxisKind, Ops, UOp, below, row_major, substitute
from tinyweb.graph.optimize.action import Action
from tinyweb.graph.optimize.rewrite import filling, loops_of, ranges_of, replace_in_order, stage_of
from tinyweb.graph.symbolic import simplify

LEAST = 4  # operations: what takes fewer is computed again
FUNCTIONS = TRANSCENDENTAL | {Ops.DIV, Ops.RECIPROCAL, Ops.SQRT}


@dataclass(frozen=True)
class Reuse(Action):
    """What is stored along output axis `axis` and is summed along reduced axes that were split and bound alike, as the
    exponentials of a softmax are, is computed once into REGISTER memory of the worker or thread that reads it.

    A reduction may have been peeled where blocks of the outputs overlap. Functions and what takes at least `least`
    operations are staged; ScheduleError where there is no such value, or its rows vary in length.
    """

    axis: str
    least: int = LEAST

    def apply(self, kernel: UOp) -> UOp:
        kernel = simplify(kernel)  # equal values are told by their canonical form
        parts = _parts(kernel)
        mine = parts.get(self.axis, [])
        self.require(mine and not any(r.arg.reduce for r in mine), "there is no such output axis")
        own = [r for r in mine if r.arg.kind not in (AxisKind.THREAD, AxisKind.GRID)]
        constant = own and all(r.src[0].op is Ops.CONST for r in own)
        self.require(constant, "what a thread has of the axis must be of constant size")
        alike = [m for theirs in parts.values() if theirs[0].arg.reduce for m in _mappings(mine, theirs)]
        staged = kernel
        while table := _shared(staged, own, alike, self.least):
            staged = replace_in_order(staged, table)
        self.require(staged is not kernel, "nothing expensive is computed twice along the axis")
        return staged


def _parts(kernel: UOp) -> dict[str, list[UOp]]:
    """What has been made of each axis, from the outside in."""
    out: dict[str, list[UOp]] = {}
    for r in ranges_of(kernel):
        out.setdefault(r.arg.name.partition(".")[0], []).append(r)
    return out


def _mappings(mine: list[UOp], theirs: list[UOp]) -> Iterator[dict[UOp, UOp]]:
    """What stands in a reduction, or in one over the whole blocks and one over the rest, for the parts of an axis."""
    forms = [(r.arg.name.partition(".")[2], r.arg.kind, r.arg.dim) for r in mine]
    same = [r for r in theirs if (r.arg.name.partition(".")[2], r.arg.kind, r.arg.dim) in forms]
    if len(same) != len(mine) or any(a.src[0].vmax < b.src[0].vmax for a, b in zip(mine, same)):
        return
    yield dict(zip(mine, same))
    rest = [r for r in theirs if r not in same]
    if len(mine) == 2 and len(rest) == 1:
        blocks, lanes = mine
        yield {blocks: blocks.src[0] + -1, lanes: rest[0] + (lanes.src[0] - rest[0].src[0])}


def _shared(kernel: UOp, own: list[UOp], alike: list[dict[UOp, UOp]], least: int) -> dict[UOp, UOp]:
    """Staged, the expensive value that is needed in most places, of several the largest one; and what it replaces."""
    nodes = kernel.toposort()
    known, best, name = set(nodes), dict[UOp, UOp](), f"row{len(loops_of(kernel).stages)}"
    for u in nodes:
        if u.op in ELEMENTWISE and not u.ranges.isdisjoint(own) and _is_expensive(u, own, least):
            found = {
                x: m
                for m in alike
                if (x := simplify(substitute(u, m))) in known and x is not u and _is_expensive(x, _steps(x, m), least)
            }
            if found and 1 + len(found) >= len(best):
                best = {x: _staged(u, own, m, name) for x, m in {u: {}, **found}.items()}
    return best


def _steps(value: UOp, there: Mapping[UOp, UOp]) -> Collection[UOp]:
    """What a value that reductions also compute has to vary along: their steps, where they have more than one.

    Where conditions on the output decide everything along a reduction, what stands there does not vary along it.
    """
    return {r for to in there.values() for r in simplify(to).ranges} or value.ranges


def _is_expensive(u: UOp, own: Collection[UOp], least: int) -> bool:
    def counts(x: UOp) -> bool:
        return x.op in ELEMENTWISE and x.dtype.is_float and not x.ranges.isdisjoint(own)

    return sum(LEAST if x.op in FUNCTIONS else 1 for x in below([u], counts) if counts(x)) >= least


def _staged(value: UOp, own: list[UOp], there: Mapping[UOp, UOp], name: str) -> UOp:
    """The value staged for all that a thread has of the axis, and of it what stands at the place of a mapping."""
    filled = {r: filling(r, f"{name}.{r.arg.name}", i, r.arg.kind) for i, r in enumerate(own)}
    stage = stage_of(simplify(substitute(value, {**there, **filled})), filled.values())
    return stage.load(simplify(substitute(row_major(own), dict(there))))
