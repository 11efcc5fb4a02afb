"""EXP2, LOG2 and SIN in arithmetic that every target has.

float32 results are within about 2 units in the last place, for all arguments: special values are told apart by their
bits, because shader compilers may assume that comparisons never see a NaN or an infinity. Values are built as
expressions over one argument and hold for scalars and tiles alike. float64 has EXP2 and LOG2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp

F32, F64, I32, I64, U32, U64 = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64

# minimax on [-1/2, 1/2]: 2**f = 1 + f * p(f)
EXP2_F32 = (0.6931471824645996, 0.24022650718688965, 0.05550410971045494, 0.009618036448955536, 0.0013333430979400873,
            0.0001546710991533473, 1.531494672235567e-05)  # fmt: skip
EXP2_F64 = (0.6931471805599453, 0.24022650695910072, 0.05550410866482158, 0.009618129107628484, 0.0013333558146428445,
            0.00015403530393362755, 1.5252733804051129e-05, 1.3215486815999978e-06, 1.0178086021185474e-07,
            7.054894386348348e-09, 4.4455303091051067e-10, 2.5733568308756892e-11, 1.3716962392737587e-12)  # fmt: skip
# on [sqrt(1/2), sqrt(2)] - 1: log2(1 + f) = f / ln 2 + f**2 * p(f)
LOG2_F32 = (-0.7213473916053772, 0.48089799284935, -0.3606957197189331, 0.2885825037956238, -0.2396482229232788,
            0.20433573424816132, -0.1905628740787506, 0.18761971592903137, -0.11286643147468567)  # fmt: skip
# atanh(s) = s + s**3 * p(s**2)
ATANH_F64 = (0.3333333333333333, 0.20000000000000445, 0.14285714285397716, 0.11111111196783305, 0.09090897721185992,
             0.07693125223970095, 0.06634242840327213, 0.06544814580337312)  # fmt: skip
# on [-pi/4, pi/4]: sin(r) = r + r**3 * s(r**2), cos(r) = 1 - r**2 / 2 + r**4 * c(r**2)
SIN_F32 = (-0.1666666716337204, 0.008333329111337662, -0.0001983933470910415, 2.71831163445313e-06)
COS_F32 = (0.0416666679084301, -0.0013888883404433727, 2.4799519451335073e-05, -2.721023690810398e-07)
PI_HALF = (1.5703125, 4.838267948966e-04)  # its first 8 digits, and the rest
# the binary digits of 2/pi, after one word of zeros
TWO_OVER_PI = (0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)


@dataclass(frozen=True)
class _Format:
    """A binary float: its type, the integers of its width, the bits of its mantissa, the exponent's bias."""

    float: DType
    signed: DType
    unsigned: DType
    mantissa: int
    bias: int

    @property
    def infinity(self) -> int:
        return (2 * self.bias + 1) << self.mantissa

    @property
    def magnitude(self) -> int:
        return (1 << (self.float.bits - 1)) - 1


_FORMATS = {F32: _Format(F32, I32, U32, 23, 127), F64: _Format(F64, I64, U64, 52, 1023)}


def _horner(coefficients: Sequence[float], x: UOp) -> UOp:
    total = UOp.const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        total = UOp(Ops.MULADD, x.dtype, (total, x, UOp.const(c, x.dtype)))
    return total


def _shl(x: UOp, n: int | UOp) -> UOp:
    return x.alu(Ops.SHL, n)


def _shr(x: UOp, n: int | UOp) -> UOp:
    return x.alu(Ops.SHR, n)


def exp2(x: UOp) -> UOp:
    """2**x of float32 or float64."""
    f = _FORMATS[x.dtype]
    bits = x.bitcast(f.unsigned) & UOp.const(f.magnitude, f.unsigned)
    nan = UOp.const(f.infinity, f.unsigned) < bits
    low, high = float(-(f.bias + f.mantissa + 2)), float(f.bias + 2)
    real = nan.where(x.lift(0.0), x)
    clamped = (real < low).where(x.lift(low), (x.lift(high) < real).where(x.lift(high), real))
    whole = (clamped + 0.5).alu(Ops.FLOOR)
    part = clamped - whole
    power = UOp(Ops.MULADD, x.dtype, (_horner(EXP2_F32 if x.dtype is F32 else EXP2_F64, part), part, x.lift(1.0)))
    # two factors, so that neither leaves the normal numbers
    n = whole.cast(f.signed)
    half = _shr(n, 1)
    for exponent in (half, n - half):
        power = power * _shl(exponent + f.bias, f.mantissa).bitcast(x.dtype)
    return nan.where(x, power)


