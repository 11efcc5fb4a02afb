"""Products that something is added to, rounded once."""

from __future__ import annotations

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, rebuild

ONCE = "once"  # arg of a MULADD that is rounded once


def fuse(sink: UOp) -> UOp:
    """The program below `sink` with every a · b + c of floats as one operation, for targets that have it.

    A compiler that may choose fuses products of one user, and one of two products: the same expression is then another
    number in another kernel, or at another place of the same one, and not equal to its own maximum.
    """
    return rebuild(sink.toposort(), _fused)[sink]


def _fused(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if u.dtype not in (dtypes.float32, dtypes.float64):
        return None
    if u.op is Ops.MULADD:
        return UOp(u.op, u.dtype, src, ONCE)
    if u.op is not Ops.ADD:
        return None
    for x, other in (src, src[::-1]):
        if x.op is Ops.MUL:
            return UOp(Ops.MULADD, u.dtype, (*x.src, other), ONCE)
        if x.op is Ops.NEG and x.src[0].op is Ops.MUL:
            a, b = x.src[0].src
            return UOp(Ops.MULADD, u.dtype, (-a, b, other), ONCE)
    return None
