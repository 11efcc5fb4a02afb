"""Logarithms and inverse hyperbolic functions: x = 2**e · (1 + f) with 1 + f in [sqrt(1/2), sqrt(2))."""

from __future__ import annotations

import math
from typing import NamedTuple

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.transcendental.build import (
    at_most,
    below,
    cut,
    format_of,
    horner,
    is_nan,
    muladd,
    odd,
    opaque,
    power_of_two,
    quotient,
    raw,
    root,
    shl,
    shr,
    sign_bit,
    size_bits,
    with_sign,
)

F32, F64 = dtypes.float32, dtypes.float64

# log(1 + f) = f - f**2 / 2 + f**3 * p(f) on [sqrt(1/2), sqrt(2)] - 1
LOG_F32 = (0.3333331346511841, -0.25000032782554626, 0.20002052187919617, -0.16667696833610535,
           0.14220428466796875, -0.12399717420339584, 0.11873332411050797, -0.11753670871257782,
           0.06907986849546432)  # fmt: skip
# atanh(s) = s + s**3 * p(s**2) for |s| ≤ 3 - sqrt(8): log(1 + f) = 2 atanh(f / (2 + f))
ATANH_F64 = (0.3333333333333333, 0.2000000000000246, 0.1428571428470616, 0.11111111303400617, 0.09090889183466817,
             0.0769349421429968, 0.06626077965887105, 0.06617359618048622)  # fmt: skip
# x + x**3 * p(x**2) on [-1/2, 1/2]
ASINH = {
    F32: (-0.1666664332151413, 0.07498640567064285, -0.04438294842839241, 0.028160907328128815,
          -0.013222888112068176),
    F64: (-0.16666666666666663, 0.07499999999998827, -0.04464285714155632, 0.030381944371670147,
          -0.022372156683947694, 0.017352713100434767, -0.013964101046691713, 0.01154428150991413,
          -0.009707506194913826, 0.008112636741029038, -0.006303039427490691, 0.003893352861764934,
          -0.0013444713514968545),
}  # fmt: skip
ATANH = {
    F32: (0.3333333730697632, 0.199996218085289, 0.14297814667224884, 0.10929401963949203, 0.10524441301822662,
          0.016961989924311638, 0.18513548374176025),
    F64: (0.33333333333333337, 0.1999999999999846, 0.14285714285936887, 0.11111111094874992, 0.09090909793390749,
          0.07692287975040282, 0.06667045704377005, 0.05877192371578429, 0.05313882934909441, 0.04399233757019231,
          0.06226377910589795, -0.029230331633545357, 0.2114966070414478, -0.24236112118651004, 0.2579654907749633),
}  # fmt: skip
# acosh(1 + t) = sqrt(2t) * (1 + t * p(t)) on [0, 1/2]
ACOSH = {
    F32: (-0.08333321660757065, 0.018746595829725266, -0.005547800101339817, 0.0017598160775378346,
          -0.0004129617300350219),
    F64: (-0.08333333333333331, 0.018749999999997068, -0.005580357142694537, 0.0018988715232294842,
          -0.0006991298963831569, 0.00027113614269693646, -0.00010909454822488442, 4.5094924925064556e-05,
          -1.896033753435526e-05, 7.923549673935553e-06, -3.0794576254695547e-06, 9.522135022133992e-07,
          -1.647878171656243e-07),
}  # fmt: skip
SQRT_HALF = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}


class Base(NamedTuple):
    """Of a logarithm: 1 / ln(base) in two parts, the first of few digits, and log(2) to the base likewise."""

    scale: tuple[float, float]
    two: tuple[float, float]


