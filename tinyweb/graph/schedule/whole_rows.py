"""Reductions along rows of products, such as scores of attention, where threads can hold whole rows of them.

What stands between the products and the last sums may be anything then: of a row all is known before a weight is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinyweb.graph.ir import Ops, UOp, below, nested, size_max, volume
from tinyweb.graph.schedule.attention import WIDEST, alike, is_linear
from tinyweb.graph.target import Target

REGISTERS = 4  # of a thread for each product that it holds
WRITTEN = 32  # products that a thread holds, at most: each is text of its own
OWN = 4  # products of a row that a thread has, if there are so many
THREADS = 256  # of a workgroup, at most
EXCHANGED = 4 << 10  # bytes of shared memory through which threads exchange what they have reduced
CACHED = 12  # bytes that workgroups read of what others read too, in the time that memory takes for one: of laptops
LAUNCHED = 1 << 20  # bytes that memory gives in the time of a launch


@dataclass(frozen=True)
class WholeRows:
    """Reductions over rows of one length whose elements are made of `products`, reductions themselves; some may have
    further axes, `columns`, that the products lack."""

    reduces: tuple[UOp, ...]  # those that others need first
    products: dict[UOp, tuple[UOp, UOp]]  # with the same product of the first reduction that has it, and that one's row
    rows: frozenset[UOp]  # the axes that the products vary over, beside the row

    @property
    def row(self) -> UOp:
        return self.reduces[0].src[1]

    @property
    def size(self) -> int:
        return size_max(self.row.src[0])

    @property
    def columns(self) -> list[UOp]:
        return nested({r for u in self.reduces for r in u.ranges if r not in self.rows})

    @property
    def different(self) -> list[UOp]:
        """Products that are computed: equal ones once."""
        return list(dict.fromkeys(first for first, _ in self.products.values()))

    @property
    def loads(self) -> list[UOp]:
        """Those of the products that are computed, and of what else is reduced."""
        roots = {*self.different, *(u.src[0] for u in self.reduces)}
        nodes = below(roots, lambda x: x in roots or x not in self.products)
        return [x for x in nodes if x.op is Ops.LOAD]

    def factors(self, u: UOp) -> list[UOp]:
        """What sums along the columns are weighted with: the largest values that vary along the row only."""
        nodes = below([u.src[0]], lambda x: not x.ranges.isdisjoint(self.columns))
        along = [x for x in nodes if x.ranges.isdisjoint(self.columns) and u.src[1] in x.ranges]
        return [x for x in along if not self.products.keys().isdisjoint(x.toposort())]

    def held(self, threads: int, target: Target | type[Target]) -> int:
        """Rows whose products so many threads have registers for."""
        own = max(-(-self.size // threads), OWN)
        return min(target.thread_registers // REGISTERS, WRITTEN) // (own * len(self.different))

    def together(self, target: Target | type[Target]) -> int:
        """Rows that a workgroup holds; 0: it cannot hold one."""
        most = self.held(THREADS, target)
        weights = sum(len(self.factors(u)) for u in self.reduces if not u.ranges.isdisjoint(self.columns))
        return min(most, (target.shared_bytes - EXCHANGED) // (4 * self.size * weights)) if weights else most

    def saves(self, target: Target | type[Target]) -> bool:
        """Whether products in memory would double what is read and written, and cost more than what workgroups that
        hold rows read again."""
        together = self.together(target)
        if together < 1 or volume(self.columns) > WIDEST:
            return False
        # products of a few rows are dealt out along their columns
        if not self.columns and volume(self.rows) * target.max_invocations < target.least_busy:
            return False
        apart = len(self.different) + 1  # kernels for the products, and one for what becomes of them
        passes = apart if self.columns else len(self.different)  # weights are stored beside products
        stored = 4 * 2 * volume(self.rows) * self.size * passes
        read = again = 0
        for load in self.loads:
            size = load.dtype.nbytes(volume(load.src[1].ranges))
            shared = volume([r for r in self.rows if r not in load.ranges])
            read, again = read + size, again + size * (-(-shared // together) - 1)
        return stored > read and again <= CACHED * (stored + LAUNCHED * apart)


def whole_rows(kernel: UOp) -> WholeRows | None:
    """Those of a kernel, where all its reductions over rows of products have rows of one length."""
    sums = [u for u in kernel.toposort() if u.op is Ops.REDUCE]
    products: dict[UOp, tuple[UOp, UOp]] = {}
    reduces: list[UOp] = []
    for u in sums if len(sums) > 1 else ():
        inner = [x for x in u.src[0].toposort() if x.op is Ops.REDUCE and not x.ranges.isdisjoint(u.src[1:])]
        if inner and len(u.src) == 2:
            reduces.append(u)
            for x in inner:
                known = (p for p in products.values() if alike(p[0], x, p[1], u.src[1]))
                products[x] = next(known, (x, u.src[1]))
    rows = frozenset[UOp]().union(*(x.ranges - {u.src[1]} for u in reduces for x in products if u.src[1] in x.ranges))
    found = WholeRows(tuple(reduces), products, rows)
    if not reduces or any(r.arg.reduce for r in rows) or not products.keys().isdisjoint(reduces):
        return None
    alone = all(not u.ranges.isdisjoint(found.columns) and not found.factors(u) for u in reduces)
    # sums of sums are one sum, in parts
    parts = not found.columns and all(_is_linear(u, products) for u in reduces)
    if alone or parts or any(u.src[1].src[0] is not found.row.src[0] for u in reduces):
        return None
    return found if found.row.src[0].op is Ops.CONST and not any(r.src[0].op is not Ops.CONST for r in rows) else None


def _is_linear(u: UOp, products: Mapping[UOp, object]) -> bool:
    """Whether a reduction of products is a sum of them, in parts."""

    def varies(x: UOp) -> bool:
        return not products.keys().isdisjoint(x.toposort())

    def made(x: UOp) -> bool:
        return x not in products and varies(x)

    nodes = below(u.src[:1], made)
    return u.arg is Ops.ADD and all(is_linear(x, [*map(varies, x.src)]) for x in nodes if made(x))


def held_rows(kernel: UOp, target: Target | type[Target]) -> WholeRows | None:
    """Rows that workgroups of a target hold, if that costs less than memory for their products."""
    found = whole_rows(kernel) if target.shared_bytes else None
    return found if found is not None and found.saves(target) else None
