"""A graph of effects becomes a list: every node in the innermost loop it depends on, sources first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, in_order

# what is not moved into a loop for what it is made of
_PINNED = (Ops.LOAD, Ops.STORE, Ops.RANGE, Ops.END, Ops.AFTER, Ops.BARRIER, Ops.BUFFER, Ops.SINK)


def linearize(sink: UOp) -> list[UOp]:
    """The nodes below `sink` (itself left out) in execution order; a loop's nodes lie between its RANGE and its END."""
    order = _order(sink)
    position = {u: i for i, u in enumerate(order)}
    end_of = {u.src[-1]: u for u in order if u.op is Ops.END}
    depth = _depths(end_of)
    loops = {u.ranges for u in order}  # most nodes share their set with others
    innermost = {ranges: max(ranges, key=depth.__getitem__, default=None) for ranges in loops}
    scopes = {u: innermost[u.ranges] for u in order}
    around = {r: scopes[end] for r, end in end_of.items()}
    unsafe = _unsafe(order)
    offsets = {u for u in order if u.op in (Ops.ADD, Ops.MUL) and u.dtype is dtypes.index and u.src[1].op is Ops.CONST}
    used: dict[UOp, set[UOp | None]] = {u: set() for u in unsafe | offsets}  # in which loops what may be moved is used
    values: set[UOp] = set()  # what is more than an address
    for u in reversed(order) if used else ():
        if u in unsafe:
            scopes[u] = _within(used[u] or {None}, scopes[u], around)
        # an offset costs nothing where it is added, and a register where it waits for a loop; so an address
        if u in offsets and (u.op is Ops.ADD or u not in values) and len(within := used[u]) == 1:
            (scopes[u],) = within
        for s in u.src:
            if s in used:
                # what a loop's size is made of stays where it is
                used[s].update((u, None) if u.op in (Ops.RANGE, Ops.END) else (scopes[u],))
                if u.op not in (Ops.LOAD, Ops.STORE):
                    values.add(s)

    # per loop (None: outside of all) what happens directly in it: nodes, and loops at the place of their END
    members: dict[UOp | None, list[UOp]] = {None: []}
    for u in order:
        if u.op is Ops.RANGE:
            members.setdefault(u, [])
        elif u.op is not Ops.SINK:
            members.setdefault(scopes[u], []).append(u)
    out: list[UOp] = []
    stack: list[tuple[UOp, bool]] = [(u, False) for u in sorted(members[None], key=position.__getitem__, reverse=True)]
    while stack:
        u, entered = stack.pop()
        if u.op is not Ops.END or entered:
            out.append(u)
            continue
        loop = u.src[-1]
        out.append(loop)
        stack.append((u, True))
        stack.extend((m, False) for m in sorted(members[loop], key=position.__getitem__, reverse=True))
    return out


def _unsafe(order: list[UOp]) -> set[UOp]:
    """Loads of memory that may not be there where the loop that asks for them is empty, though they do not depend on
    it: its condition has become the loop's size. And what is made of them.
    """
    stored = {u.src[0].buffer for u in order if u.op is Ops.STORE}
    found: set[UOp] = set()
    for u in order:
        if u.op is Ops.LOAD and u.src[0].op is Ops.PARAM and u.src[0] not in stored:
            index, lanes = u.src[1], u.arg if isinstance(u.arg, int) else 1
            if len(u.src) == 2 and not 0 <= index.vmin <= index.vmax <= u.src[0].arg.size - lanes:
                found.add(u)
        elif found and u.op not in _PINNED and not found.isdisjoint(u.src):
            found.add(u)
    return found


def _within(uses: Iterable[UOp | None], scope: UOp | None, around: Mapping[UOp, UOp | None]) -> UOp | None:
    """The innermost loop that all uses are in and that may be empty, of those within a node's scope; else the scope."""

    def loops(r: UOp | None) -> list[UOp]:
        out: list[UOp] = []
        while r is not None and r is not scope:
            out.append(r)
            r = around[r]
        return out

    first, *others = map(loops, uses)
    return next((r for r in first if r.src[0].vmin < 1 and all(r in other for other in others)), scope)


def _depths(end_of: dict[UOp, UOp]) -> dict[UOp, int]:
    """How deep each loop lies: one more than the deepest loop that it, closed, still depends on."""
    depth: dict[UOp, int] = {}
    for r in in_order(end_of, lambda r: end_of[r].ranges):
        depth[r] = 1 + max((depth[outer] for outer in end_of[r].ranges), default=0)
    return depth


def _order(sink: UOp) -> list[UOp]:
    """Sources first; and a parameter that is read and written is read first."""
    nodes = sink.toposort()
    loads: dict[UOp, list[UOp]] = {u.src[0]: [] for u in nodes if u.op is Ops.STORE}
    for u in nodes:
        if u.op is Ops.LOAD and u.src[0].op is Ops.PARAM and u.src[0] in loads:
            loads[u.src[0]].append(u)
    if not any(loads.values()):
        return nodes
    return in_order([sink], lambda u: (*u.src, *reversed(loads[u.src[0]] if u.op is Ops.STORE else [])))
