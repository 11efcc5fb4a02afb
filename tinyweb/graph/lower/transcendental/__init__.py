"""Elementary and special functions in arithmetic that every target has: one table, from op to expression.

float32 results are within 2 units in the last place for all arguments, float64 within a few; docs/numerics.md says how
far, function by function. Values are built as expressions over the arguments and hold for scalars and tiles alike.
`exact` says whether the target computes as IEEE 754 says (see build.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.transcendental.error import erf, erfc
from tinyweb.graph.lower.transcendental.exponential import cosh, exp, exp2, expm1, sinh, tanh
from tinyweb.graph.lower.transcendental.gamma import digamma, lgamma
from tinyweb.graph.lower.transcendental.ieee import add, divide, equal, invert, less, multiply, square_root
from tinyweb.graph.lower.transcendental.inverse import acos, asin, atan
from tinyweb.graph.lower.transcendental.logarithm import acosh, asinh, atanh, log, log1p, log2, log10
from tinyweb.graph.lower.transcendental.power import pow
from tinyweb.graph.lower.transcendental.remainder import fmod
from tinyweb.graph.lower.transcendental.trigonometric import cos, sin, tan

Expansion: TypeAlias = "Callable[..., UOp]"

EXPANSIONS: dict[Ops, Expansion] = {
    Ops.EXP: exp, Ops.EXP2: exp2, Ops.EXPM1: expm1, Ops.LOG: log, Ops.LOG2: log2, Ops.LOG10: log10, Ops.LOG1P: log1p,
    Ops.SIN: sin, Ops.COS: cos, Ops.TAN: tan, Ops.ASIN: asin, Ops.ACOS: acos, Ops.ATAN: atan, Ops.SINH: sinh,
    Ops.COSH: cosh, Ops.TANH: tanh, Ops.ASINH: asinh, Ops.ACOSH: acosh, Ops.ATANH: atanh, Ops.ERF: erf, Ops.ERFC: erfc,
    Ops.LGAMMA: lgamma, Ops.DIGAMMA: digamma, Ops.POW: pow, Ops.FMOD: fmod,
}  # fmt: skip
BRANCHING = frozenset({Ops.SIN, Ops.COS, Ops.TAN, Ops.FMOD})
"""With a way for arguments that are rare, which `branches` allows to be left out."""
CORRECTIONS: dict[Ops, Expansion] = {
    Ops.DIV: divide, Ops.RECIPROCAL: invert, Ops.SQRT: square_root, Ops.EQUAL: equal, Ops.LESS: less,
    Ops.ADD: add, Ops.MUL: multiply,
}  # fmt: skip
"""For targets that do not do as IEEE 754 says."""
