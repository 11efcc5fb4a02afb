"""Independent reductions over equal ranges become reductions over the same ranges, and so share one loop."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, Ops, UOp, substitute


def merge_reduces(kernel: UOp) -> UOp:
    """The kernel, where REDUCEs that can run in one loop name the same RANGE nodes (those of the first of them)."""
    while True:
        table = _first_merge(kernel)
        if not table:
            return kernel
        kernel = substitute(kernel, table)


def _first_merge(kernel: UOp) -> dict[UOp, UOp]:
    """The renaming of one REDUCE's ranges to those of another one, or nothing."""
    depth: dict[UOp, int] = {}
    seen: dict[tuple[object, ...], UOp] = {}
    for u in kernel.toposort():
        below = max((depth[s] for s in u.src), default=0)
        if u.op is Ops.REDUCE:
            # one depth: neither needs the other's result.  One set of free loops: they run in one place
            bound = _bound(u)
            place = frozenset(r for r in u.ranges if r.arg.kind is AxisKind.LOOP)
            shape = tuple((r.src[0], r.arg.kind, r.arg.dim) for r in bound)
            key = (below, place, shape)
            other = seen.setdefault(key, u)
            if other.src[1:] != u.src[1:] and (table := _renaming(kernel, _bound(other), bound)):
                return table
            below += 1
        depth[u] = below
    return {}


def _bound(u: UOp) -> list[UOp]:
    return sorted((r for r in u.src[1:] if r.op is Ops.RANGE), key=lambda r: (r.arg.order, r.arg.name))


def _renaming(kernel: UOp, to: list[UOp], ranges: list[UOp]) -> dict[UOp, UOp]:
    table = {a: b for a, b in zip(ranges, to) if a is not b}
    # a range in use by further REDUCEs is left alone: renaming it would change their loops too
    users = [u for u in kernel.toposort() if u.op is Ops.REDUCE and any(r in table for r in u.src[1:])]
    return table if len(users) == 1 and not any(r in ranges for r in to) else {}
