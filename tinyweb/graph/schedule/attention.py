"""Attention fusion: scores that never get memory.

What a softmax along a row of scores turns into the weights of a sum along that row can be one pass over blocks of the
row (online softmax: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al.,
FlashAttention, 2022), whatever the number of scores. `candidates` finds such rows in a tensor graph; `softmaxes` says
of the kernel that was built whether it is one pass indeed, and what `optimize/online.py` makes the pass of. What is
none, because something between the scores and the sum is not linear in the exponentials, is scheduled without.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import (
    ELEMENTWISE,
    MOVEMENT,
    Ops,
    Shape,
    Size,
    UOp,
    below,
    nested,
    numel_max,
    size_max,
    substitute,
    through,
)
from tinyweb.graph.schedule.dominators import PostDominators
from tinyweb.graph.schedule.indexing import reshape_groups, same
from tinyweb.graph.schedule.joining import is_join, parts_of
from tinyweb.graph.symbolic import simplify

MOST_BETWEEN = 64  # nodes between scores and sum
MOST_JOINS = 1 << 8  # nodes that are looked at for them
PART = 4  # elements along a row of parts that it would better go through step by step
WIDEST = 256  # sums beside each other, for each of which an accumulator is kept


def candidates(order: Sequence[UOp], post_dominators: PostDominators) -> dict[UOp, list[UOp]]:
    """For the maximum over each row of such scores in a graph (given sources first), the nodes from the scores up to
    what is summed."""
    reduces = (u for u in order if u.op is Ops.REDUCE and u.dtype.is_float)
    maxima = (u for u in reduces if u.arg[0] is Ops.MAX and len(u.arg[1]) == 1)
    return {u: between for u in maxima if (between := _candidate(u, post_dominators))}


def _candidate(maximum: UOp, post_dominators: PostDominators) -> list[UOp]:
    """From the scores whose maximum is taken to their weighted sum; nothing if that is not all they are for."""
    scores, length = maximum.src[0], maximum.src[0].shape[maximum.arg[1][0]]
    if length == 1 or not _is_product(scores):
        return []
    for end, between in _meetings(scores, length, post_dominators):
        if end.op is Ops.REDUCE:  # a sum along the row that was broadcast before
            rows, sums = numel_max(maximum.shape), numel_max(end.shape)
            fits = end.arg[0] is Ops.ADD and is_along(end, length) and any(u.op is Ops.EXP for u in between)
            fits = fits and not _begins_parts(end.src[0], length)
            return [*between] if fits and rows < sums <= WIDEST * rows else []
    return []


def _begins_parts(weighted: UOp, length: Size) -> bool:
    """Whether a row of that length goes through joins of short parts, as a pixel's neighbours: sums that are written
    out know which part each of their steps reads, a pass over a row finds out at each."""
    plain = ELEMENTWISE | MOVEMENT
    weights = [*islice(below([weighted], lambda x: x.op in plain), MOST_JOINS)]
    products = [u.src[0] for u in weights if u.op is Ops.REDUCE]
    nodes = chain(weights, islice(below(products, lambda x: x.op in plain), MOST_JOINS))
    joins = (u for u in nodes if is_join(u) and any(same(n, length) for n in u.shape))
    return any(PART * len(parts_of(u)) > size_max(length) for u in joins)


def _meetings(scores: UOp, length: Size, post_dominators: PostDominators) -> Iterator[tuple[UOp, Mapping[UOp, object]]]:
    """Where all that is made of scores along a row meets again, and again, with the nodes up to there, the scores
    first; as long as these are few, and all is work along the row."""
    end, between = scores, dict[UOp, None]()
    while end is scores or (is_along(end, length) and post_dominators.of[end] is not end):
        begin, end = end, post_dominators.of[end]
        for u in chain([begin], post_dominators.between(begin)):
            if len(between) == MOST_BETWEEN or (u is not scores and not is_along(u, length)):
                return
            between[u] = None
        yield end, between


def reduced_away(order: Sequence[UOp], post_dominators: PostDominators) -> dict[UOp, list[UOp]]:
    """For reductions along rows of products of which nothing but one number for each row is left (a maximum, its
    place, the logarithm of a sum of exponentials), the nodes from the products up to there, which is the last one."""
    rows = (u for u in order if u.op is Ops.REDUCE and len(u.arg[1]) == 1 and _is_product(u.src[0]))
    return {u: nodes for u in rows if not is_sum(u) and (nodes := _reduced_away(u, post_dominators))}


def _reduced_away(first: UOp, post_dominators: PostDominators) -> list[UOp]:
    scores, length, rows = first.src[0], first.src[0].shape[first.arg[1][0]], numel_max(first.shape)
    if length == 1 or rows == 1:  # rows share what workgroups read
        return []
    meetings = _meetings(scores, length, post_dominators)
    alone = ([*between, end] for end, between in meetings if is_along(end, length) and numel_max(end.shape) == rows)
    return next(alone, [])


def weighting(order: Sequence[UOp], post_dominators: PostDominators) -> dict[UOp, list[UOp]]:
    """For sums that a function of products weights, product by product (a sigmoid, a ReLU), the nodes from its values
    up to there. Of matrices in batches: what all of a batch share, as weights of a layer, is read for large tiles."""
    found = {}
    sums = (u for u in order if u.op is Ops.REDUCE and u.arg[0] is Ops.ADD and u.dtype.is_float and len(u.arg[1]) == 1)
    for u in sums:
        factors = u.src[0].src if u.src[0].op is Ops.MUL else ()
        for x, other in (factors, factors[::-1]) if factors else ():
            views, value = through(x, (Ops.EXPAND, Ops.RESHAPE, Ops.PERMUTE))
            alone = all(len(post_dominators.users[v]) == 1 for v in (*views, value))
            wider = numel_max(value.shape) < numel_max(x.shape)
            batches = (_own(x) & _own(other)) - {u.arg[1][0]}
            if alone and wider and batches and value.op in ELEMENTWISE and _is_weight(value):
                found[u] = [value, *views, u]
    return found


def _own(u: UOp) -> set[int]:
    """The axes that a value varies along."""
    return {a for a, n in enumerate((u.src[0] if u.op is Ops.EXPAND else u).shape) if n != 1}


def _is_weight(u: UOp) -> bool:
    """Whether a value is a function of one product of the same place, and no sum of products."""
    expanded = any(x.op is Ops.EXPAND and _is_product(x) for x in below([u], _is_made_of_products))
    return not expanded and not _is_sum_of_products(u) and _is_product(u)


def is_sum(u: UOp) -> bool:
    """Whether a reduction of products is a sum of them, in parts."""
    return u.arg[0] is Ops.ADD and _is_sum_of_products(u.src[0])


def _is_sum_of_products(u: UOp) -> bool:
    """Whether a value is linear in the products that it is made of."""
    nodes = (x for x in below([u], _is_made_of_products) if _is_made_of_products(x))
    return all(x.op in MOVEMENT or is_linear(x, [_is_product(s) for s in x.src]) for x in nodes)


def _is_made_of_products(u: UOp) -> bool:
    return u.op is not Ops.REDUCE and _is_product(u)


def is_linear(u: UOp, varies: Sequence[bool]) -> bool:
    """Whether an operation is linear in those of its operands that vary, together."""
    if u.op in (Ops.MUL, Ops.DIV):
        return not all(varies) and (u.op is Ops.MUL or not varies[1])
    return u.op in (Ops.ADD, Ops.NEG, Ops.CAST)


def halves(maximum: UOp, between: Sequence[UOp], post_dominators: PostDominators, uses: int) -> Iterator[UOp]:
    """Conversions of half floats that the products of an attention read along the row that often at least: keys for
    its scores, values for its sum. `between` is what `candidates` has for `maximum`. Scales of integers stay: these
    take a conversion for each of them anyway.
    """
    scores, inside = between[0], set(between)
    ends = dict.fromkeys(v for u in between for v in post_dominators.users[u] if v not in inside)
    # what is looked through, its axis along the row, elements of the product at hand; 0: it is still to be found
    products = [(scores, maximum.arg[1][0], 0), *((e.src[0], e.arg[1][0], numel_max(e.src[0].shape)) for e in ends)]
    for first in products:
        todo, seen = [first], {scores} - {first[0]}
        found: list[UOp] = []
        while todo:
            u, axis, size = todo.pop()
            if u in seen:
                continue
            seen.add(u)
            if u.op is Ops.CAST and u.src[0].dtype is dtypes.float16 and u.dtype is dtypes.float32:
                if size >= uses * numel_max(u.shape):
                    found.append(u)
            elif u.op is Ops.CAST and u.src[0].dtype.is_int:
                found, todo = [], []
            elif u.op is Ops.REDUCE and size == 0:
                todo.append((u.src[0], axis, numel_max(u.src[0].shape)))
            elif u.op in ELEMENTWISE or u.op in MOVEMENT:
                todo.extend((s, a, size) for s in u.src if (a := _axis_in(u, s, axis)) is not None)
        yield from found


def _axis_in(u: UOp, x: UOp, axis: int) -> int | None:
    """The axis of an operand `x` that an axis of `u` is; None if it has none of that size."""
    if u.op is Ops.PERMUTE:
        return int(u.arg[axis])
    if u.op is Ops.RESHAPE:
        groups = ((olds, news) for olds, news in reshape_groups(x.shape, u.shape) if axis in news)
        axes = next(([a for a in olds if same(x.shape[a], u.shape[axis])] for olds, _ in groups), [])
        return axes[0] if len(axes) == 1 else None
    if not x.shape or (u.op is Ops.EXPAND and not same(x.shape[axis], u.shape[axis])):
        return None  # a constant, or the same all along it
    return axis


def is_along(u: UOp, length: Size) -> bool:
    """Elementwise work, or movement, or a reduce along a row of that length."""
    if u.op is Ops.REDUCE:
        (axis, *more) = u.arg[1]
        return not more and same(u.src[0].shape[axis], length)
    return u.op in ELEMENTWISE or u.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND)


def _is_product(u: UOp) -> bool:
    """Whether a value is made elementwise of a sum of products."""
    plain = ELEMENTWISE | {Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK}
    nodes = islice(below([u], lambda x: x.op in plain), MOST_BETWEEN)
    return any(x.op is Ops.REDUCE and x.arg[0] is Ops.ADD and x.dtype.is_float for x in nodes)


def unmerged(node: UOp) -> Shape:
    """The shape of a value that a maximum is taken for, without what a reshape behind it merged: heads and their
    columns side by side are no axis of a kernel, as scores vary over the one and not over the other."""
    below: set[UOp] = set()
    for u in node.toposort():
        if (u.op is Ops.REDUCE and u.arg[0] is Ops.MAX) or not below.isdisjoint(u.src):
            below.add(u)
    u = node
    while u in below and (u.op in ELEMENTWISE or u.op is Ops.CONTIGUOUS):
        u = next(s for s in u.src if s in below)
    if u not in below or u.op is not Ops.RESHAPE or u.shape != node.shape:
        return node.shape
    out: list[Size] = []
    for olds, news in reshape_groups(u.src[0].shape, u.shape):
        sizes = [u.src[0].shape[i] for i in olds]
        merged = len(news) == 1 and all(isinstance(n, int) for n in sizes)
        out += [n for n in sizes if n != 1] if merged and len(sizes) > 1 else [u.shape[i] for i in news]
    return tuple(out)


@dataclass(frozen=True)
class Weighted:
    """A sum over the row, `reduce`, of exp(score - less) times what `value` says, `exponential` being that.

    `less` is the maximum, 0 instead of one of -inf, or the larger of it and what is no score of the row, as a sink.
    """

    reduce: UOp
    less: UOp
    exponential: UOp
    value: UOp  # what is summed, without the divisors
    divisors: tuple[UOp, ...]  # what all of the sum is divided by
    row: UOp  # the RANGE

    @property
    def alone(self) -> bool:
        """Whether the exponentials are what is summed, as they are or in a wider type."""
        value = self.value
        while value.op is Ops.CAST and value.dtype.is_float and value.dtype.bits > value.src[0].dtype.bits:
            value = value.src[0]
        return value is self.exponential

    def of_row(self, total: UOp) -> UOp:
        """`total`, divided and rescaled as a whole; a sum of no elements stays 0, whatever it is divided by."""
        size = self.row.src[0]
        return total if size.vmin > 0 else (size > 0).where(total, UOp.const(0.0, total.dtype))

    @property
    def score(self) -> UOp:
        less, score = self.exponential.src[0].src
        return score if less.op is Ops.NEG and less.src[0] is self.less else less


@dataclass(frozen=True)
class Softmax:
    """A maximum over a row and the sums that are weighted with exponentials of the distances to it."""

    maximum: UOp
    sums: tuple[Weighted, ...]
    plain: bool  # a row of nothing but -inf gives NaN, as -inf - -inf does; else 0 is subtracted there

    @property
    def row(self) -> UOp:
        return self.maximum.src[1]

    @property
    def score(self) -> UOp:
        return self.maximum.src[0]

    @property
    def rows(self) -> frozenset[UOp]:
        """The axes that the scores vary over, beside the row."""
        return self.maximum.ranges

    @property
    def columns(self) -> list[UOp]:
        """The axes of the weighted sums that the scores do not vary over."""
        return nested({r for s in self.sums for r in s.reduce.ranges if r not in self.rows})

    @property
    def inner(self) -> list[UOp]:
        """The ranges of the reductions inside of a score."""
        return _bound_in(self.score)

    @property
    def read_along(self) -> list[UOp]:
        """What is loaded for each score of a row."""
        return [u for u in self.score.toposort() if u.op is Ops.LOAD and self.row in u.ranges]

    @property
    def keys(self) -> list[UOp]:
        """What is loaded of the keys: not a mask or a bias, of which a score has one element."""
        return [u for u in self.read_along if not u.ranges.isdisjoint(self.inner)]

    @property
    def shared(self) -> list[UOp]:
        """The axes of the scores along which the same keys are read again."""
        keys = self.keys
        return nested(r for r in self.rows if not any(r in u.ranges for u in keys))


def softmaxes(kernel: UOp) -> list[Softmax]:
    """The softmaxes of a kernel whose scores are reductions themselves and weight a sum over other axes."""
    out = []
    nodes = kernel.toposort()
    for u in nodes:
        largest = u.op is Ops.REDUCE and u.arg is Ops.MAX and len(u.src) == 2 and u.dtype.is_float
        if largest and any(x.op is Ops.REDUCE for x in u.src[0].toposort()):
            found = exponential_sums(nodes, u)
            if found is not None and found.columns:
                out.append(found)
    return out


def exponential_sums(nodes: Sequence[UOp], maximum: UOp) -> Softmax | None:
    """Everything that refers to `maximum` while it walks over a row; None if some of it is no sum of exponentials."""
    subtracted: set[UOp] = {maximum}
    plain = True
    for u in nodes:
        guarded = u.op is Ops.WHERE and u.src[2] is maximum and _is_finite(u.src[1])
        if guarded and _asks_whether_infinite(u.src[0], maximum):
            subtracted.add(u)
            plain = False
        elif u.op is Ops.MAX and maximum in u.src:
            subtracted.add(u)
    above: set[UOp] = {maximum}
    sums: list[Weighted] = []
    for u in nodes:
        if u not in above and not any(s in above for s in u.src):
            continue
        above.add(u)
        if u.op is Ops.REDUCE and u is not maximum:
            found = _weighted(u, maximum, subtracted)
            if found is None:
                return None
            sums.append(found)
    return Softmax(maximum, tuple(sums), plain) if sums else None


def _asks_whether_infinite(u: UOp, maximum: UOp) -> bool:
    return u.op is Ops.EQUAL and maximum in u.src and any(map(is_minus_infinity, u.src))


def _is_finite(u: UOp) -> bool:
    return u.op is Ops.CONST and math.isfinite(u.arg)


def _is_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and bool(u.arg == 0)


def is_minus_infinity(u: UOp) -> bool:
    return u.op is Ops.CONST and bool(u.arg == -math.inf)


def _weighted(u: UOp, maximum: UOp, subtracted: set[UOp]) -> Weighted | None:
    if u.arg is not Ops.ADD or len(u.src) != 2:
        return None
    row = u.src[1]
    if row.src[0] is not maximum.src[1].src[0]:
        return None
    value, divisors = u.src[0], []
    rebuild: list[tuple[UOp, int]] = []
    # down to the exponential, past what it is multiplied with
    while value.op is not Ops.EXP or value.src[0].op is not Ops.ADD:
        varying = [i for i, s in enumerate(value.src) if maximum in _below(s) and row in s.ranges]
        if len(varying) != 1:
            return None
        at = varying[0]
        others = [s for i, s in enumerate(value.src) if i != at]
        if value.op is Ops.DIV and at == 0 and row not in others[0].ranges:
            divisors.append(others[0])
            value = value.src[0]
            continue
        linear = (
            value.op in (Ops.MUL, Ops.NEG)
            or (value.op is Ops.DIV and at == 0)
            or (value.op is Ops.CAST and value.dtype.is_float)
            # a condition on the whole row leaves 0 also where the row's sum is 0 and weights are NaN
            or (value.op is Ops.WHERE and at > 0 and _is_zero(others[1]) and row in others[0].ranges)
        )
        if not linear or any(maximum in _below(s) for s in others):
            return None
        rebuild.append((value, at))
        value = value.src[at]
    found = value
    score, less = found.src[0].src
    if less.op is not Ops.NEG or less.src[0] not in subtracted:
        score, less = less, score
    if less.op is not Ops.NEG or less.src[0] not in subtracted:
        return None
    if row in less.ranges or not alike(maximum.src[0], score, maximum.src[1], row):
        return None
    for node, at in reversed(rebuild):
        value = node.replace(src=(*node.src[:at], value, *node.src[at + 1 :]))
    return Weighted(u, less.src[0], found, value, tuple(divisors), row)


def _below(u: UOp) -> set[UOp]:
    return set(u.toposort())


def alike(a: UOp, b: UOp, row: UOp, other: UOp) -> bool:
    """Whether the simplified `b` along the range `other` is what the simplified `a` is along `row`."""
    ours, theirs = _bound_in(a), _bound_in(b)
    if len(ours) != len(theirs) or any(x.src[0] is not y.src[0] for x, y in zip(ours, theirs)):
        return False
    return simplify(substitute(b, dict(zip([other, *theirs], [row, *ours])))) is a


def _bound_in(u: UOp) -> list[UOp]:
    """The ranges of the reductions in a value, from the outside in."""
    return nested({r for x in u.toposort() if x.op is Ops.REDUCE for r in x.src[1:]})
