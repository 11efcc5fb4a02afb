"""x to the power y: 2**(y · log2(x)) with the logarithm and the product in twice the digits.

The shape of the computation is that of fdlibm's (Sun Microsystems 1993): log(m) = 2/3 · s · (3 + s**2 + …) for
s = (m - 1) / (m + 1), every factor cut in two. The special cases are those of IEEE 754-2019 (9.2.1) and C's Annex F.
"""

from __future__ import annotations

import math

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.transcendental.build import (
    below,
    clamp,
    cut,
    format_of,
    horner,
    is_nan,
    raw,
    reciprocal,
    sign_bit,
    size_bits,
)
from tinyweb.graph.lower.transcendental.exponential import exp2_of_parts
from tinyweb.graph.lower.transcendental.logarithm import exponent_and_mantissa

F32, F64 = dtypes.float32, dtypes.float64

# 3 · atanh(s) / s = 3 + s**2 + s**4 * p(s**2) for |s| ≤ 3 - sqrt(8)
SERIES = {
    F32: (0.6000022888183594, 0.42820635437965393, 0.35129469633102417),
    F64: (0.5999999999999996, 0.428571428571688, 0.3333333332602945, 0.2727272833920482, 0.2307683300793089,
          0.20004564453488607, 0.17510436984670522, 0.17998415935455547),
}  # fmt: skip
# 2 / (3 ln 2), the first half of its digits and the rest
SCALE = {F32: (0.961669921875, 0.00012677205086220056), F64: (0.9617966860532761, 7.872699542894897e-09)}


def pow(x: UOp, y: UOp, exact: bool) -> UOp:
    f = format_of(x)
    size_x, size_y = size_bits(x), size_bits(y)
    # any larger exponent makes the same result of every base but 1, and is even
    limit = 2.0 ** (f.mantissa + 13)
    real_y = is_nan(size_y, f).where(y.lift(1.0), y)
    exponent = clamp(real_y, -limit, limit)
    value = _power(size_x, exponent)

    half = exponent * 0.5
    fraction = below(size_y, f, 1.0) & UOp.const(0, f.unsigned).alu(Ops.LESS, size_y)
    whole = fraction.logical_not() & exponent.alu(Ops.FLOOR).equal(exponent)
    odd = whole & half.alu(Ops.FLOOR).equal(half).logical_not()
    y_negative = sign_bit(y).equal(0).logical_not()
    x_negative = sign_bit(x).equal(0).logical_not()
    zero, infinite = size_x.equal(0), size_x.equal(f.infinity)
    value = (zero | infinite).where(zero.alu(Ops.EQUAL, y_negative).where(x.lift(math.inf), x.lift(0.0)), value)
    value = (raw(value) | (odd.where(sign_bit(x), size_x.lift(0)))).bitcast(x.dtype)
    undefined = x_negative & whole.logical_not() & (zero | infinite).logical_not()
    undefined = undefined | is_nan(size_x, f) | is_nan(size_y, f)
    value = undefined.where(x.lift(math.nan), value)
    return (size_y.equal(0) | raw(x).equal(f.one)).where(x.lift(1.0), value)


def _power(size: UOp, y: UOp) -> UOp:
    """|x| ** y for the bits of a finite |x| > 0."""
    f = format_of(y)
    high, low = _log2(size, y)
    y_high = cut(y)
    product = y_high * high
    rest = (y - y_high) * high + y * low
    top, bottom = f.bias + 2.0, -(f.bias + f.mantissa + 3.0)
    clamped = clamp(product, bottom, top)
    return exp2_of_parts(clamped, clamped.equal(product).where(rest, y.lift(0.0)))


def _log2(size: UOp, y: UOp) -> tuple[UOp, UOp]:
    """log2 of the positive number with these bits, as a number of half the digits and a small one."""
    f = format_of(y)
    bits = size.bitcast(f.signed)
    tiny = bits < (1 << f.mantissa)
    e, m = exponent_and_mantissa(tiny.where(bits.cast(y.dtype).bitcast(f.signed), bits), y)
    e = e + tiny.where(e.lift(1 - f.bias - f.mantissa), e.lift(0))
    # s = (m - 1) / (m + 1)
    above, divisor = m + -1.0, m + 1.0
    over = reciprocal(divisor)
    s = above * over
    s_high, d_high = cut(s), cut(divisor)
    s_low = ((above - s_high * d_high) - s_high * (m - (d_high + -1.0))) * over
    # t = 3 + s**2 + …
    z = s * s
    square = s_high * s_high
    series = z * z * horner(SERIES[y.dtype], z) + s_low * (s_high + s)
    t_high = cut((square + 3.0) + series)
    t_low = series - ((t_high + -3.0) - square)
    # p = s · t
    exact_part = s_high * t_high
    small_part = s_low * t_high + t_low * s
    p_high = cut(exact_part + small_part)
    p_low = small_part - (p_high - exact_part)
    # log2(m) = scale · p
    scale_high, scale_low = SCALE[y.dtype]
    leading = p_high * scale_high
    trailing = p_high * scale_low + p_low * (scale_high + scale_low)
    exponent = e.cast(y.dtype)
    high = cut((leading + trailing) + exponent)
    return high, trailing - ((high - exponent) - leading)
