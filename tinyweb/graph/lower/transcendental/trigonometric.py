"""Sine, cosine and tangent: x = n·pi/2 + r with |r| ≤ pi/4, for every finite x.

n and r come from the product of x's mantissa with as many digits of 2/pi as it takes, in integers (Payne and Hanek
1983).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.transcendental.build import (
    Branches,
    Format,
    below,
    cut,
    format_of,
    horner,
    muladd,
    opaque,
    raw,
    reciprocal,
    shl,
    shr,
    sign_bit,
    size_bits,
)

F32, F64 = dtypes.float32, dtypes.float64

# sin(r) = r + r**3 * p(r**2), cos(r) = 1 - r**2 / 2 + r**4 * p(r**2), tan(r) = r + r**3 * p(r**2) on [-pi/4, pi/4]
SIN = {
    F32: (-0.1666666716337204, 0.008333379402756691, -0.00019853064441122115, 2.8325100629444933e-06),
    F64: (-0.1666666666666663, 0.008333333333321842, -0.00019841269829360832, 2.755731353953733e-06,
          -2.505073457578203e-08, 1.589544530984081e-10),
}  # fmt: skip
COS = {
    F32: (0.0416666679084301, -0.0013888980029150844, 2.482200761733111e-05, -2.887845482746343e-07),
    F64: (0.041666666666666595, -0.0013888888888873307, 2.4801587288965196e-05, -2.7557314203064045e-07,
          2.0875703137375304e-09, -1.1358616912498001e-11),
}  # fmt: skip
TAN = {
    F32: (0.33333349227905273, 0.1333267241716385, 0.05405944213271141, 0.02128281258046627, 0.010837530717253685,
          8.415569755015895e-05, 0.004380186088383198),
    F64: (0.3333333333333338, 0.13333333333325342, 0.05396825397290294, 0.02186948839933154, 0.008863237921988303,
          0.0035921008867847975, 0.001456045501535825, 0.0005888647691819418, 0.0002437508684579236,
          8.355787664975625e-05, 6.72269151358496e-05, -2.564415098465238e-05, 4.864796453987462e-05,
          -2.4281559833923695e-05, 9.801113368356286e-06),
}  # fmt: skip
# half of the digits of pi/2, and the rest
PI_HALF = {F32: (1.5703125, 0.0004838267923332751), F64: (1.570796325802803, 9.920935796805404e-10)}
# its first 33 digits, whose products with integers below 2**20 are exact, and the rest
PI_HALF_33 = 1.5707963267341256, 6.077100506506192e-11
FAR = 2.0**20
# the binary digits of 2/pi
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1d"
    "eb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b"
    "5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b"
    "6bab",
    16,
)
TWO_OVER_PI_DIGITS = 1216


class Reduced(NamedTuple):
    """x - n·pi/2 = rest + correction, and n mod 4."""

    quadrant: UOp
    rest: UOp
    correction: UOp


def sin(x: UOp, exact: bool, branches: Branches | None = None) -> UOp:
    return _sine(x, 0, exact, branches)


def cos(x: UOp, exact: bool, branches: Branches | None = None) -> UOp:
    return _sine(x, 1, exact, branches)


def _sine(x: UOp, quarters: int, exact: bool, branches: Branches | None) -> UOp:
    """sin(x + quarters · pi/2)."""
    f, size = format_of(x), size_bits(x)
    n, r, e = _reduce(size, f, exact, branches)
    z = r * r
    first = muladd(z, -0.5, 1.0)
    sine = muladd(r * z, horner(SIN[x.dtype], z), e * first) + r
    cosine = opaque(muladd(z * z, horner(COS[x.dtype], z), -(e * r)), exact) + first
    n = n + quarters if quarters else n
    value = (n & 1).equal(0).where(sine, cosine)
    sign = shl(n & 2, f.float.bits - 2)
    if quarters == 0:
        sign = sign ^ sign_bit(x)
    return (size < f.infinity).where((raw(value) ^ sign).bitcast(x.dtype), x.lift(math.nan))


def tan(x: UOp, exact: bool, branches: Branches | None = None) -> UOp:
    f, size = format_of(x), size_bits(x)
    n, r, e = _reduce(size, f, exact, branches)
    z = r * r
    tail = muladd(r * z, horner(TAN[x.dtype], z), muladd(e, z, e))
    t = r + tail
    # -1/t with the remainder of the estimate, for which t is taken with twice the digits
    over = reciprocal(t)
    y, high = cut(over), cut(t)
    inverse = y + over * ((1.0 - y * high) - y * ((r - high) + tail))
    value = (n & 1).equal(0).where(t, -inverse)
    return (size < f.infinity).where((raw(value) ^ sign_bit(x)).bitcast(x.dtype), x.lift(math.nan))


def _reduce(size: UOp, f: Format, exact: bool, branches: Branches | None) -> Reduced:
    """Of |x| with these bits; below pi/4 there is nothing to do, and no loss of tiny arguments."""
    if branches is not None and f.float is F32:
        return _reduce_what_is_near(size, f, branches)
    reduced = _reduce_to_quadrant(size, f, exact)
    x = size.bitcast(f.float)
    close = below(size, f, math.pi / 4)
    return Reduced(
        close.where(size.lift(0), reduced.quadrant),
        close.where(x, reduced.rest),
        close.where(x.lift(0.0), reduced.correction),
    )


def _reduce_what_is_near(size: UOp, f: Format, branches: Branches) -> Reduced:
    """In float64, where n·pi/2 is exact but for the last digits of the product (Cody and Waite 1980); the long way, for
    all lanes of a vector, where one of them is FAR.
    """
    far = below(size, f, FAR).logical_not()
    x = far.where(size.lift(0), size).bitcast(F32).cast(F64)
    n = muladd(x, 2 / math.pi, 0.5).alu(Ops.FLOOR)
    high, low = PI_HALF_33
    rest = muladd(n, -low, muladd(n, -high, x))
    near = rest.cast(F32)
    quick = n.cast(f.signed).bitcast(f.unsigned), near, (rest - near.cast(F64)).cast(F32)
    taken = branches.once_if_any(far)
    # the argument seems to depend on the step, so that the work stays inside of it
    slow = _reduce_to_quadrant(size + taken.cast(f.unsigned), f, True)
    bits = (raw(u) if u.dtype.is_float else u for u in slow)
    kept = (UOp(Ops.REDUCE, u.dtype, (u, taken), Ops.ADD) for u in bits)
    chosen = [far.where(a, raw(b) if b.dtype.is_float else b) for a, b in zip(kept, quick, strict=True)]
    return Reduced(chosen[0], chosen[1].bitcast(F32), chosen[2].bitcast(F32))


def _reduce_to_quadrant(size: UOp, f: Format, exact: bool) -> Reduced:
    """For |x| ≥ 1/2. A word is as wide as the float; the table begins with one word of zeros."""
    word_bits, unsigned = f.float.bits, f.unsigned
    exponent = shr(size, f.mantissa)
    mantissa = (size & ((1 << f.mantissa) - 1)) | (1 << f.mantissa)
    # of the product with 2/pi only what is below four quadrants matters: three words of digits from here on
    least = f.bias - 1
    start = (exponent < least).where(exponent.lift(least), exponent) + UOp.const(
        word_bits - f.bias - f.mantissa - 2, unsigned
    )
    log_bits = word_bits.bit_length() - 1
    word, shift = shr(start, log_bits), start & (word_bits - 1)
    last = (2 * f.bias + word_bits - f.bias - f.mantissa - 2) >> log_bits
    table = [UOp.const(_word(i, word_bits), unsigned) for i in range(last + 4)]
    picked = _window(table, word, 4)
    back = shift ^ (word_bits - 1)
    v = [shl(picked[j], shift) | shr(shr(picked[j + 1], 1), back) for j in range(3)]
    low = mantissa * v[1]
    second = low + _high_word(mantissa, v[2], f)
    first = mantissa * v[0] + _high_word(mantissa, v[1], f) + (second < low).cast(unsigned)
    # two digits of quadrant, then the part of a quadrant, taken to be in [-1/2, 1/2)
    part = shl(first, 2) | shr(second, word_bits - 2)
    quadrant = shr(first, word_bits - 2) + shr(part, word_bits - 1)
    # the magnitude of the fraction, in pieces that are exact floats, so that nothing cancels
    negative = UOp.const(f.magnitude, unsigned) < part
    flip = negative.where(part.lift(f.sign + f.magnitude), part.lift(0))
    high, low = part ^ flip, shl(second, 2) ^ flip
    whole = high.bitcast(f.signed)
    leading = cut(whole.cast(f.float))
    middle = (whole - leading.cast(f.signed)).cast(f.float)
    unit = 2.0**-word_bits
    trailing = shr(low, 1).bitcast(f.signed).cast(f.float) * (2.0 * unit)
    # times pi/2, of which the first digits make an exact product; then what rounding takes away from the sum
    pi_half, pi_low = PI_HALF[f.float]
    exact_part = leading * (pi_half * unit)
    rest = muladd((middle + trailing) * unit, pi_half + pi_low, leading * (pi_low * unit))
    total = opaque(exact_part + rest, exact)
    sign = negative.where(total.lift(-1.0), total.lift(1.0))
    return Reduced(quadrant, total * sign, ((exact_part - total) + rest) * sign)


def _word(i: int, bits: int) -> int:
    """Word i of a table that has one word of zeros and then the digits of 2/pi."""
    at = TWO_OVER_PI_DIGITS - bits * i
    return TWO_OVER_PI >> at & ((1 << bits) - 1) if i and at >= 0 else 0


def _window(table: list[UOp], start: UOp, count: int) -> list[UOp]:
    """Entries start … start + count - 1: the table is moved by the powers of two in `start`, the largest first."""
    reach = len(table) - count
    for step in reversed([1 << k for k in range(reach.bit_length())]):
        keep = count + step - 1
        shifted = (start & step).equal(0)
        zero = table[0].lift(0)
        table = [
            shifted.where(table[i], table[i + step] if i + step < len(table) else zero)
            for i in range(min(keep, len(table)))
        ]
    return table


def _high_word(m: UOp, w: UOp, f: Format) -> UOp:
    """The upper word of m·w, where m is a mantissa: by halves of it and of the word, whose products fit."""
    half = f.float.bits // 2
    cut_at = (f.mantissa + 2) // 2
    left = half - cut_at
    m0, m1 = m & ((1 << cut_at) - 1), shr(m, cut_at)
    w0, w1 = w & ((1 << half) - 1), shr(w, half)
    middle = shr(shr(m0 * w0, cut_at) + m1 * w0, left) + m0 * w1
    return shr(shr(middle, cut_at) + m1 * w1, left)
