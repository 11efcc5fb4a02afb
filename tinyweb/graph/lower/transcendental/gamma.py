"""log |Γ(x)| and its derivative.

Both walk from 0 < x < 8 to the interval [1, 2], where their zeros are, by Γ(x + 1) = x·Γ(x), have an asymptotic series
above, and reflect negative arguments (Abramowitz and Stegun 6.1 and 6.3). Next to the zeros on the negative side the
error is small only beside the two terms that cancel there.
"""

from __future__ import annotations

import math

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.transcendental.build import (
    below,
    format_of,
    horner,
    is_nan,
    muladd,
    opaque,
    reciprocal,
    sign_bit,
    size_bits,
)
from tinyweb.graph.lower.transcendental.ieee import divide
from tinyweb.graph.lower.transcendental.logarithm import log
from tinyweb.graph.lower.transcendental.trigonometric import COS, SIN

F32, F64 = dtypes.float32, dtypes.float64

# lgamma(x) = (x - 1) * (x - 2) * p(x - 3/2) on [1, 2]
LGAMMA = {
    F32: (0.48312896490097046, -0.14595989882946014, 0.06291104853153229, -0.03130799159407616,
          0.016808222979307175, -0.00943649373948574, 0.0053251925855875015, -0.0031158814672380686,
          0.002448347397148609, -0.0015264498069882393),
    F64: (0.4831289505409809, -0.14595989591430608, 0.06291140107456437, -0.03130848750100938, 0.016797098631276,
          -0.009425622448635408, 0.0054464578390316125, -0.0032120740693594623, 0.0019229163152518023,
          -0.0011644146798447563, 0.0007115190306911972, -0.0004379918267368944, 0.0002713140739132296,
          -0.0001689280833621363, 0.00010535323571550413, -6.608809595255853e-05, 4.303411228722558e-05,
          -2.7371144839991498e-05, 1.3173901107864015e-05, -8.053345911786235e-06, 1.2149711691155371e-05,
          -7.990857241784576e-06),
}  # fmt: skip
# digamma(x) = (x - ZERO) * p(x - 3/2) on [1, 2]
DIGAMMA = {
    F32: (0.9510558843612671, -0.42362746596336365, 0.24053838849067688, -0.1483999639749527, 0.09511739760637283,
          -0.06204000115394592, 0.03936183452606201, -0.02587236650288105, 0.02392430230975151,
          -0.016221296042203903),
    F64: (0.951055876031833, -0.4236274212814606, 0.24054248424077398, -0.14840492305389008, 0.09498872445497258,
          -0.061922133274695854, 0.04076083381080932, -0.026975796691246556, 0.0179072524814904,
          -0.011908219419569236, 0.00792694401672488, -0.005279946256021243, 0.0035190121406959074,
          -0.0023454207794235734, 0.0015565993851648153, -0.0010368421764024424, 0.0007234368678741886,
          -0.0004847301481772774, 0.00022702531794518635, -0.00014697806889700526, 0.0002598513340667896,
          -0.00017656268860416667),
}  # fmt: skip
# the zero of digamma, in two parts
ZERO = {F32: (1.4616321325302124, 1.2438149938918909e-08), F64: (1.4616321449683622, 9.549995429965697e-17)}
# Stirling's series in 1 / x**2
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
TERMS = {F32: 3, F64: 8}


def lgamma(x: UOp, exact: bool) -> UOp:
    f, size = format_of(x), size_bits(x)
    a = size.bitcast(x.dtype)
    value = _lgamma_of_positive(a, exact)
    # Γ(-a) · Γ(a) = -pi / (a · sin(pi·a)); where a vanishes, log |Γ| is -log(a) on either side
    sine, _ = _circle(a)
    reflected = -(log(a * sine * (1 / math.pi), exact) + value)
    negative = sign_bit(x).equal(0).logical_not() & below(size, f, 2.0 ** -(f.mantissa + 1)).logical_not()
    value = negative.where(reflected, value)
    # large negative numbers are whole
    endless = size.equal(f.infinity) | (negative & below(size, f, 2.0**f.mantissa).logical_not())
    return is_nan(size, f).where(x, endless.where(x.lift(math.inf), value))


