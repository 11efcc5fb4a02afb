"""What the functions of this folder are built from: a float's bits, polynomials, exact products, quotients.

Nothing here relies on a fused multiply-add or on its absence: where an error must be known exactly, factors are cut to
half of their digits first, so that products are exact either way (Dekker 1971). Infinities and NaNs are told apart by
their bits, because shader compilers may assume that comparisons never see them.

`exact` says that the target computes as IEEE 754 says: division and square roots are rounded correctly, and sums are
added in the order that is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, Ops, UOp


@dataclass(frozen=True)
class Format:
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

    @property
    def sign(self) -> int:
        return 1 << (self.float.bits - 1)

    @property
    def one(self) -> int:
        return self.bias << self.mantissa

    def power(self, n: int) -> int:
        """The bits of 2**n."""
        return (self.bias + n) << self.mantissa


FORMATS = {
    dtypes.float32: Format(dtypes.float32, dtypes.int32, dtypes.uint32, 23, 127),
    dtypes.float64: Format(dtypes.float64, dtypes.int64, dtypes.uint64, 52, 1023),
}


def format_of(x: UOp) -> Format:
    return FORMATS[x.dtype]


# -- bits -------------------------------------------------------------------------------------------------------------
def shl(x: UOp, n: int | UOp) -> UOp:
    return x.alu(Ops.SHL, n)


def shr(x: UOp, n: int | UOp) -> UOp:
    return x.alu(Ops.SHR, n)


def raw(x: UOp) -> UOp:
    """The bits, unsigned."""
    return x.bitcast(format_of(x).unsigned)


def size_bits(x: UOp) -> UOp:
    """The bits of |x|: they are ordered as the magnitudes are, with infinity and then the NaNs on top."""
    return raw(x) & format_of(x).magnitude


def sign_bit(x: UOp) -> UOp:
    return raw(x) & format_of(x).sign


def with_sign(magnitude: UOp, sign: UOp) -> UOp:
    """A value ≥ 0 (or a NaN) with a sign bit."""
    return (raw(magnitude) | sign).bitcast(magnitude.dtype)


def is_nan(size: UOp, f: Format) -> UOp:
    return UOp.const(f.infinity, f.unsigned) < size


def below(size: UOp, f: Format, value: float) -> UOp:
    """Whether the magnitude with these bits is less than `value`."""
    return size < bits_of(value, f)


def bits_of(value: float, f: Format) -> int:
    return int(f.float.numpy.type(value).view(f.unsigned.numpy))


def power_of_two(n: UOp, f: Format) -> UOp:
    """2**n of a signed integer n for which that is a normal number."""
    return shl(n + f.bias, f.mantissa).bitcast(f.float)


def scale(value: UOp, n: UOp) -> UOp:
    """value · 2**n in two factors, so that neither leaves the normal numbers before the last rounding."""
    f = format_of(value)
    half = shr(n, 1)
    return value * power_of_two(half, f) * power_of_two(n - half, f)


def at_most(n: UOp, limit: int) -> UOp:
    """The smaller of an integer and a constant."""
    return (n < limit).where(n, n.lift(limit))


def clamp(x: UOp, low: float, high: float) -> UOp:
    """A float that is no NaN, kept in a range."""
    return (x < low).where(x.lift(low), (x.lift(high) < x).where(x.lift(high), x))


# -- branches ---------------------------------------------------------------------------------------------------------
class Branches:
    """The loops of a kernel that run once where a condition holds in some lane, else not at all: what is rare is
    reduced over one of them.
    """

    def __init__(self) -> None:
        self._loops: dict[UOp, UOp] = {}

    def once_if_any(self, condition: UOp) -> UOp:
        if condition not in self._loops:
            lanes = condition.lanes
            times = condition.cast(dtypes.int32)
            times = UOp(Ops.REDUCE, dtypes.int32, (times, *lanes), Ops.MAX) if lanes else times
            axis = Axis(f"rare{len(self._loops)}", 1 << 20, reduce=True)
            self._loops[condition] = UOp(Ops.RANGE, dtypes.index, (times.cast(dtypes.index),), axis)
        return self._loops[condition]


# -- arithmetic -------------------------------------------------------------------------------------------------------
def muladd(a: UOp, b: UOp | float, c: UOp | float) -> UOp:
    """a · b + c, in one rounding or two."""
    return UOp(Ops.MULADD, a.dtype, (a, a.lift(b), a.lift(c)))


def horner(coefficients: Sequence[float], x: UOp) -> UOp:
    total = UOp.const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        total = muladd(total, x, c)
    return total


def odd(x: UOp, coefficients: Mapping[DType, Sequence[float]], limit: float, far: UOp) -> UOp:
    """x + x³ · p(x²) of a magnitude below a limit, and above it `far`, which gets the sign of x."""
    f, size = format_of(x), size_bits(x)
    a = size.bitcast(x.dtype)
    z = a * a
    near = muladd(a * z, horner(coefficients[x.dtype], z), a)
    return is_nan(size, f).where(x, with_sign(below(size, f, limit).where(near, far), sign_bit(x)))


def cut(x: UOp) -> UOp:
    """x with half of its digits: the product of two such numbers is exact, and so is x - cut(x)."""
    f = format_of(x)
    dropped = (f.mantissa + 2) // 2
    return (raw(x) & (f.magnitude | f.sign) - ((1 << dropped) - 1)).bitcast(x.dtype)


def opaque(x: UOp, exact: bool) -> UOp:
    """x itself (for a zero a number next to it), by a detour through its bits.

    Shader compilers take arithmetic for that of real numbers and make b of (a + b) - a. Where the point is what
    rounding took away, they must not see that the sum is one.
    """
    return x if exact else raw(x).maximum(1).bitcast(x.dtype)


def reciprocal(x: UOp) -> UOp:
    return x.alu(Ops.RECIPROCAL)


def quotient(a: UOp, b: UOp, exact: bool) -> UOp:
    """a / b of finite numbers whose quotient and products are far from overflow and underflow.

    Where division is not exact an estimate is corrected by its remainder, which is known exactly: the result is off by
    little more than half a unit.
    """
    if exact:
        return a.alu(Ops.DIV, b)
    over = reciprocal(b)
    q, divisor = cut(a * over), cut(b)
    remainder = (a - q * divisor) - q * (b - divisor)
    return q + remainder * over


def root(x: UOp, exact: bool) -> UOp:
    """The square root of a number in [0, 2**60], corrected as `quotient` does where the target's is not exact."""
    estimate = x.alu(Ops.SQRT)
    if exact:
        return estimate
    s = cut(estimate)
    return s + (x - s * s).alu(Ops.DIV, s + estimate + 2.0**-100)
