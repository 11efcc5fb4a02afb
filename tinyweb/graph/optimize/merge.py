"""Independent reductions over equal ranges become reductions over the same ranges, and so share one loop."""

from __future__ import annotations

from dataclasses import dataclass

from tinyweb.graph.ir import AxisKind, Ops, UOp, axis_size, nested, substitute
from tinyweb.graph.optimize.action import Action, find_axis
from tinyweb.graph.symbolic import simplify


def prepared(kernel: UOp) -> UOp:
    """The kernel that schedules speak of: simplified, its reductions merged."""
    return simplify(merge_reduces(kernel))


def merge_reduces(kernel: UOp) -> UOp:
    """The kernel, where REDUCEs that can run in one loop name the same RANGE nodes (those of the first of them)."""
    # reductions inside others can share a loop once those do: as many rounds as reductions are nested
    while table := merges(kernel):
        kernel = substitute(kernel, table)
    return kernel


def merges(kernel: UOp) -> dict[UOp, UOp]:
    """The renaming of the ranges of REDUCEs to those of others, with which they share a loop."""
    reduces: list[tuple[int, UOp]] = []  # with how many lie below each other there
    depth: dict[UOp, int] = {}
    uses: dict[UOp, int] = {}
    for u in kernel.toposort():
        below = 0
        for s in u.src:
            if depth[s] > below:
                below = depth[s]
        if u.op is Ops.REDUCE:
            reduces.append((below, u))
            below += 1
            for r in u.src[1:]:
                uses[r] = uses.get(r, 0) + 1
        depth[u] = below
    table: dict[UOp, UOp] = {}
    first: dict[tuple[object, ...], UOp] = {}
    for below, u in reduces:
        # one depth: neither needs the other's result.  One set of free loops: they run in one place
        bound = _bound(u)
        place = frozenset(r for r in u.ranges if r.arg.kind is AxisKind.LOOP)
        shape = tuple((r.src[0], r.arg.kind, r.arg.dim) for r in bound)
        other = first.setdefault((below, place, shape), u)
        if other.src[1:] != u.src[1:]:
            to = _bound(other)
            renamed = {a: b for a, b in zip(bound, to) if a is not b}
            # a range in use by further REDUCEs is left alone: renaming it would change their loops too
            if all(uses[r] == 1 for r in renamed) and not any(r in bound for r in to):
                table |= renamed
    return table


def _bound(u: UOp) -> list[UOp]:
    return nested(r for r in u.src[1:] if r.op is Ops.RANGE)


@dataclass(frozen=True)
class Merge(Action):
    """What is reduced over some axes is reduced over others of the same sizes, `into`, in one loop with what those
    reduce, wherever in the nest that is: neither needs the other's result.
    """

    axes: tuple[str, ...]
    into: tuple[str, ...]

    def apply(self, kernel: UOp) -> UOp:
        mine, theirs = ([find_axis(kernel, a) for a in names] for names in (self.axes, self.into))
        for r in (*mine, *theirs):
            self.require_loop(r)
        self.require([*map(axis_size, mine)] == [*map(axis_size, theirs)], "the sizes of the axes differ")
        reduces = [u for u in kernel.toposort() if u.op is Ops.REDUCE]
        first, second = ([u for u in reduces if not set(rs).isdisjoint(u.src[1:])] for rs in (mine, theirs))
        whole = all(set(u.src[1:]) == set(mine) for u in first) and all(set(theirs) <= set(u.src[1:]) for u in second)
        self.require(first and second and whole, "the axes must be all that is reduced, and be reduced together")
        apart = not any(u in v.toposort() or v in u.toposort() for u in first for v in second)
        self.require(apart, "one reduction needs the result of the other")
        return simplify(substitute(kernel, dict(zip(mine, theirs))))