def log2(x: UOp) -> UOp:
    """Base-2 logarithm of float32 or float64; NaN below zero, -inf at zero."""
    f = _FORMATS[x.dtype]
    raw = x.bitcast(f.signed)
    # a subnormal number is its mantissa times the smallest one
    tiny = raw < UOp.const(1 << f.mantissa, f.signed)
    bits = tiny.where(raw.cast(x.dtype).bitcast(f.signed), raw)
    middle = 0x3F3504F3 if x.dtype is F32 else 0x3FE6A09E667F3BCD  # sqrt(1/2)
    e = _shr(bits + -middle, f.mantissa)
    m = (bits - _shl(e, f.mantissa)).bitcast(x.dtype)
    shift = tiny.where(UOp.const(-(f.bias + f.mantissa - 1), f.signed), UOp.const(0, f.signed))
    exponent = (e + shift).cast(x.dtype)
    g = m + -1.0
    if x.dtype is F32:
        tail = g * g * _horner(LOG2_F32, g)
        small = UOp(Ops.MULADD, F32, (g, g.lift(0.44269504088896340), tail))
        result = small + g + exponent
    else:
        s = g.alu(Ops.DIV, g + 2.0)
        z = s * s
        series = UOp(Ops.MULADD, F64, (s * z, _horner(ATANH_F64, z), s))
        result = UOp(Ops.MULADD, F64, (series, s.lift(2 * 1.4426950408889634), UOp(
            Ops.MULADD, F64, (series, s.lift(2 * 2.0355273740931033e-17), exponent))))  # fmt: skip
    above = UOp.const(f.infinity - 1, f.signed) < raw  # infinity and NaNs with a clear sign
    negative = raw < UOp.const(0, f.signed)
    magnitude = raw & UOp.const(f.magnitude, f.signed)
    zero = magnitude.equal(0)
    result = above.where(x, result)
    result = negative.where(x.lift(float("nan")), result)
    return zero.where(x.lift(-float("inf")), result)


def sin(x: UOp) -> UOp:
    """Sine of float32, the argument reduced with as many digits of 2/pi as it needs (after Payne and Hanek)."""
    bits = x.bitcast(U32)
    size = bits & 0x7FFFFFFF
    quadrant, reduced, correction = _reduce_to_quadrant(size)
    close = size < 0x3F490FDB  # pi/4: no reduction, and no loss of tiny arguments
    r = close.where(size.bitcast(F32), reduced)
    e = close.where(x.lift(0.0), correction)
    q = close.where(UOp.const(0, U32), quadrant)
    z = r * r
    first = UOp(Ops.MULADD, F32, (z, z.lift(-0.5), z.lift(1.0)))
    sine = UOp(Ops.MULADD, F32, (r * z, _horner(SIN_F32, z), e * first)) + r
    cosine = UOp(Ops.MULADD, F32, (z * z, _horner(COS_F32, z), -(e * r))) + first
    value = (q & 1).equal(0).where(sine, cosine)
    sign = _shl(q & 2, 30) ^ (bits & 0x80000000)
    signed = (value.bitcast(U32) ^ sign).bitcast(F32)
    return (size < 0x7F800000).where(signed, x.lift(float("nan")))


def _reduce_to_quadrant(size: UOp) -> tuple[UOp, UOp, UOp]:
    """The bits of x ≥ 1/2 → (n mod 4, r, e): n the nearest integer to x·2/pi, and r + e = x - n·pi/2."""
    exponent = _shr(size, 23)
    mantissa = (size & 0x7FFFFF) | 0x800000
    # of the product with 2/pi only what is below four quadrants matters: 96 digits from here on
    start = exponent.maximum(126) + UOp.const(-120, U32)
    word, shift = _shr(start, 5), start & 31
    picked = []
    for j in range(4):
        w = UOp.const(TWO_OVER_PI[j], U32)
        for i in range(1, 5):
            digits = TWO_OVER_PI[i + j] if i + j < len(TWO_OVER_PI) else 0
            w = word.equal(i).where(UOp.const(digits, U32), w)
        picked.append(w)
    back = shift ^ 31
    v = [_shl(picked[j], shift) | _shr(_shr(picked[j + 1], 1), back) for j in range(3)]
    low = mantissa * v[1]
    second = low + _high_word(mantissa, v[2])
    carry = (second < low).cast(U32)
    first = mantissa * v[0] + _high_word(mantissa, v[1]) + carry
    # two digits of quadrant, then 62 of the part of a quadrant, taken to be in [-1/2, 1/2)
    part = _shl(first, 2) | _shr(second, 30)
    quadrant = _shr(first, 30) + _shr(part, 31)
    # the magnitude of the fraction, in pieces that are exact floats, so that nothing cancels
    negative = UOp.const(0x7FFFFFFF, U32) < part
    flip = negative.where(UOp.const(0xFFFFFFFF, U32), UOp.const(0, U32))
    high, low = part ^ flip, _shl(second, 2) ^ flip
    leading = (high & 0xFFF80000).bitcast(I32).cast(F32) * 2.0**-32
    middle = (high & 0x7FF00).bitcast(I32).cast(F32) * 2.0**-32
    trailing = (_shl(high, 24) | _shr(low, 8)).cast(F32) * 2.0**-56
    # times pi/2, of which the first digits make an exact product; then what rounding takes away from the sum
    exact = leading * PI_HALF[0]
    rest = UOp(Ops.MULADD, F32, (middle + trailing, exact.lift(PI_HALF[0] + PI_HALF[1]), leading * PI_HALF[1]))
    total = exact + rest
    sign = negative.where(exact.lift(-1.0), exact.lift(1.0))
    return quadrant, total * sign, ((exact + -total) + rest) * sign


def _high_word(m: UOp, w: UOp) -> UOp:
    """Bits 32 … of m·w, where m has 24 bits: by parts of 12 and 16 bits whose products fit."""
    m0, m1 = m & 0xFFF, _shr(m, 12)
    w0, w1 = w & 0xFFFF, _shr(w, 16)
    middle = _shr(_shr(m0 * w0, 12) + m1 * w0, 4) + m0 * w1
    return _shr(_shr(middle, 12) + m1 * w1, 4)