BASES = {
    Ops.LOG: {F32: Base((1.0, 0.0), (0.693359375, -2.1219444005469057e-04)),
              F64: Base((1.0, 0.0), (6.93147180369123816490e-01, 1.90821492927058770002e-10))},
    Ops.LOG2: {F32: Base((1.4423828125, 0.00031222839606925845), (1.0, 0.0)),
               F64: Base((1.4426950216293335, 1.9259629911266175e-08), (1.0, 0.0))},
    Ops.LOG10: {F32: Base((0.4342041015625, 9.038033749675378e-05), (0.301025390625, 4.605039066518657e-06)),
                F64: Base((0.4342944771051407, 4.798111141615973e-09), (0.30102999566361177, 3.694239077158931e-13))},
}  # fmt: skip


def log(x: UOp, exact: bool) -> UOp:
    return _logarithm(x, Ops.LOG, exact)


def log2(x: UOp, exact: bool) -> UOp:
    return _logarithm(x, Ops.LOG2, exact)


def log10(x: UOp, exact: bool) -> UOp:
    return _logarithm(x, Ops.LOG10, exact)


def _logarithm(x: UOp, base: Ops, exact: bool) -> UOp:
    f = format_of(x)
    bits = x.bitcast(f.signed)
    # a subnormal number is its mantissa times the smallest one
    tiny = bits < (1 << f.mantissa)
    e, m = exponent_and_mantissa(tiny.where(bits.cast(x.dtype).bitcast(f.signed), bits), x)
    e = e + tiny.where(e.lift(1 - f.bias - f.mantissa), e.lift(0))
    return _specials(x, _of_parts(e, m + -1.0, None, base, exact))


def _specials(x: UOp, value: UOp) -> UOp:
    f = format_of(x)
    bits = x.bitcast(f.signed)
    above = bits.lift(f.infinity - 1) < bits  # infinity and NaNs with a clear sign
    value = above.where(x, value)
    value = (bits < 0).where(x.lift(math.nan), value)
    return size_bits(x).equal(0).where(x.lift(-math.inf), value)


def exponent_and_mantissa(bits: UOp, x: UOp) -> tuple[UOp, UOp]:
    """The bits (signed) of a positive normal number → (e, m): it is 2**e · m with m in [sqrt(1/2), sqrt(2))."""
    f = format_of(x)
    e = shr(bits + -SQRT_HALF[x.dtype], f.mantissa)
    return e, (bits - shl(e, f.mantissa)).bitcast(x.dtype)


def _of_parts(e: UOp, g: UOp, correction: UOp | None, base: Ops, exact: bool) -> UOp:
    """The logarithm of 2**e · (1 + g + correction), where the correction is tiny."""
    (scale, scale_low), (two, two_low) = BASES[base][g.dtype]
    exponent = e.cast(g.dtype)
    if g.dtype is F32:
        rest = g * g * muladd(g, horner(LOG_F32, g), -0.5)
    else:
        s = quotient(g, g + 2.0, exact)
        z, half = s * s, g * g * 0.5
        rest = s * (half + z * 2.0 * horner(ATANH_F64, z)) - half
    if correction is not None:
        rest = muladd(correction, muladd(g, g + -1.0, 1.0), rest)  # divided by 1 + g, nearly
    leading = g
    if scale != 1.0:
        high = cut(g)
        leading = high * scale
        rest = muladd((g - high) + rest, scale + scale_low, high * scale_low)
    small = muladd(exponent, two_low, rest) if two_low else rest
    return muladd(exponent, two, small + leading) if two != 1.0 else (small + leading) + exponent


def log1p(x: UOp, exact: bool) -> UOp:
    """log(u) with u = 1 + x rounded, and what rounding took away."""
    f, size = format_of(x), size_bits(x)
    u = opaque(x + 1.0, exact)
    lost = below(size, f, 1.0).where(x - (u + -1.0), 1.0 - (u - x))
    e, g, correction = _corrected(u, lost)
    near = e.equal(0)
    value = _of_parts(e, near.where(x, g), near.where(x.lift(0.0), correction), Ops.LOG, exact)
    bits = x.bitcast(f.signed)
    keep = below(size, f, 2.0 ** -(f.mantissa + 3)) | (bits.lift(f.infinity - 1) < bits)
    value = keep.where(x, value)
    minus_one = UOp.const(f.one | f.sign, f.unsigned)
    value = (minus_one < raw(x)).where(x.lift(math.nan), value)
    return raw(x).equal(minus_one).where(x.lift(-math.inf), value)


