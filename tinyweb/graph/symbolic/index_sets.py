"""Index-set splitting: where along a loop expressions begin to be others."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import pairwise

from tinyweb.graph.ir.axes import axis_size
from tinyweb.graph.ir.ops import Ops
from tinyweb.graph.ir.pattern import substitute
from tinyweb.graph.ir.uop import UOp, as_index
from tinyweb.graph.symbolic.linear import isolated
from tinyweb.graph.symbolic.simplify import simplify

MOST_QUOTIENTS = 8  # of one expression; more are a loop of a block of steps


def borders(nodes: Iterable[UOp], r: UOp, most: int = sys.maxsize, together: int = 1) -> tuple[int, ...]:
    """Steps of a range, in order, at which a comparison with a constant, a maximum or a remainder is decided otherwise
    than before; none where the size is not constant. Where there are `most` or more, some of them. Quotients and
    remainders that so many steps `together` have in common, from the first on, do not count.
    """
    size = axis_size(r)
    if not isinstance(size, int):
        return ()
    kinds = (Ops.LESS, Ops.MAX, Ops.MOD, Ops.FLOORDIV)
    changes = {u: _changes(u, r, together) for u in nodes if u.op in kinds and r in u.ranges and u.src[0].dtype.is_int}
    found = {b for at in changes.values() for b in at if 0 < b < size}
    if not found:
        return ()
    hidden = UOp(Ops.SINK, src=tuple(u for u, at in changes.items() if not at))
    for start, end in pairwise((0, *sorted(found), size)):
        if len(found) >= most:
            break
        # what was hidden in an expression that is decided in this part: all at once, as they share most of their nodes
        part = r.replace(src=(as_index(end - start),))
        inside = simplify(substitute(hidden, {r: part + start})).src
        found |= {start + b for u in inside for b in borders(u.toposort(), part, most, together)}
    return tuple(sorted(found))


def _changes(u: UOp, r: UOp, together: int) -> list[int]:
    """The steps of `r` at which a node is decided otherwise, if it compares k·r with a constant or divides by one."""
    quotient = u.op in (Ops.MOD, Ops.FLOORDIV)
    parts = isolated(u.src[0], UOp.const(0, u.src[0].dtype) if quotient else u.src[1], r)
    if parts is None or parts[1]:
        return []
    k, _, constant = parts
    limits = [0]
    if quotient:
        c = u.src[1].arg if u.src[1].op is Ops.CONST else 0
        if c < 1 or abs(k) * r.vmax // c >= MOST_QUOTIENTS:
            return []
        if together > 1 and c % together == 0 and constant % together == 0 and k == 1:
            return []
        first, last = sorted((constant, constant + k * r.vmax))
        limits = [m * c for m in range(first // c + 1, last // c + 1)]
    # k·r + constant < limit begins, or ends, to hold
    return [-((constant - m) // k) if k > 0 else (constant - m) // -k + 1 for m in limits]
