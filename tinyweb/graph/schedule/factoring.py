"""Sums of products of which one factor is the same along some of the axes: the other is summed along these first.

The means of a matrix product's columns are a product of the means of its first factor's columns: nothing else of the
product is needed then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tinyweb.graph.ir import Ops, UOp, numel_max, rebuild, toposort
from tinyweb.graph.ir.movement import expand, reshape
from tinyweb.graph.schedule.indexing import same
from tinyweb.graph.schedule.work import LAUNCH


def factored(roots: Sequence[UOp]) -> list[UOp]:
    """The roots with such sums in two steps, where that saves more than a launch."""
    nodes = toposort(roots)
    if not any(_product(u) is not None for u in nodes):
        return list(roots)
    uses = Counter(s for u in nodes for s in u.src)

    def rule(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        product = _product(u)
        if product is None or uses[product] > 1 or uses[u.src[0]] > 1:
            return None
        return _in_steps(u.with_sources(src))

    done = rebuild(nodes, rule)
    return [done[r] for r in roots]


def _product(u: UOp) -> UOp | None:
    """The sum of products that another sum is one of."""
    if u.op is not Ops.REDUCE or u.arg[0] is not Ops.ADD or not u.dtype.is_float:
        return None
    inner = u.src[0].src[0] if u.src[0].op is Ops.RESHAPE else u.src[0]
    plain = inner.op is Ops.REDUCE and inner.arg[0] is Ops.ADD and inner.src[0].op is Ops.MUL
    return inner if plain and inner.dtype is u.dtype else None


def _in_steps(u: UOp) -> UOp | None:
    """The sum as one of products of sums; None if both factors vary along its axes, or too little is saved."""
    inner, x = _product(u), u.src[0]
    place = _places(x, inner) if inner is not None else {}
    if inner is None or numel_max(inner.src[0].shape) <= LAUNCH:
        return None
    for one, other in (inner.src[0].src, inner.src[0].src[::-1]):
        if one.op is not Ops.EXPAND or other.op is not Ops.EXPAND:
            continue
        varies, fixed = one.src[0].shape, other.src[0].shape
        axes = [a for a in u.arg[1] if a in place and same(fixed[place[a]], 1) and not same(varies[place[a]], 1)]
        if not axes or numel_max(varies) == numel_max(one.shape):
            continue
        along = tuple(sorted(place[a] for a in axes))
        shape = tuple(1 if a in along else n for a, n in enumerate(one.shape))
        total = UOp(Ops.REDUCE, u.dtype, (one.src[0],), (Ops.ADD, along))
        products = UOp(Ops.MUL, u.dtype, (expand(total, shape), expand(other.src[0], shape)))
        first = UOp(Ops.REDUCE, u.dtype, (products,), inner.arg)
        first = reshape(first, tuple(1 if a in axes else n for a, n in enumerate(x.shape)))
        left = tuple(a for a in u.arg[1] if a not in axes)
        if not left:
            return reshape(first, u.shape)
        rest = UOp(Ops.REDUCE, u.dtype, (first,), (Ops.ADD, left))
        return _in_steps(rest) or rest
    return None


def _places(x: UOp, inner: UOp) -> dict[int, int]:
    """The axes of `inner` that those of x are, of which axes of one element went or came; none if others did."""
    here, there = ([a for a, n in enumerate(v.shape) if not same(n, 1)] for v in (x, inner))
    alike = len(here) == len(there) and all(same(x.shape[a], inner.shape[b]) for a, b in zip(here, there))
    return dict(zip(here, there)) if alike else {}