def _corrected(u: UOp, lost: UOp) -> tuple[UOp, UOp, UOp]:
    """A positive number u + lost in parts: 2**e · (1 + g + correction)."""
    f = format_of(u)
    e, m = exponent_and_mantissa(u.bitcast(f.signed), u)
    # far above 1 nothing that was lost is worth keeping
    return e, m + -1.0, lost * power_of_two(-at_most(e, f.mantissa + 10), f)


def asinh(x: UOp, exact: bool) -> UOp:
    """log(|x| + sqrt(x**2 + 1)) away from zero."""
    return odd(x, ASINH, 0.5, _log_of_root(x, 1.0, exact))


def acosh(x: UOp, exact: bool) -> UOp:
    """log(x + sqrt(x**2 - 1)) away from 1."""
    f, size = format_of(x), size_bits(x)
    above_one = x + -1.0
    t = opaque(above_one, exact)
    near = root(above_one * 2.0, exact) * muladd(t, horner(ACOSH[x.dtype], t), 1.0)
    value = below(size, f, 1.5).where(near, _log_of_root(x, -1.0, exact))
    bits = x.bitcast(f.signed)
    return (bits < f.one).where(x.lift(math.nan), is_nan(size, f).where(x, value))


def _log_of_root(x: UOp, one: float, exact: bool) -> UOp:
    """log(|x| + sqrt(x**2 + one)) for |x| ≥ 1/2 (one = 1) or |x| ≥ 3/2 (one = -1), with twice the digits inside."""
    f, size = format_of(x), size_bits(x)
    moderate = below(size, f, 2.0 ** (f.mantissa // 2 + 2))  # above: 2x
    a = moderate.where(size.bitcast(x.dtype), x.lift(1.5))
    high = cut(a)
    square, rest = high * high, (a - high) * (a + high)
    total = opaque(square + one, exact)
    if one > 0:
        lost = (square < 1.0).where(square - (total + -1.0), 1.0 - (total - square))
    else:
        lost = -1.0 - (total - square)
    rest = rest + lost
    estimate = (total + rest).alu(Ops.SQRT)
    s = cut(estimate)
    s_low = ((total - s * s) + rest).alu(Ops.DIV, s + estimate)
    u = opaque(s + a, exact)
    lost = (a - (u - s)) + s_low
    whole = opaque(u + lost, exact)
    e, g, correction = _corrected(whole, lost - (whole - u))
    big_e, big_m = exponent_and_mantissa(size.bitcast(f.signed), x)
    e = moderate.where(e, big_e + 1)
    g = moderate.where(g, big_m + -1.0)
    value = _of_parts(e, g, moderate.where(correction, x.lift(0.0)), Ops.LOG, exact)
    return (size < f.infinity).where(value, size.bitcast(x.dtype))


def atanh(x: UOp, exact: bool) -> UOp:
    """log((1 + |x|) / (1 - |x|)) / 2 away from zero."""
    f, size = format_of(x), size_bits(x)
    a = size.bitcast(x.dtype)
    z = a * a
    near = muladd(a * z, horner(ATANH[x.dtype], z), a)
    inside = (size < f.one).where(a, x.lift(0.0))
    ratio = quotient(inside + 1.0, 1.0 - inside, exact)
    e, m = exponent_and_mantissa(ratio.bitcast(f.signed), x)
    far = _of_parts(e, m + -1.0, None, Ops.LOG, exact) * 0.5
    value = below(size, f, 0.5).where(near, far)
    value = size.equal(f.one).where(x.lift(math.inf), (size < f.one).where(value, x.lift(math.nan)))
    return with_sign(value, sign_bit(x))
