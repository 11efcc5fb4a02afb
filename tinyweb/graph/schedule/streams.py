"""Scores that never get memory: those that a softmax along a row turns into weights of a sum along that row.

What lies between the scores and the sum (attention's weights) is then one pass over the row, in blocks that stay near
(`optimize/online.py`), whatever the number of scores.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.graph.ir import ELEMENTWISE, Ops, Size, UOp, size_max, size_prod
from tinyweb.graph.schedule.dominators import Meeting
from tinyweb.graph.schedule.indexing import same

MOST_BETWEEN = 64  # nodes between scores and sum
WIDEST = 256  # sums beside each other, for each of which an accumulator is kept


def streams(order: Sequence[UOp], meeting: Meeting) -> frozenset[UOp]:
    """The nodes of a graph (given sources first) from such scores up to what is summed."""
    found: set[UOp] = set()
    for u in order:
        if u.op is Ops.REDUCE and u.arg[0] is Ops.MAX and len(u.arg[1]) == 1 and u.dtype.is_float:
            found.update(_stream(u, meeting))
    return frozenset(found)


def _stream(maximum: UOp, meeting: Meeting) -> list[UOp]:
    """From the scores whose maximum is taken to their weighted sum; nothing if that is not all they are for."""
    scores, length = maximum.src[0], maximum.src[0].shape[maximum.arg[1][0]]
    if length == 1 or not _is_product(scores):
        return []
    # up to where all users have met: a sum along the row that was broadcast before
    end = meeting.of[scores]
    exponential = False
    between = [scores]
    todo = list(meeting.users[scores])
    seen: set[UOp] = {scores}
    while end.op in ELEMENTWISE or end.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.REDUCE):
        while todo:
            u = todo.pop()
            if u in seen or u is end:
                continue
            if len(between) == MOST_BETWEEN or not _along(u, length):
                return []
            seen.add(u)
            between.append(u)
            exponential = exponential or u.op is Ops.EXP
            todo.extend(meeting.users[u])
        if end.op is Ops.REDUCE:
            rows, sums = (size_max(size_prod(x.shape)) for x in (maximum, end))
            fits = end.arg[0] is Ops.ADD and _along(end, length) and exponential
            return between if fits and rows < sums <= WIDEST * rows else []
        seen.add(end)
        between.append(end)
        exponential = exponential or end.op is Ops.EXP
        if len(between) >= MOST_BETWEEN or not _along(end, length):
            return []
        todo = list(meeting.users[end])
        if meeting.of[end] is end:
            return []
        end = meeting.of[end]
    return []


def _along(u: UOp, length: Size) -> bool:
    """Elementwise work, or movement, or a reduce along a row of that length."""
    if u.op is Ops.REDUCE:
        (axis, *more) = u.arg[1]
        return not more and same(u.src[0].shape[axis], length)
    return u.op in ELEMENTWISE or u.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND)


def _is_product(u: UOp) -> bool:
    """Whether a value is made elementwise of a sum of products."""
    stack = [u]
    seen: set[UOp] = set()
    while stack and len(seen) < MOST_BETWEEN:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.op is Ops.REDUCE:
            if x.arg[0] is Ops.ADD and x.dtype.is_float:
                return True
        elif x.op in ELEMENTWISE or x.op in (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK):
            stack.extend(x.src)
    return False
