"""What IEEE 754 says of arithmetic, for targets that do not promise it.

Division, reciprocals and square roots are rounded to within a unit: mantissas are divided, where nothing overflows or
vanishes, and the estimate is corrected by its remainder, which is known exactly. Where one number divides many (a
constant, or what does not vary along a loop) they are multiplied by its reciprocal, in two parts of which the second
begins where the first ends: only the product and the sum are rounded. Zeros, infinities, NaNs and subnormal numbers are
left to the target.

Comparisons by which NaNs and infinities are found look at the bits: compilers may assume that there are none.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.transcendental.build import (
    Format,
    bits_of,
    cut,
    format_of,
    is_nan,
    muladd,
    opaque,
    power_of_two,
    quotient,
    raw,
    reciprocal,
    root,
    scale,
    shr,
    size_bits,
)


def divide(a: UOp, b: UOp, is_root: bool = False) -> UOp:
    """a / b within one unit in the last place; `is_root`: b is a square root, which is neither tiny nor huge."""
    if b.op is Ops.CONST:
        if b.arg == 0:
            return a * math.copysign(math.inf, b.arg)  # compilers take the quotient of a constant 0 for 0
        if 2.0**-100 <= abs(b.arg) <= 2.0**100:
            return _times(a, *_over_constant(b))
    f = format_of(a)
    if any(r not in b.ranges for r in a.ranges):
        # a divisor for many: they are multiplied by its reciprocal
        if is_root:
            return _times(a, *_over(b, b))
        tiny = size_bits(b) < f.power(-60)
        scaled = b * tiny.where(b.lift(2.0**64), b.lift(1.0))
        n = tiny.where(UOp.const(f.bias + 65, f.signed), UOp.const(f.bias + 1, f.signed)) - _exponent(scaled, f)
        half = shr(n, 1)
        significand = ((raw(scaled) & (f.sign | ((1 << f.mantissa) - 1))) | f.power(1)).bitcast(b.dtype)
        value = _times(a * power_of_two(half, f), *_over(significand, scaled))
        return value * power_of_two(n - half, f)
    normal = _is_normal(size_bits(a), f) & _is_normal(size_bits(b), f)
    value = scale(quotient(_mantissa(a, f), _mantissa(b, f), False), _exponent(a, f) - _exponent(b, f))
    signed = (raw(value) | ((raw(a) ^ raw(b)) & f.sign)).bitcast(a.dtype)
    return normal.where(signed, a.alu(Ops.DIV, b))


def _times(a: UOp, over: UOp, rest: UOp) -> UOp:
    """a · (over + rest). Both have one sign, so that an infinity stays one."""
    return a * over if rest.op is Ops.CONST and rest.arg == 0 else muladd(a, over, a * rest)


def _over_constant(b: UOp) -> tuple[UOp, UOp]:
    """1 / b as a float towards zero, and what is left."""
    number = format_of(b).float.numpy.type
    exact = 1 / Fraction(float(number(b.arg)))
    over = number(float(exact))
    if abs(Fraction(float(over))) > abs(exact):
        over = np.nextafter(over, number(0))
    return b.lift(float(over)), b.lift(float(exact - Fraction(float(over))))


def _over(b: UOp, special: UOp) -> tuple[UOp, UOp]:
    """1 / b as a float towards zero, and what is left; the same twice where `special` is no normal number."""
    f = format_of(b)
    estimate = reciprocal(b)
    over = (raw(estimate) - 4).bitcast(b.dtype)  # surely less
    x, y = cut(over), cut(b)
    rest = b.lift(1.0) - x * y - x * (b - y) - (over - x) * y - (over - x) * (b - y)
    normal, other = _is_normal(size_bits(special), f), reciprocal(special)
    return normal.where(over, other), normal.where(rest * estimate, other)


def invert(b: UOp) -> UOp:
    """1 / b within one unit in the last place."""
    f = format_of(b)
    value = scale(quotient(b.lift(1.0), _mantissa(b, f), False), UOp.const(f.bias, f.signed) - _exponent(b, f))
    signed = (raw(value) | (raw(b) & f.sign)).bitcast(b.dtype)
    return _is_normal(size_bits(b), f).where(signed, b.alu(Ops.RECIPROCAL))


def invert_root(x: UOp) -> UOp:
    """1 / sqrt(x) within two units in the last place: an estimate and a step of Newton's method."""
    f = format_of(x)
    estimate = reciprocal(x.alu(Ops.SQRT))
    y = opaque(estimate, False)
    value = muladd(y * 0.5, x.lift(1.0) - x * y * y, y)
    least = 1 << f.mantissa
    return (raw(x) + UOp.const(-least, f.unsigned) < f.infinity - least).where(value, estimate)