def _lgamma_of_positive(a: UOp, exact: bool) -> UOp:
    small = a < 1.0
    product = small.where(a, a.lift(1.0))
    for k in range(1, 7):
        product = (a < k + 1.0).where(product, product * (a + -float(k)))
    near = a < 8.0
    logarithm = log(near.where(product, a), exact)
    t = _above_one(a)
    between = t * small.where(a + -1.0, t + -1.0) * horner(LGAMMA[a.dtype], t + -0.5)
    series = horner(STIRLING[: TERMS[a.dtype]], reciprocal(a * a))
    stirling = muladd(a + -0.5, logarithm + -1.0, muladd(series, reciprocal(a), 0.5 * math.log(2 * math.pi) - 0.5))
    return near.where(between + small.where(-logarithm, logarithm), stirling)


def _above_one(a: UOp) -> UOp:
    """How far above 1 the number in [1, 2) lies that is a whole number away from a > 0."""
    return (a < 1.0).where(a, (a - (a + -1.0).alu(Ops.FLOOR)) + -1.0)


def digamma(x: UOp, exact: bool) -> UOp:
    f, size = format_of(x), size_bits(x)
    a = size.bitcast(x.dtype)
    near, small = a < 8.0, a < 1.0
    negative = sign_bit(x).equal(0).logical_not()
    # digamma(a) is a value of [1, 2] and a sum of 1 / (a - k), here one fraction; digamma(-a) is
    # digamma(a) + 1/a + pi / tan(pi·a): one fraction more, and below 1 the two 1/a cancel
    inner = near.where(a, a.lift(1.0))
    more = near & (small ^ negative)
    numerator = more.where(small.where(a.lift(-1.0), a.lift(1.0)), a.lift(0.0))
    divisor = more.where(a, a.lift(1.0))
    for k in range(1, 7):
        stop, factor = inner < k + 1.0, inner + -float(k)
        numerator = stop.where(numerator, muladd(numerator, factor, divisor))
        divisor = stop.where(divisor, divisor * factor)
    sine, cosine = _circle(a)
    scale = negative.where(sine, a.lift(1.0))
    numerator = muladd(numerator, scale, negative.where(cosine * math.pi, a.lift(0.0)) * divisor)
    divisor = divisor * scale
    fraction = numerator.alu(Ops.DIV, divisor) if exact else divide(numerator, divisor)
    high, low = ZERO[a.dtype]
    t = _above_one(a)
    around = (opaque(t + -(high - 1), exact) + -low) * horner(DIGAMMA[a.dtype], t + -0.5)
    over = reciprocal(a)
    z = over * over
    series = muladd(over, negative.where(a.lift(0.5), a.lift(-0.5)), -(z * horner(DIGAMMA_SERIES[: TERMS[a.dtype]], z)))
    value = near.where(around, log(a, exact) + series) + fraction
    # poles are the whole numbers below zero, and large negative numbers are whole
    pole = negative & below(size, f, 1.0).logical_not()
    pole = pole & (sine.equal(0.0) | below(size, f, 2.0**f.mantissa).logical_not())
    value = pole.where(x.lift(math.nan), value)
    value = size.equal(f.infinity).where(negative.where(x.lift(math.nan), x), value)
    return is_nan(size, f).where(x, value)


def _circle(a: UOp) -> tuple[UOp, UOp]:
    """|sin(pi·a)|, and cos(pi·a) with the sign of tan(pi·a)."""
    r = a - (a + 0.5).alu(Ops.FLOOR)
    q = size_bits(r).bitcast(a.dtype)
    steep = q < 0.25
    p = steep.where(q, 0.5 - q) * math.pi
    z = p * p
    sine = muladd(p * z, horner(SIN[a.dtype], z), p)
    cosine = muladd(z * z, horner(COS[a.dtype], z), muladd(z, -0.5, 1.0))
    other = steep.where(cosine, sine)
    return steep.where(sine, cosine), (r < 0.0).where(-other, other)
