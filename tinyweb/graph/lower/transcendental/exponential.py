"""Exponential and hyperbolic functions.

x = n·ln 2 + r with |r| ≤ ln(2)/2, so exp(x) = 2**n · exp(r); ln 2 is subtracted in two parts of which the first is
exact (Cody and Waite 1980).
"""

from __future__ import annotations

import math

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.transcendental.build import (
    at_most,
    below,
    clamp,
    format_of,
    horner,
    is_nan,
    muladd,
    odd,
    opaque,
    power_of_two,
    quotient,
    scale,
    size_bits,
)

F32, F64 = dtypes.float32, dtypes.float64

# 2**f = 1 + f * p(f) on [-1/2, 1/2]
EXP2 = {
    F32: (0.6931472420692444, 0.24022655189037323, 0.05550272762775421, 0.009617063216865063,
          0.0013417780864983797, 0.00015824187721591443),
    F64: (0.6931471805599453, 0.2402265069591007, 0.05550410866482337, 0.00961812910763022, 0.0013333558146036066,
          0.00015403530388940278, 1.5252734163505748e-05, 1.3215491248019541e-06, 1.0177933978749904e-07,
          7.052993030869679e-09, 4.473525873698747e-10, 2.8684840670520612e-11),
}  # fmt: skip
# exp(r) = 1 + r + r**2 * p(r) on [-ln(2)/2, ln(2)/2]
EXP = {
    F32: (0.4999999403953552, 0.1666650027036667, 0.041667889803647995, 0.008371071889996529, 0.0013862171908840537),
    F64: (0.5, 0.16666666666666693, 0.04166666666666687, 0.008333333333309786, 0.0013888888888744242,
          0.00019841269913339207, 2.480158763722559e-05, 2.7557217411855156e-06, 2.755700828638858e-07,
          2.512322941486407e-08, 2.1036309519773463e-09),
}  # fmt: skip
# x + x**3 * p(x**2): sinh on [-1, 1], tanh on [-5/8, 5/8]
SINH = {
    F32: (0.1666666716337204, 0.00833331048488617, 0.00019842895562760532, 2.7822131869470468e-06),
    F64: (0.16666666666666666, 0.008333333333333573, 0.00019841269841061162, 2.755731931008883e-06,
          2.5052089413248628e-08, 1.6061339101302683e-10, 7.503270075111224e-13, 6.47518672885855e-15),
}  # fmt: skip
TANH = {
    F32: (-0.3333328068256378, 0.13331405818462372, -0.05373651906847954, 0.020628193393349648,
          -0.005692339967936277),
    F64: (-0.33333333333332854, 0.1333333333326193, -0.05396825393119193, 0.021869487574359796,
          -0.008863220979969052, 0.003591988991671341, -0.0014549579459515523, 0.0005863134958727874,
          -0.0002285580659380455, 7.713738431406735e-05, -1.6069154864204585e-05),
}  # fmt: skip
LN2 = {F32: (0.693359375, -2.1219444005469057e-04), F64: (6.93147180369123816490e-01, 1.90821492927058770002e-10)}
# beyond these exponents the result is infinite or zero
LIMITS = {F32: (-104.0, 89.0), F64: (-746.0, 710.0)}


def exponent_and_rest(x: UOp, exact: bool, low: UOp | None = None) -> tuple[UOp, UOp]:
    """x (+ low) within the limits → (n, q): exp(x + low) = 2**n · (1 + q)."""
    f, (high_part, low_part) = format_of(x), LN2[x.dtype]
    n = muladd(x if low is None else x + low, 1 / math.log(2), 0.5).alu(Ops.FLOOR)
    rest = muladd(opaque(n, exact), -low_part, muladd(n, -high_part, x))
    if low is not None:
        rest = rest + low
    q = muladd(rest * rest, horner(EXP[x.dtype], rest), rest)
    return n.cast(f.signed), opaque(q, exact)


def exp(x: UOp, exact: bool) -> UOp:
    nan = is_nan(size_bits(x), format_of(x))
    n, q = exponent_and_rest(clamp(nan.where(x.lift(0.0), x), *LIMITS[x.dtype]), exact)
    return nan.where(x, scale(q + 1.0, n))


def exp2(x: UOp, exact: bool) -> UOp:
    f = format_of(x)
    nan = is_nan(size_bits(x), f)
    clamped = clamp(nan.where(x.lift(0.0), x), -(f.bias + f.mantissa + 2.0), f.bias + 2.0)
    return nan.where(x, exp2_of_parts(clamped, None))


def exp2_of_parts(x: UOp, low: UOp | None) -> UOp:
    """2**(x + low) for x where the result is finite or about to overflow or vanish, and a small `low`."""
    n = ((x if low is None else x + low) + 0.5).alu(Ops.FLOOR)
    part = x - n if low is None else (x - n) + low
    return scale(muladd(part, horner(EXP2[x.dtype], part), 1.0), n.cast(format_of(x).signed))


def expm1(x: UOp, exact: bool) -> UOp:
    """exp(x) - 1 = 2**n · (q + (1 - 2**-n))."""
    f, size = format_of(x), size_bits(x)
    nan = is_nan(size, f)
    n, q = exponent_and_rest(clamp(nan.where(x.lift(0.0), x), -(f.mantissa + 3.0), LIMITS[x.dtype][1]), exact)
    value = (q + (1.0 - power_of_two(-at_most(n, f.mantissa + 10), f))) * 2.0 * power_of_two(n + -1, f)
    return (nan | below(size, f, 2.0 ** -(f.mantissa + 3))).where(x, value)


def sinh(x: UOp, exact: bool) -> UOp:
    grown, shrunk = _halves_of_exponentials(x, exact)
    return odd(x, SINH, 1.0, grown - shrunk)


def cosh(x: UOp, exact: bool) -> UOp:
    grown, shrunk = _halves_of_exponentials(x, exact)
    return is_nan(size_bits(x), format_of(x)).where(x, grown + shrunk)


def _halves_of_exponentials(x: UOp, exact: bool) -> tuple[UOp, UOp]:
    """exp(|x|) / 2 and exp(-|x|) / 2; the first overflows only where sinh and cosh do."""
    f, size, limit = format_of(x), size_bits(x), LIMITS[x.dtype][1] + 1.0
    n, q = exponent_and_rest(below(size, f, limit).where(size.bitcast(x.dtype), x.lift(limit)), exact)
    mantissa = q + 1.0
    small = quotient(x.lift(0.5), mantissa, exact) * power_of_two(-at_most(n, f.mantissa + 10), f)
    return scale(mantissa, n + -1), small


def tanh(x: UOp, exact: bool) -> UOp:
    """1 - 2 / (exp(2|x|) + 1) away from zero."""
    f, size = format_of(x), size_bits(x)
    limit = 0.5 * (f.mantissa + 3)  # beyond it the result rounds to 1
    n, q = exponent_and_rest(below(size, f, limit).where(size.bitcast(x.dtype), x.lift(limit)) * 2.0, exact)
    grown = (q + 1.0) * power_of_two(n, f)
    return odd(x, TANH, 0.625, 1.0 - quotient(x.lift(2.0), grown + 1.0, exact))