def square_root(x: UOp) -> UOp:
    """sqrt(x) within one unit in the last place."""
    f = format_of(x)
    # the square of a tiny number's root has too few digits, that of the largest number's estimated root may overflow
    tiny, huge = size_bits(x) < f.power(-96), UOp.const(f.power(96), f.unsigned) < size_bits(x)
    before = tiny.where(x.lift(2.0**64), huge.where(x.lift(2.0**-64), x.lift(1.0)))
    after = tiny.where(x.lift(2.0**-32), huge.where(x.lift(2.0**32), x.lift(1.0)))
    value = root(x * before, False) * after
    return (raw(x) + UOp.const(-1, f.unsigned) < f.infinity - 1).where(value, x.alu(Ops.SQRT))


def add(a: UOp, b: UOp) -> UOp:
    """a + b, where one may be the negative of the other: compilers take that for 0, of infinities and NaNs too."""
    if _negates(a, b) or _negates(b, a):
        return _is_finite(a).where(a.lift(0.0), a.lift(math.nan))
    return a.alu(Ops.ADD, b)


def multiply(a: UOp, b: UOp) -> UOp:
    """a · b, where one may be a constant 0."""
    for x, zero in ((a, b), (b, a)):
        if zero.op is Ops.CONST and zero.arg == 0:
            f = format_of(x)
            signed = ((raw(x) & f.sign) ^ UOp.const(bits_of(zero.arg, f), f.unsigned)).bitcast(x.dtype)
            return _is_finite(x).where(signed, x.lift(math.nan))
    return a.alu(Ops.MUL, b)


def equal(a: UOp, b: UOp) -> UOp:
    """a == b, where one may be compared with itself or with an infinity."""
    if a is b:
        return is_nan(size_bits(a), format_of(a)).logical_not()
    for x, y in ((a, b), (b, a)):
        if y.op is Ops.CONST and math.isinf(y.arg):
            return raw(x).equal(bits_of(y.arg, format_of(x)))
    return a.equal(b)


def less(a: UOp, b: UOp) -> UOp:
    """a < b, where b may be infinity or a its negative."""
    for x, end, infinity in ((a, b, math.inf), (b, a, -math.inf)):
        if end.op is Ops.CONST and end.arg == infinity:
            f = format_of(x)
            return (is_nan(size_bits(x), f) | raw(x).equal(bits_of(infinity, f))).logical_not()
    return a < b


def _negates(a: UOp, b: UOp) -> bool:
    minus_one = a.op is Ops.MUL and any(s.op is Ops.CONST and s.arg == -1 for s in a.src)
    return (a.op is Ops.NEG or minus_one) and b in a.src


def _is_finite(x: UOp) -> UOp:
    f = format_of(x)
    return size_bits(x) < f.infinity


def _is_normal(size: UOp, f: Format) -> UOp:
    least = 1 << f.mantissa
    return size + UOp.const(-least, f.unsigned) < f.infinity - least


def _mantissa(x: UOp, f: Format) -> UOp:
    """In [1, 2)."""
    return ((raw(x) & ((1 << f.mantissa) - 1)) | f.one).bitcast(x.dtype)


def _exponent(x: UOp, f: Format) -> UOp:
    return shr(size_bits(x), f.mantissa).bitcast(f.signed)
