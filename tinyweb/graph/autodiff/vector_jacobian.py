"""The derivative of every operation of the tensor graph: one table, from op to vector-Jacobian product.

A rule gets a node and the gradient that arrives at it (of the node's shape and dtype), and returns the gradient of each
input, None where there is none. Inputs are the sources, except that an update in place has the whole memory as input,
not the view it writes. Scalars that go with an array get a gradient of the array's shape: `gradient` sums it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tinyweb.dtype import dtypes
from tinyweb.graph.autodiff.derivations import not_, scan, scatter, shifted, total
from tinyweb.graph.autodiff.functions import DERIVATIVES, Derivative, power
from tinyweb.graph.ir import MOVEMENT, CopyArg, Ops, UOp, size_sub, substitute, through
from tinyweb.graph.ir.movement import expand, flip, full, iota, permute, reshape

Gradients: TypeAlias = "tuple[UOp | None, ...]"
Rule: TypeAlias = "Callable[[UOp, UOp], Gradients]"


def inputs(u: UOp) -> tuple[UOp, ...]:
    """What the rule of `u` gives gradients to."""
    if u.op is not Ops.ASSIGN:
        return u.src
    return through(u.src[0], MOVEMENT)[1], u.src[1]


def _zero(u: UOp) -> UOp:
    return UOp.const(0, u.dtype)


# -- arithmetic -------------------------------------------------------------------------------------------------------
def _div(u: UOp, g: UOp) -> Gradients:
    over = g.alu(Ops.DIV, u.src[1])
    return over, -(over * u)


def _max(u: UOp, g: UOp) -> Gradients:
    """Equal operands share the gradient."""
    a, b = u.src
    shared = a.equal(b).where(g * 0.5, _zero(g))
    return (b < a).where(g, shared), (a < b).where(g, shared)


def _where(u: UOp, g: UOp) -> Gradients:
    condition = u.src[0]
    return None, condition.where(g, _zero(g)), condition.where(_zero(g), g)


def _cast(u: UOp, g: UOp) -> Gradients:
    x = u.src[0]
    return (g.cast(x.dtype) if x.dtype.is_float and u.dtype.is_float else None,)


# -- reductions -------------------------------------------------------------------------------------------------------
def _reduce(u: UOp, g: UOp) -> Gradients:
    x, (op, axes) = u.src[0], u.arg
    wide = expand(g, x.shape)
    if op is Ops.ADD:
        return (wide,)
    if op is Ops.MAX:
        hit = x.equal(expand(u, x.shape))
        # equal maxima share the gradient
        ties = total(hit.cast(dtypes.float32), axes).cast(g.dtype)
        return (hit.where(expand(g.alu(Ops.DIV, ties), x.shape), _zero(g)),)
    # a product without one factor: a zero may not be divided out
    is_zero = x.equal(0.0)
    zeros = expand(total(is_zero.cast(dtypes.float32), axes), x.shape)
    others = is_zero.where(full(1, x.dtype, x.shape), x)
    product = expand(UOp(Ops.REDUCE, x.dtype, (others,), (Ops.MUL, axes)), x.shape)
    rest = zeros.equal(is_zero.cast(dtypes.float32)).where(product.alu(Ops.DIV, others), _zero(x))
    return (wide * rest,)


# -- movement ---------------------------------------------------------------------------------------------------------
def _permute(u: UOp, g: UOp) -> Gradients:
    return (permute(g, sorted(range(len(u.arg)), key=lambda i: int(u.arg[i]))),)


def _expand(u: UOp, g: UOp) -> Gradients:
    old = u.src[0].shape
    return (total(g, [a for a, s in enumerate(old) if s == 1]),)


def _pad(u: UOp, g: UOp) -> Gradients:
    bounds = tuple((b, size_sub(n, a)) for (b, a), n in zip(u.arg, u.shape, strict=True))
    return (UOp(Ops.SHRINK, g.dtype, (g,), bounds),)


def _shrink(u: UOp, g: UOp) -> Gradients:
    around = tuple((b, size_sub(n, e)) for (b, e), n in zip(u.arg, u.src[0].shape, strict=True))
    return (UOp(Ops.PAD, g.dtype, (g,), around),)


def _take(u: UOp, g: UOp) -> Gradients:
    """Every row sums what was picked from it."""
    x, index = u.src
    return scatter(full(0, x.dtype, x.shape), index, g, u.arg, Ops.ADD), None


# -- in order along an axis -------------------------------------------------------------------------------------------
def _scan(u: UOp, g: UOp) -> Gradients:
    """The adjoint λ[i] = g[i] + λ[i + 1] · ∂y[i + 1]/∂y[i] is a scan from the end."""
    op, axis = u.arg
    x = u.src[0]
    if op is Ops.ADD:
        return (flip(scan(flip(g, axis), axis), axis),)
    before = shifted(u, axis, 1)
    first = expand(reshape(iota(u.shape[axis]), tuple(s if a == axis else 1 for a, s in enumerate(u.shape))), u.shape)
    first = first.equal(0)
    one = UOp.const(1, g.dtype)
    by_before, by_x = one, one
    if op is Ops.MUL:
        by_before, by_x = x, first.where(one, before)
    elif op is Ops.MAX:
        tie = before.equal(x).where(one * 0.5, _zero(g))
        by_before = (x < before).where(one, tie)
        by_x = first.where(one, (before < x).where(one, tie))
    else:
        by_before = u.src[1]
    factors = expand(shifted(by_before, axis, -1), u.shape)
    adjoint = flip(UOp(Ops.SCAN, g.dtype, (flip(g, axis), flip(factors, axis)), (Ops.MULADD, axis)), axis)
    return (adjoint, adjoint * before) if op is Ops.MULADD else (adjoint * by_x,)


def _scatter(u: UOp, g: UOp) -> Gradients:
    """Values get the gradient of the place they were written to, as far as they are what is there."""
    x, index, values = u.src
    k, op = u.arg

    def picked(t: UOp) -> UOp:
        return UOp(Ops.TAKE, t.dtype, (t, index), k)

    if op is Ops.ADD:
        return g, None, picked(g)
    if op is Ops.MAX:
        own, hit = x.equal(u), values.equal(picked(u))
        ties = scatter(own.cast(g.dtype), index, hit.cast(g.dtype), k, Ops.ADD)  # equal ones share the gradient
        share = g.alu(Ops.DIV, ties)
        return own.where(share, _zero(g)), None, hit.where(picked(share), _zero(g))
    if op is Ops.MUL:
        one, none = UOp.const(1, g.dtype), (x.equal(0.0), values.equal(0.0))
        factors = none[0].where(one, x), none[1].where(one, values)
        product = scatter(factors[0], index, factors[1], k, Ops.MUL)
        zeros = scatter(none[0].cast(g.dtype), index, none[1].cast(g.dtype), k, Ops.ADD)
        mine = zeros.equal(none[0].cast(g.dtype)).where((g * product).alu(Ops.DIV, factors[0]), _zero(g))
        theirs = picked(zeros).equal(none[1].cast(g.dtype))
        return mine, None, theirs.where(picked(g * product).alu(Ops.DIV, factors[1]), _zero(g))
    # of those that write one place, the last is the one that is there
    number = expand(reshape(iota(index.shape[k]), (*(1,) * k, index.shape[k])), index.shape)
    last = scatter(full(-1, dtypes.int32, x.shape[: k + 1]), index, number, k, Ops.MAX)
    rest = (1,) * (len(x.shape) - k - 1)
    untouched = expand(reshape(last.equal(-1), (*last.shape, *rest)), x.shape)
    stands = reshape(picked(last).equal(number), (*index.shape, *rest))
    return untouched.where(g, _zero(g)), None, expand(stands, values.shape).where(picked(g), _zero(g))


def _assign(u: UOp, g: UOp) -> Gradients:
    """What was written gets the gradient of its place; the memory before gets the rest."""
    chain, view = through(u.src[0], MOVEMENT)
    written = full(True, dtypes.bool, u.src[0].shape)
    for step in chain:
        (written,) = RULES[step.op](step, written)  # type: ignore[assignment]
    return not_(written).where(g, _zero(g)), substitute(u.src[0], {view: g})


def _copy(u: UOp, g: UOp) -> Gradients:
    """Back to where the value came from; what has only been divided anew stays where it is."""
    if set(u.arg.source) == set(u.arg.target):
        return (g,)
    return (UOp(Ops.COPY, g.dtype, (g,), CopyArg(u.arg.target, u.arg.source)),)


def _custom(u: UOp, g: UOp) -> Gradients:
    """The gradients the node brings along, with what arrives in the place of its LEAF; or those that it makes."""
    if u.arg is not None:
        return None, *u.arg(u.src[1:], g)
    given = (substitute(s, {u.src[1]: g}) for s in u.src[3::2])
    return None, None, *(part for gradient in given for part in (gradient, None))


def _function(derivative: Derivative) -> Rule:
    return lambda u, g: (derivative(u, g, u.src[0]),)


RULES: dict[Ops, Rule] = {
    Ops.ADD: lambda u, g: (g, g),
    Ops.MUL: lambda u, g: (g * u.src[1], g * u.src[0]),
    Ops.NEG: lambda u, g: (-g,),
    Ops.DIV: _div,
    Ops.RECIPROCAL: lambda u, g: (-(g * u * u),),
    Ops.MAX: _max,
    Ops.WHERE: _where,
    Ops.CAST: _cast,
    Ops.SQRT: lambda u, g: ((g * 0.5).alu(Ops.DIV, u),),
    **dict.fromkeys((Ops.FLOOR, Ops.TRUNC, Ops.ROUND), lambda u, g: (full(0, g.dtype, u.shape),)),
    **{op: _function(derivative) for op, derivative in DERIVATIVES.items()},
    Ops.POW: power,
    Ops.REDUCE: _reduce,
    Ops.RESHAPE: lambda u, g: (reshape(g, u.src[0].shape),),
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: lambda u, g: (UOp(Ops.FLIP, g.dtype, (g,), u.arg),),
    Ops.TAKE: _take,
    Ops.SCAN: _scan,
    Ops.SCATTER: _scatter,
    Ops.ASSIGN: _assign,
    Ops.CONTIGUOUS: lambda u, g: (g,),
    Ops.COPY: _copy,
    Ops.LEAF: lambda u, g: (g,),
    Ops.CUSTOM_GRADIENT: _custom,
}
"""An op that is not here is constant almost everywhere (comparisons, integers), or the end (DETACH)."""
