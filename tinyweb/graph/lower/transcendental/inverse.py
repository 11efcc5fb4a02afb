"""Arcsine, arccosine and arctangent."""

from __future__ import annotations

import math

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import UOp
from tinyweb.graph.lower.transcendental.build import (
    below,
    format_of,
    horner,
    is_nan,
    muladd,
    opaque,
    quotient,
    root,
    sign_bit,
    size_bits,
    with_sign,
)

F32, F64 = dtypes.float32, dtypes.float64

# x + x**3 * p(x**2) on [-1/2, 1/2]
ASIN = {
    F32: (0.16666659712791443, 0.07500521838665009, 0.04451338201761246, 0.03183881193399429, 0.014317373745143414,
          0.03769026696681976),
    F64: (0.1666666666666676, 0.07499999999970867, 0.044642857174558966, 0.030381942709979903, 0.02237221493230203,
          0.017351612922520795, 0.013980810434356526, 0.011398989856621307, 0.010779841326374334,
          0.0037078875307652625, 0.021704006131393123, -0.020994385735539817, 0.03262580467957552),
}  # fmt: skip
ATAN = {
    F32: (-0.333333283662796, 0.19999554753303528, -0.14273107051849365, 0.10948410630226135, -0.08009076118469238,
          0.0390421524643898),
    F64: (-0.33333333333333315, 0.19999999999993773, -0.14285714284999315, 0.11111111070113122, -0.09090907707779,
          0.07692277689134942, -0.06666225627839449, 0.05877821166937673, -0.052300789934584244,
          0.04589664523301431, -0.03712342633394744, 0.023661070350511935, -0.008369207111401447),
}  # fmt: skip
# rounded to the format, and what is left of it
PI_HALF = {F32: (1.57079637050628662109375, -4.371138828673793e-08), F64: (math.pi / 2, 6.123233995736766e-17)}


def _arcsine_parts(x: UOp, exact: bool) -> tuple[UOp, UOp, UOp]:
    """(near, s, t): near is |x| < 1/2; s + t is the arcsine of |x| there, and of sqrt((1 - |x|) / 2) elsewhere."""
    f, size = format_of(x), size_bits(x)
    near = below(size, f, 0.5)
    a = (size < f.one).where(size.bitcast(x.dtype), x.lift(1.0))
    half = (1.0 - a) * 0.5
    s = near.where(a, root(half, exact))
    z = near.where(a * a, half)
    return near, s, s * z * horner(ASIN[x.dtype], z)


def asin(x: UOp, exact: bool) -> UOp:
    """pi/2 - 2 asin(sqrt((1 - |x|) / 2)) from 1/2 on."""
    near, s, t = _arcsine_parts(x, exact)
    high, low = PI_HALF[x.dtype]
    twice = s * 2.0
    main = opaque(high - twice, exact)
    far = main + (((high - main) - twice) + muladd(t, -2.0, low))
    return _outside(x, with_sign(near.where(s + t, far), sign_bit(x)))


def acos(x: UOp, exact: bool) -> UOp:
    near, s, t = _arcsine_parts(x, exact)
    f, (high, low) = format_of(x), PI_HALF[x.dtype]
    negative = (sign_bit(x) ^ f.sign).equal(0)
    signed, tail = ((size_bits(s) | sign_bit(x)).bitcast(x.dtype), (size_bits(t) | sign_bit(x)).bitcast(x.dtype))
    middle = high - (signed + (tail + -low))
    far = negative.where(((high - s) + (low - t)) * 2.0, (s + t) * 2.0)
    return _outside(x, near.where(middle, far))


def _outside(x: UOp, value: UOp) -> UOp:
    f = format_of(x)
    return (UOp.const(f.one, f.unsigned) < size_bits(x)).where(x.lift(math.nan), value)


def atan(x: UOp, exact: bool) -> UOp:
    """pi/4 + atan((a - 1) / (a + 1)) for a = |x| in [1/2, 2), pi/2 - atan(1 / a) from there on."""
    f, size = format_of(x), size_bits(x)
    high, low = PI_HALF[x.dtype]
    # beyond the limit the result rounds to pi/2
    a = below(size, f, 2.0 ** (f.mantissa + 7)).where(size.bitcast(x.dtype), x.lift(2.0 ** (f.mantissa + 7)))
    near, middle = below(size, f, 0.5), below(size, f, 2.0)
    inverse = quotient(middle.where(a + -1.0, x.lift(-1.0)), middle.where(a + 1.0, a), exact)
    t = near.where(a, inverse)
    z = t * t
    tail = muladd(t * z, horner(ATAN[x.dtype], z), near.where(x.lift(0.0), middle.where(x.lift(low / 2), x.lift(low))))
    value = near.where(t + tail, middle.where(x.lift(high / 2), x.lift(high)) + (t + tail))
    return is_nan(size, f).where(x, with_sign(value, sign_bit(x)))
