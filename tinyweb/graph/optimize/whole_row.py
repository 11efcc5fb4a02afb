"""Whole rows of products held by the threads of a workgroup: what reductions along them share is computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tinyweb.graph.ir import AxisKind, Space, UOp, as_index, identity, row_major, substitute
from tinyweb.graph.optimize.action import Action, ScheduleError, find_axis
from tinyweb.graph.optimize.rewrite import along_row, split_dim, stage_of
from tinyweb.graph.schedule.whole_rows import WholeRows, whole_rows
from tinyweb.graph.symbolic import simplify

MOST = 64  # products of a row that a thread holds


@dataclass(frozen=True)
class WholeRow(Action):
    """All reductions over rows of products, one of which is over `axis`, share the products of a row: `across` threads
    of dimension x and `split` of another dimension have equal parts of it. What sums over further axes are weighted
    with goes through SHARED memory, and each of the `split` sums its part. Axis i becomes i.key, and i.sum inside of
    such sums.
    """

    axis: str
    across: int
    split: int = 1

    def apply(self, kernel: UOp) -> UOp:
        kernel = simplify(kernel)  # equal products are told by their canonical form
        row, found = find_axis(kernel, self.axis), whole_rows(kernel)
        if found is None or all(u.src[1] is not row for u in found.reduces):
            raise ScheduleError(f"{self}: no products are reduced along that axis again and again")
        for u in found.reduces:
            self.require_loop(u.src[1])
        for r in found.columns:
            self.require(r.arg.kind is not AxisKind.LOOP, f"axis {r.arg.name} of the sums is a loop; bind it before")
        self.require(min(self.across, self.split) >= 1, "a row has threads")
        self.require(found.size <= MOST * self.across * self.split, f"a thread holds at most {MOST} products")
        taken = {0, split_dim(found.rows)} if self.split > 1 else {0}
        apart = any(r.arg.kind is AxisKind.THREAD and r.arg.dim in taken for r in found.rows)
        self.require(not apart, "threads that share a row must work on the same rows")
        return self._rewrite(kernel, found)

    def _rewrite(self, kernel: UOp, found: WholeRows) -> UOp:
        row, size, threads = found.row, found.size, self.across * self.split
        own = -(-size // threads)
        axis = partial(along_row, row)
        teams = [axis("split", self.split, AxisKind.THREAD, split_dim(found.rows))] if self.split > 1 else []
        mine = [*teams, axis("key", self.across, AxisKind.THREAD), axis("key.1", own, AxisKind.VECTOR)]
        at, whole = row_major(mine), own * threads == size
        inside = at if whole else at.minimum(size - 1)
        products = {x: substitute(first, {of: inside}) for x, (first, of) in found.products.items()}

        table: dict[UOp, UOp] = {}

        def here(value: UOp, r: UOp) -> UOp:
            return substitute(substitute(value, products | table), {r: inside})

        begin = teams[0] * (own * self.across) if teams else as_index(0)
        left = as_index(own * self.across)
        for number, u in enumerate(found.reduces):
            r = u.src[1]
            if u.ranges.isdisjoint(found.columns):
                value = here(u.src[0], r)
                value = value if whole else (at < size).where(value, identity(u.arg, u.dtype))
                table[u] = u.replace(src=(value, *mine))
            else:
                rest = left if whole else left.minimum((as_index(size) - begin).maximum(0))
                place = axis(f"sum{number}", rest)
                weights = {x: stage_of(here(x, r), mine, Space.SHARED).load(begin + place) for x in found.factors(u)}
                value = substitute(substitute(u.src[0], weights), {r: begin + place})
                total = u.replace(src=(value, place))
                table[u] = u.replace(src=(total, *teams)) if teams else total
        return substitute(kernel, table)
