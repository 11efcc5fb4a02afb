"""Independent reductions over equal ranges become reductions over the same ranges, and so share one loop."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, Ops, UOp, nested, substitute
from tinyweb.graph.symbolic import simplify


def prepared(kernel: UOp) -> UOp:
    """The kernel that schedules speak of: simplified, its reductions merged."""
    return simplify(merge_reduces(kernel))


def merge_reduces(kernel: UOp) -> UOp:
    """The kernel, where REDUCEs that can run in one loop name the same RANGE nodes (those of the first of them)."""
    # reductions inside others can share a loop once those do: as many rounds as reductions are nested
    while table := _merges(kernel):
        kernel = substitute(kernel, table)
    return kernel


def _merges(kernel: UOp) -> dict[UOp, UOp]:
    """The renaming of the ranges of REDUCEs to those of others."""
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
