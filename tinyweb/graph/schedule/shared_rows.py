"""Several results of the same rows of products, such as a weighted sum and the entropy of its weights, or a maximum and
its place: one kernel, which stores all of them, computes each product once, and no product gets memory. And reductions
of products along more than rows, which are reductions of what rows of them leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import islice

from tinyweb.graph.ir import ELEMENTWISE, Ops, Size, UOp, numel_max, reached, rebuild, toposort
from tinyweb.graph.schedule.attention import MOST_BETWEEN, WIDEST, is_along, is_sum
from tinyweb.graph.schedule.dominators import PostDominators

MEMORY = (Ops.CONTIGUOUS, Ops.ASSIGN)


@dataclass(frozen=True)
class SharedRows:
    """Sums of `products`, what lies `between` them and the results, and the results, `ends`."""

    products: UOp
    between: frozenset[UOp]
    ends: frozenset[UOp]


def shared_rows(order: Sequence[UOp], post_dominators: PostDominators) -> list[SharedRows]:
    """Those of a graph (given sources first) of which at least two results are made, each a number, or a few sums that
    values along the row weight, for each row; or such sums, whose weights need more than the product of their place."""
    found: dict[UOp, SharedRows | None] = {}
    for u in order:
        if u.op is Ops.REDUCE and len(u.arg[1]) == 1 and (products := _products(u.src[0])) is not None:
            length, rows = u.src[0].shape[u.arg[1][0]], numel_max(u.shape)
            if products not in found and length != 1 and rows != 1:
                found[products] = _shared_rows(products, length, rows, post_dominators)
    return [s for s in found.values() if s is not None]


def _products(value: UOp) -> UOp | None:
    """The sums that a value is made of, element by element; the value, if there are several for each."""
    size, plain = numel_max(value.shape), ELEMENTWISE | {Ops.RESHAPE, Ops.PERMUTE}
    nodes = reached([value], lambda u: [s for s in u.src if numel_max(s.shape) == size] if u.op in plain else ())
    sums = (u for u in islice(nodes, MOST_BETWEEN) if u.op is Ops.REDUCE)
    found = [u for u in sums if u.arg[0] is Ops.ADD and u.dtype.is_float]
    return found[0] if len(found) == 1 else (value if found else None)


def by_rows(roots: Sequence[UOp]) -> tuple[Sequence[UOp], frozenset[UOp]]:
    """The roots with reductions of what is made of products along rows first, then along the other axes; and those of
    rows. Sums of sums are one sum."""
    rows: set[UOp] = set()

    def reduced(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is not Ops.REDUCE or len(u.arg[1]) < 2 or not u.dtype.is_float:
            return None
        products = _products(src[0])
        if products is None or products.op is not Ops.REDUCE or len(products.arg[1]) != 1 or is_sum(u):
            return None
        op, (*others, last) = u.arg[0], sorted(u.arg[1])
        first = UOp(Ops.REDUCE, u.dtype, src, (op, (last,)))
        rows.add(first)
        return UOp(Ops.REDUCE, u.dtype, (first,), (op, tuple(others)))

    done = rebuild(toposort(roots), reduced)
    return [done[r] for r in roots], frozenset(rows)


class _Kind(Enum):
    WHOLE = auto()  # varies along the row
    LEFT = auto()  # a number for each row
    COLUMNS = auto()  # made of sums that values along the row weight


def _shared_rows(products: UOp, length: Size, rows: int, post_dominators: PostDominators) -> SharedRows | None:
    users, position, size = post_dominators.users, post_dominators.position, numel_max(products.shape)
    kinds = dict[UOp, _Kind]()
    between, ends = dict[UOp, None](), dict[UOp, None]()
    todo, seen = [(position[products], products)], {products}
    while todo:
        u = heappop(todo)[1]
        kind = kinds[u] = _Kind.WHOLE if u is products else _kind(u, kinds, rows)
        within = [v for v in users[u] if _goes_on(v, kind, length, size)]
        if kind is _Kind.COLUMNS and (len(users[u]) > 1 or not _keeps_axes(users[u][0])):
            within = []
        if outside := [v for v in users[u] if v not in within]:
            # of what is needed along the row as well nothing but memory may be made
            if kind is _Kind.WHOLE or (within and any(v.op not in MEMORY for v in outside)):
                return None
            ends[u] = None
        if within and kind is not _Kind.COLUMNS:
            between[u] = None
        if len(seen) > MOST_BETWEEN or (kind is _Kind.COLUMNS and not rows < numel_max(u.shape) <= WIDEST * rows):
            return None
        for v in within:
            if v not in seen:
                seen.add(v)
                heappush(todo, (position[v], v))
    several = len(ends) > 1 or (
        any(kinds[u] is _Kind.COLUMNS for u in ends) and any(u.op is Ops.REDUCE and u is not products for u in between)
    )
    return SharedRows(products, frozenset(between), frozenset(ends)) if several else None


def _kind(u: UOp, kinds: Mapping[UOp, _Kind], rows: int) -> _Kind:
    """Of a node some of whose operands have kinds."""
    below = {kinds[s] for s in u.src if s in kinds}
    if u.op is Ops.REDUCE:
        return _Kind.LEFT if numel_max(u.shape) == rows else _Kind.COLUMNS
    if u.op is Ops.EXPAND:
        return _Kind.WHOLE
    return max(below, key=(_Kind.LEFT, _Kind.WHOLE, _Kind.COLUMNS).index)


def _goes_on(v: UOp, kind: _Kind, length: Size, size: int) -> bool:
    """Whether a user of a value is part of the work on rows."""
    if kind is _Kind.LEFT and v.op in (Ops.EXPAND, Ops.REDUCE):
        return v.op is Ops.EXPAND and numel_max(v.shape) == size
    return v.op not in MEMORY and is_along(v, length)


def _keeps_axes(v: UOp) -> bool:
    return v.op in ELEMENTWISE or (
        v.op is Ops.RESHAPE and [n for n in v.shape if n != 1] == [n for n in v.src[0].shape if n != 1]
    )
