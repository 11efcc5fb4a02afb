"""Reshapes that merge the axes of a row with others, as those behind a norm of groups of channels.

No kernel that walks rows can have elementwise work behind such a reshape, nor store to memory that lies behind it;
before it, it can.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tinyweb.graph.ir import ELEMENTWISE, Ops, UOp, rebuild, toposort
from tinyweb.graph.ir.movement import reshape


def before_reshapes(roots: Sequence[UOp], reshapes: Collection[UOp], elementwise: bool) -> list[UOp]:
    """The roots, in which memory for what `reshapes` show, and `elementwise` work on it, are for what they are made
    of."""
    late: set[UOp] = set()

    def rule(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        first = next((s for s in src if s in late), None)
        new = None
        if u in reshapes:
            new = u.with_sources(src)
        elif first is not None and u.op is Ops.CONTIGUOUS and u not in roots:
            return reshape(u.with_sources(first.src), u.shape)
        elif first is not None and u.op in ELEMENTWISE and elementwise:
            parts = [s.src[0] if s in late else s for s in src]
            same = tuple(reshape(p, first.src[0].shape) if p.shape else p for p in parts)
            new = reshape(u.with_sources(same), u.shape)
        if new is not None:
            late.add(new)
        return new

    if not reshapes:
        return list(roots)
    done = rebuild(toposort(roots), rule)
    return [done[r] for r in roots]
