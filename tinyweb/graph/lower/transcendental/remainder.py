"""The remainder of a quotient rounded to zero, without rounding: long division of the significands as integers.

With |x| = a · 2**m and |y| = b · 2**n each step takes as many digits from m - n as a float's quotient is sure of. That
is at most 1 too small, so that what is left of a is less than 2b, and its low word says it all.
"""

from __future__ import annotations

import math

from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.transcendental.build import (
    Branches,
    Format,
    at_most,
    format_of,
    is_nan,
    muladd,
    opaque,
    power_of_two,
    raw,
    reciprocal,
    shl,
    shr,
    sign_bit,
    size_bits,
    with_sign,
)

USUAL = 2
"""Steps that are taken for all: quotients of 11 decimal digits."""


def fmod(x: UOp, y: UOp, exact: bool, branches: Branches | None = None) -> UOp:
    """NaN for infinite x, for y = 0 and for NaNs; x itself where |x| < |y|."""
    f = format_of(x)
    size, over = size_bits(x), size_bits(y)
    smaller = size < over
    rest = _far(size, over, smaller, f, exact) if branches is None else _near(size, over, smaller, f, branches)
    unit = shl(_field(over, f), f.mantissa).bitcast(f.float)
    value = smaller.where(x, with_sign(_float(rest, f) * 2.0**-f.mantissa * unit, sign_bit(x)))
    undefined = over.equal(0) | (size < f.infinity).logical_not() | is_nan(over, f)
    return undefined.where(x.lift(math.nan), value)


def _near(size: UOp, over: UOp, smaller: UOp, f: Format, branches: Branches) -> UOp:
    """A few steps, where they are enough for all lanes of a vector and no divisor is subnormal."""
    gap = smaller.where(size.lift(0), _field(size, f) - _field(over, f))
    near = (gap < USUAL * _digits(f) + 1) & (over < (1 << f.mantissa)).logical_not()
    quick = _steps(_significand(size, f), _significand(over, f), gap, USUAL, f, True)
    taken = branches.once_if_any(near.logical_not())
    # the argument seems to depend on the step, so that the work stays inside of it
    slow = UOp(Ops.REDUCE, f.unsigned, (_far(size + taken.cast(f.unsigned), over, smaller, f, True), taken), Ops.ADD)
    return near.where(quick, slow)


def _far(size: UOp, over: UOp, smaller: UOp, f: Format, exact: bool) -> UOp:
    """As many steps as the largest quotient takes; the digits of a subnormal divisor begin where others' do."""
    divisor = raw(_float(_significand(over, f), f))
    missing = UOp.const(f.bias + f.mantissa, f.unsigned) - shr(divisor, f.mantissa)
    gap = smaller.where(size.lift(0), _field(size, f) - _field(over, f) + missing)
    count = -(-(2 * f.bias - 1 + f.mantissa) // _digits(f))
    rest = _steps(_significand(size, f), _significand(divisor, f), gap, count, f, exact)
    return shr(rest, missing & (f.unsigned.bits - 1))


def _steps(rest: UOp, divisor: UOp, gap: UOp, count: int, f: Format, exact: bool) -> UOp:
    """(rest · 2**gap) mod the divisor, which has all digits."""
    # too small by more than what is rounded on the way to a quotient
    inverse = reciprocal(_float(divisor, f)) * (1 - 2.0 ** (2 - f.mantissa))
    # the whole number below is in the last digits of a float of 1.5 · 2**mantissa and more
    shifted = UOp.const(1.5 * 2.0**f.mantissa, f.float)
    rest = _once_less(rest, divisor)
    for _ in range(count):
        now = at_most(gap, _digits(f)) & (f.unsigned.bits - 1)
        gap = gap - now
        many = _float(rest, f) * power_of_two(now.bitcast(f.signed), f)
        quotient = raw(opaque(muladd(many, inverse, -0.5), exact) + shifted) - raw(shifted)
        rest = _once_less(shl(rest, now) - quotient * divisor, divisor)
    return rest


def _once_less(rest: UOp, divisor: UOp) -> UOp:
    less = rest - divisor
    return (rest < less).where(rest, less)


def _digits(f: Format) -> int:
    """Of a quotient in one step."""
    return f.mantissa - 4


def _field(size: UOp, f: Format) -> UOp:
    """The exponent that a significand goes with: of subnormal numbers that of the least normal one."""
    return shr(size, f.mantissa).maximum(1)


def _significand(size: UOp, f: Format) -> UOp:
    low = size & ((1 << f.mantissa) - 1)
    return (size < (1 << f.mantissa)).where(low, low | (1 << f.mantissa))


def _float(whole: UOp, f: Format) -> UOp:
    """An integer below the size of the significand's as a float."""
    return whole.bitcast(f.signed).cast(f.float)
