"""Operations the target lacks, in terms of those it has."""

from __future__ import annotations

from collections.abc import Callable

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import TRANSCENDENTAL, Ops, UOp
from tinyweb.graph.lower.build import make
from tinyweb.graph.lower.transcendental import exp2, log2, sin
from tinyweb.graph.target import Target

_EXPANSIONS: dict[Ops, Callable[[UOp], UOp]] = {
    Ops.EXP2: exp2,
    Ops.LOG2: log2,
    Ops.SIN: sin,
    Ops.EXP: lambda x: exp2(x * 1.4426950408889634),
    Ops.LOG: lambda x: log2(x) * 0.6931471805599453,
    Ops.COS: lambda x: sin(-x + 1.5707963267948966),
}


def decompose(kernel: UOp, target: Target) -> UOp:
    """The kernel without transcendental functions, unless the target has them itself."""
    done: dict[UOp, UOp] = {}
    for u in kernel.toposort():
        src = tuple(done[s] for s in u.src)
        if u.op in TRANSCENDENTAL and not (u.op in target.native_math and u.dtype is dtypes.float32):
            done[u] = _expand(u, src[0], target)
        else:
            done[u] = u if src == u.src else u.replace(src=src)
    return done[kernel]


def _expand(u: UOp, x: UOp, target: Target) -> UOp:
    if u.op not in _EXPANSIONS:
        raise NotImplementedError(f"{u.op.name} has no lowering yet")
    if u.dtype is dtypes.float64:
        if u.op in (Ops.SIN, Ops.COS):
            raise NotImplementedError(f"{u.op.name} of float64 is not supported on {target.name}: cast to float32")
        return _EXPANSIONS[u.op](x)
    return _EXPANSIONS[u.op](x.cast(dtypes.float32)).cast(u.dtype)


def floor_division(u: UOp, a: UOp, b: UOp) -> UOp:
    """FLOORDIV or MOD of any integers in terms of divisions of numbers ≥ 0 by numbers > 0; 0 where b is 0.

    With m = -1 for a negative numerator, else 0:  floor(a / b) = ((a ^ m) // b) ^ m  for b > 0.
    """
    dtype = u.dtype
    if dtype.kind == "uint":
        safe = _node(Ops.MAX, b, UOp.const(1, dtype))
        quotient = UOp(Ops.FLOORDIV, dtype, (a, safe))
        value = quotient if u.op is Ops.FLOORDIV else UOp(Ops.MOD, dtype, (a, safe))
        return value if b.vmin > 0 else b.equal(0).where(UOp.const(0, dtype), value)
    minus = UOp.const(-1, dtype)
    numerator, divisor = a, b
    if b.vmin <= 0:
        flip = b < UOp.const(0, dtype)
        numerator = flip.where(_node(Ops.MUL, a, minus), a)
        divisor = _node(Ops.MAX, flip.where(_node(Ops.MUL, b, minus), b), UOp.const(1, dtype))
    sign = _node(Ops.SHR, numerator, UOp.const(dtype.bits - 1, dtype))
    # the mask changes nothing; it shows that the numerator is not negative
    positive = _node(Ops.AND, _node(Ops.XOR, numerator, sign), UOp.const((1 << (dtype.bits - 1)) - 1, dtype))
    quotient = _node(Ops.XOR, UOp(Ops.FLOORDIV, dtype, (positive, divisor)), sign)
    value = quotient
    if u.op is Ops.MOD:
        value = _node(Ops.ADD, a, _node(Ops.MUL, _node(Ops.MUL, quotient, b), minus))
    return value if b.vmin > 0 else b.equal(0).where(UOp.const(0, dtype), value)


def _node(op: Ops, a: UOp, b: UOp) -> UOp:
    return make(op, a.dtype, (a, b))
