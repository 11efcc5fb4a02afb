"""Methods about the parts of a number: sign, rounding, bounds, what is finite."""

from __future__ import annotations

import math
from typing import Any, Self

from tinyweb.array.core import TensorCore
from tinyweb.array.elementwise import Elementwise
from tinyweb.array.packing import check_fits
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops

_INTEGERS = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}


class Rounding(Elementwise):
    """Signs, rounding, clamping, tests for NaN and infinity."""

    __slots__ = ()

    # -- kinds of numbers ---------------------------------------------------------------------------------------------
    def isnan(self) -> Self:
        """True where an element is NaN."""
        return self.ne(self)

    def isinf(self) -> Self:
        """True where an element is infinite."""
        return self.abs().eq(math.inf) if self.dtype.is_float else self.ne(self)

    def isposinf(self) -> Self:
        """True where an element is +infinity."""
        return self.eq(math.inf) if self.dtype.is_float else self.ne(self)

    def isneginf(self) -> Self:
        """True where an element is -infinity."""
        return self.eq(-math.inf) if self.dtype.is_float else self.ne(self)

    def isfinite(self) -> Self:
        """True where an element is neither infinite nor NaN."""
        return self.abs().less(math.inf) if self.dtype.is_float else self.eq(self)

    def isreal(self) -> Self:
        """True everywhere: all dtypes are real."""
        return self.isnan().logical_or(True)

    def nan_to_num(self, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """NaN replaced by `nan`, infinities by `posinf` and `neginf` (default: the largest finite ones)."""
        d = self.dtype
        if not d.is_float:
            return self._same()
        largest = _largest(self)
        top, bottom = largest if posinf is None else posinf, -largest if neginf is None else neginf
        return self.isnan().where(
            0.0 if nan is None else nan, self.eq(math.inf).where(top, self.eq(-math.inf).where(bottom, self))
        )

    def angle(self) -> Self:
        """The angle of real numbers in the complex plane: 0, or π of what is negative; NaN for NaN. In float32."""
        x = self._floating()
        return x.isnan().where(x, x.less(0).where(x._constant(math.pi), 0.0))._without_gradient(x)

    def real(self) -> Self:
        """The tensor itself: all dtypes are real."""
        return self

    conj = resolve_conj = real

    # -- signs --------------------------------------------------------------------------------------------------------
    def sign(self) -> Self:
        """-1, 0 or 1, in the same dtype; 0 for NaN."""
        if self.dtype.kind == "bool":
            return self._same()
        one, none = self._constant(1), self._constant(0)
        below = none if self.dtype.kind == "uint" else self.less(0).where(one.neg(), none)
        return self.greater(0).where(one, below)._without_gradient(self)

    sgn = sign

    def _without_gradient(self, x: Self) -> Self:
        """This value, whose gradient with respect to `x` is 0 everywhere."""
        return self._with_gradients([x], lambda g: [g._constant(0)._broadcast_to(x.shape)])

    def signbit(self) -> Self:
        """True where the sign is negative; for floats the sign bit: also of -0."""
        if not self.dtype.is_float:
            return self.less(0)
        x = self.cast(dtypes.float32) if self.dtype.bits < 32 else self
        return x.bitcast(_INTEGERS[x.dtype.bits]).less(0)

    def copysign(self, other: Any) -> Self:
        """The magnitude of this with the sign of `other`; integers as float32."""
        x, y = (t._floating() for t in self._pair(other, "copysign"))
        size = x.abs()
        return y.signbit().where(size.neg(), size)

    def heaviside(self, values: Any) -> Self:
        """0 below 0, 1 above 0, `values` at 0, 0 for NaN."""
        x, v = self._pair(values, "heaviside")
        step = x.greater(0).where(x._constant(1), x._constant(0))
        return x.eq(0).where(v, step)

    def nextafter(self, other: Any) -> Self:
        """The next number of the dtype towards `other`: of float16, bfloat16, float32 or float64."""
        x, y = self._pair(other, "nextafter")
        d = x.dtype
        if not d.is_float or d.bits < 16:
            raise TypeError(f"nextafter: needs float16, bfloat16, float32 or float64, got {d.name}")
        integer = _INTEGERS[d.bits]
        # the bits of numbers of one sign are in order as integers
        bits = x.bitcast(integer)
        away = x.greater(0).eq(y.greater(x))
        step = away.where(bits.add(1), bits.sub(1))
        least = y.signbit().where(bits._constant(integer.min), 0).bitwise_or(1)
        moved = x.eq(0).where(least, step).bitcast(d)
        return x.isnan().logical_or(y.isnan()).where(math.nan, x.eq(y).where(y, moved))

    # -- rounding -----------------------------------------------------------------------------------------------------
    def floor(self) -> Self:
        """The largest whole number not above."""
        return self._unary(Ops.FLOOR) if self.dtype.is_float else self._same()

    def ceil(self) -> Self:
        """The smallest whole number not below."""
        return self.neg().floor().neg() if self.dtype.is_float else self._same()

    def trunc(self) -> Self:
        """The whole part: rounded towards 0."""
        return self._unary(Ops.TRUNC) if self.dtype.is_float else self._same()

    fix = trunc

    def frac(self) -> Self:
        """What follows the point, with the sign of the number. TypeError for integers."""
        if not self.dtype.is_float:
            raise TypeError(f"frac: needs a float dtype, got {self.dtype.name}")
        return self.sub(self.trunc())

    def round(self, decimals: int = 0) -> Self:
        """To the nearest whole number, halves to the even one; or to `decimals` places behind (before) the point."""
        if not self.dtype.is_float:
            if decimals:
                raise TypeError(f"round: decimals= needs a float dtype, got {self.dtype.name}")
            return self._same()
        if decimals:
            factor = 10.0 ** abs(decimals)
            x = self.cast(dtypes.float32) if self.dtype.bits < 32 else self  # half floats hold few powers of ten
            x = x.mul(factor).round()._divide(factor) if decimals > 0 else x._divide(factor).round().mul(factor)
            return x.cast(self.dtype)
        return self._unary(Ops.ROUND)

    # -- bounds -------------------------------------------------------------------------------------------------------
    def clamp(self, min: Any = None, max: Any = None) -> Self:
        """Held between two bounds (numbers or tensors); the upper one where they contradict each other.

        The gradient at a bound is that of an element between them; tensor bounds get the gradient of what they replace.
        """
        if min is None and max is None:
            raise ValueError("clamp: give a minimum, a maximum or both")
        x = self
        for bound, above in ((min, False), (max, True)):
            if bound is None:
                continue
            if isinstance(bound, int) and x.dtype.is_int:
                bound = sorted((int(x.dtype.min), bound, int(x.dtype.max)))[1]
            a, b = x._pair(bound, "clamp")
            outside = b.less(a) if above else a.less(b)
            if isinstance(bound, TensorCore) and b.dtype.is_float:
                outside = outside.logical_or(b.isnan())
            x = outside.where(b, a)
        return x

    clip = clamp

    def clamp_min(self, min: Any) -> Self:
        """Not below a bound."""
        return self.clamp(min=min)

    def clamp_max(self, max: Any) -> Self:
        """Not above a bound."""
        return self.clamp(max=max)

    def fmax(self, other: Any) -> Self:
        """The larger of two; of a number and NaN the number."""
        a, b = self._pair(other, "fmax")
        return a.ge(b).logical_or(b.isnan()).where(a, b) if a.dtype.is_float else a.maximum(b)

    def fmin(self, other: Any) -> Self:
        """The smaller of two; of a number and NaN the number."""
        a, b = self._pair(other, "fmin")
        return a.le(b).logical_or(b.isnan()).where(a, b) if a.dtype.is_float else a.minimum(b)

    def threshold(self, threshold: float, value: float) -> Self:
        """`value` where an element is not above `threshold`."""
        check_fits(value, self.dtype)
        return self.le(threshold).where(self._constant(value), self)

    # -- nearly equal -------------------------------------------------------------------------------------------------
    def isclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Self:
        """True where |self - other| ≤ atol + rtol · |other|, or equal (infinities too; NaN with `equal_nan`)."""
        a, b = self._pair(other, "isclose")
        same = a.eq(b)
        if equal_nan:
            same = same.logical_or(a.isnan().logical_and(b.isnan()))
        if not a.dtype.is_float:
            if rtol == 0 and atol < 1:
                return same
            a, b = a.cast(dtypes.float32), b.cast(dtypes.float32)
        near = a.sub(b).abs().le(b.abs().mul(rtol).add(atol))
        return same.logical_or(near.logical_and(b.isfinite()))


def _largest(x: TensorCore) -> float:
    """The largest finite value of a float dtype."""
    d = x.dtype
    if d is dtypes.float8_e4m3:
        return 448.0
    return (2.0 - 2.0**-d.mantissa) * 2.0**d.bias
