"""The derivatives of elementary and special functions: from op to the gradient of its source (POW: of both)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from tinyweb.graph.ir import Ops, UOp

Derivative: TypeAlias = "Callable[[UOp, UOp, UOp], UOp]"


def _over(g: UOp, divisor: UOp) -> UOp:
    return g.alu(Ops.DIV, divisor)


def _one_minus_square(x: UOp) -> UOp:
    """As a product, which keeps its digits where |x| is near 1."""
    return (1.0 - x) * (x + 1.0)


def _erf(g: UOp, x: UOp) -> UOp:
    return g * (-(x * x)).alu(Ops.EXP) * (2 / math.sqrt(math.pi))


def _trigamma(u: UOp, g: UOp, x: UOp) -> UOp:
    raise NotImplementedError("gradient: the derivative of digamma, trigamma, is not there")


# of a function u = f(x): (u, gradient of u, x) → gradient of x
DERIVATIVES: dict[Ops, Derivative] = {
    Ops.EXP: lambda u, g, x: g * u,
    Ops.EXP2: lambda u, g, x: g * u * math.log(2),
    Ops.EXPM1: lambda u, g, x: g * (u + 1.0),
    Ops.LOG: lambda u, g, x: _over(g, x),
    Ops.LOG2: lambda u, g, x: _over(g * (1 / math.log(2)), x),
    Ops.LOG10: lambda u, g, x: _over(g * (1 / math.log(10)), x),
    Ops.LOG1P: lambda u, g, x: _over(g, x + 1.0),
    Ops.SIN: lambda u, g, x: g * x.alu(Ops.COS),
    Ops.COS: lambda u, g, x: -(g * x.alu(Ops.SIN)),
    Ops.TAN: lambda u, g, x: g * (u * u + 1.0),
    Ops.ASIN: lambda u, g, x: _over(g, _one_minus_square(x).alu(Ops.SQRT)),
    Ops.ACOS: lambda u, g, x: -_over(g, _one_minus_square(x).alu(Ops.SQRT)),
    Ops.ATAN: lambda u, g, x: _over(g, x * x + 1.0),
    Ops.SINH: lambda u, g, x: g * x.alu(Ops.COSH),
    Ops.COSH: lambda u, g, x: g * x.alu(Ops.SINH),
    Ops.TANH: lambda u, g, x: g * _one_minus_square(u),
    Ops.ASINH: lambda u, g, x: _over(g, (x * x + 1.0).alu(Ops.SQRT)),
    Ops.ACOSH: lambda u, g, x: _over(g, ((x + -1.0) * (x + 1.0)).alu(Ops.SQRT)),
    Ops.ATANH: lambda u, g, x: _over(g, _one_minus_square(x)),
    Ops.ERF: lambda u, g, x: _erf(g, x),
    Ops.ERFC: lambda u, g, x: -_erf(g, x),
    Ops.LGAMMA: lambda u, g, x: g * x.alu(Ops.DIGAMMA),
    Ops.DIGAMMA: _trigamma,
}


def power(u: UOp, g: UOp) -> tuple[UOp, UOp]:
    """Of x ** y: y · x ** (y - 1), which is 0 for y = 0, and log(x) · x ** y, which is 0 for x = 0 and y ≥ 0."""
    x, y = u.src
    zero = g.lift(0.0)
    base = y.equal(0.0).where(zero, g * y * UOp(Ops.POW, u.dtype, (x, y + -1.0)))
    vanishes = x.equal(0.0) & (y < 0.0).logical_not()
    return base, vanishes.where(zero, g * u * x.alu(Ops.LOG))
