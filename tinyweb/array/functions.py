"""Elementary functions of each element: powers, exponentials, logarithms, trigonometry, and what is made of them.

Those with an operation of their own are accurate to 2 units in the last place on every device (docs/numerics.md).
Integers are taken as float32.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinyweb.array.rounding import Rounding
from tinyweb.dtype import dtypes, promote
from tinyweb.graph.ir import Ops, UOp


class Functions(Rounding):
    """Functions of real numbers."""

    __slots__ = ()

    # -- exponentials and logarithms ----------------------------------------------------------------------------------
    def exp(self) -> Self:
        """eˣ."""
        return self._unary(Ops.EXP)

    def exp2(self) -> Self:
        """2ˣ."""
        return self._unary(Ops.EXP2)

    def expm1(self) -> Self:
        """eˣ - 1, exact near 0."""
        return self._unary(Ops.EXPM1)

    def log(self) -> Self:
        """The natural logarithm; -inf of 0, NaN below."""
        return self._unary(Ops.LOG)

    def log2(self) -> Self:
        """The logarithm to base 2."""
        return self._unary(Ops.LOG2)

    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self._unary(Ops.LOG10)

    def log1p(self) -> Self:
        """log(1 + x), exact near 0."""
        return self._unary(Ops.LOG1P)

    def logaddexp(self, other: Any) -> Self:
        """log(eˣ + eʸ) without overflow. TypeError for integers."""
        return self._log_sum(other, "logaddexp", 1.0)

    def logaddexp2(self, other: Any) -> Self:
        """log2(2ˣ + 2ʸ) without overflow. TypeError for integers."""
        return self._log_sum(other, "logaddexp2", math.log(2))

    def _log_sum(self, other: Any, method: str, base: float) -> Self:
        a, b = self._pair(other, method)
        if not a.dtype.is_float:
            raise TypeError(f"{method}: needs float dtypes, got {a.dtype.name}")
        # infinities of one sign differ by nothing
        distance = a.eq(b).where(0.0, a.sub(b)).abs()
        return a.maximum(b).add(distance.mul(-base).exp().log1p().mul(1 / base))

    def logit(self, eps: float | None = None) -> Self:
        """log(x / (1 - x)), the inverse of the sigmoid; NaN outside of [0, 1]. With `eps`, x is first held within
        [eps, 1 - eps]."""
        x = self._floating()
        x = x if eps is None else x.clamp(eps, 1 - eps)
        return x._divide(x.neg().add(1.0)).log()

    def xlogy(self, other: Any) -> Self:
        """x · log(y), 0 where x is 0 and y is no NaN."""
        x, y = (t._floating() for t in self._pair(other, "xlogy"))
        useless = x.eq(0).logical_and(y.le(0).logical_or(y.eq(math.inf)))
        return x.mul(useless.where(1.0, y).log())

    def sigmoid(self) -> Self:
        """1 / (1 + e⁻ˣ)."""
        x = self._floating()
        # only e to what is not positive: neither the value nor the gradient overflows
        negative = x.less(0)
        e = negative.where(x, x.neg()).exp()
        return negative.where(e, 1.0)._divide(e.add(1.0))

    def log_sigmoid(self) -> Self:
        """log(sigmoid(x)) without overflow."""
        x = self._floating()
        return x.minimum(0.0).sub(x.abs().neg().exp().log1p())

    expit = sigmoid

    # -- powers and roots ---------------------------------------------------------------------------------------------
    def sqrt(self) -> Self:
        """The square root, NaN below 0."""
        return self._unary(Ops.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(x)."""
        return self.sqrt().reciprocal()

    def _root_of_sum(self) -> Self:
        """The square root of a sum of squares: at 0 its gradient is 0 rather than infinite."""
        none = self.eq(0)
        return none.where(0.0, none.where(1.0, self).sqrt())

    def pow(self, exponent: Any) -> Self:
        """self to the power of `exponent`. Of integers exact modulo 2ᵇⁱᵗˢ; in an integer tensor of exponents a negative
        one gives 0, except for the bases 1 and -1. ValueError for an integer to the power of a negative number."""
        number = exponent if isinstance(exponent, int | float) and not isinstance(exponent, bool) else None
        if number is not None:
            dtype = promote(self.dtype, type(number))
            if not dtype.is_float and number < 0:
                raise ValueError(f"pow: {self.dtype.name} to the power of {number}: negative powers are not whole")
            x = self.cast(dtype)
            if number == int(number) if math.isfinite(number) else False:
                n = int(number)
                if dtype.is_int:
                    return x._power(n)
                if abs(n) <= 4:
                    power = x._power(abs(n))
                    return power if n >= 0 else power.reciprocal()
            if number == 0.5:
                return x.sqrt()
            if number == -0.5:
                return x.rsqrt()
        base, e = self._pair(exponent, "pow")
        if base.dtype.kind == "bool":
            raise TypeError("pow: booleans have no power of booleans")
        if base.dtype.is_float:
            return base._new(UOp(Ops.POW, base.dtype, (base.uop, e.uop)))
        return base._integer_power(e)

    def _power(self, n: int) -> Self:
        """By repeated squaring, n ≥ 0."""
        out: Self | None = None
        square = self
        while n:
            if n & 1:
                out = square._same() if out is None else out.mul(square)
            n >>= 1
            if n:
                square = square.mul(square)
        one = self._constant(1)._broadcast_to(self.shape)
        return out if out is not None else one._without_gradient(self)

    def _integer_power(self, e: Self) -> Self:
        out = square = self
        for bit in range(self.dtype.bits - self.dtype.is_signed):
            factor = e.bitwise_right_shift(bit).bitwise_and(1).ne(0).where(square, 1)
            out = factor if bit == 0 else out.mul(factor)
            square = square.mul(square)
        if not self.dtype.is_signed:
            return out
        unit = e.bitwise_and(1).ne(0).where(self, 1)
        return e.less(0).where(self.eq(1).logical_or(self.eq(-1)).where(unit, 0), out)

    def float_power(self, exponent: Any) -> Self:
        """Power as floats: float64 stays, all else is taken as float32 (PyTorch takes float64)."""
        wide = dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32
        return self.cast(wide).pow(exponent)

    def hypot(self, other: Any) -> Self:
        """sqrt(x² + y²) without overflow; infinite where either is."""
        a, b = (t._floating().abs() for t in self._pair(other, "hypot"))
        large, small = a.maximum(b), a.minimum(b)
        plain = large.greater(0).logical_and(large.less(math.inf))
        ratio = plain.where(small, 0.0)._divide(plain.where(large, 1.0))
        length = large.mul(ratio.square().add(1.0).sqrt())
        return a.eq(math.inf).logical_or(b.eq(math.inf)).where(math.inf, length)

    def ldexp(self, exponent: Any) -> Self:
        """x · 2ᵉ."""
        x, e = self._floating()._pair(exponent, "ldexp")
        # in two steps: 2ᵉ alone may leave the range where the result does not
        half = e.mul(0.5).floor()
        return x.mul(half.exp2()).mul(e.sub(half).exp2())

    def frexp(self) -> tuple[Self, Self]:
        """(mantissa, exponent): x = mantissa · 2ᵉˣᵖᵒⁿᵉⁿᵗ, ½ ≤ |mantissa| < 1; int32 exponents, 0 for 0, inf and NaN."""
        x = self._floating()
        wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
        bits, mantissa = wide.dtype.bits, wide.dtype.mantissa
        integer = dtypes.int32 if bits == 32 else dtypes.int64
        # numbers below the normal ones are made larger first
        lift = mantissa + 1
        small = wide.abs().less(2.0 ** (1 - wide.dtype.bias))
        raw = small.where(wide.mul(2.0**lift), wide).bitcast(integer)
        field = raw.bitwise_right_shift(mantissa).bitwise_and((1 << (bits - 1 - mantissa)) - 1)
        exponent = field.sub(wide.dtype.bias - 1).sub(small.where(lift, 0).cast(integer))
        keep = raw._constant(~(((1 << (bits - 1 - mantissa)) - 1) << mantissa))
        unit = raw.bitwise_and(keep).bitwise_or((wide.dtype.bias - 1) << mantissa).bitcast(wide.dtype)
        special = wide.eq(0).logical_or(wide.isfinite().logical_not())
        value = special.where(wide, unit)
        half = exponent.cast(dtypes.int32)
        scaled = value._with_gradients([wide], lambda g: [g.mul(half.neg().cast(g.dtype).exp2())])
        return scaled.cast(x.dtype), special.where(0, half)

    # -- trigonometry -------------------------------------------------------------------------------------------------
    def sin(self) -> Self:
        """The sine (of radians)."""
        return self._unary(Ops.SIN)

    def cos(self) -> Self:
        """The cosine (of radians)."""
        return self._unary(Ops.COS)

    def tan(self) -> Self:
        """The tangent (of radians)."""
        return self._unary(Ops.TAN)

    def asin(self) -> Self:
        """The inverse sine; NaN outside of [-1, 1]."""
        return self._unary(Ops.ASIN)

    def acos(self) -> Self:
        """The inverse cosine; NaN outside of [-1, 1]."""
        return self._unary(Ops.ACOS)

    def atan(self) -> Self:
        """The inverse tangent."""
        return self._unary(Ops.ATAN)

    def sinh(self) -> Self:
        """The hyperbolic sine."""
        return self._unary(Ops.SINH)

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        return self._unary(Ops.COSH)

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self._unary(Ops.TANH)

    def asinh(self) -> Self:
        """The inverse hyperbolic sine."""
        return self._unary(Ops.ASINH)

    def acosh(self) -> Self:
        """The inverse hyperbolic cosine; NaN below 1."""
        return self._unary(Ops.ACOSH)

    def atanh(self) -> Self:
        """The inverse hyperbolic tangent; NaN outside of [-1, 1]."""
        return self._unary(Ops.ATANH)

    arcsin, arccos, arctan, arcsinh, arccosh, arctanh = asin, acos, atan, asinh, acosh, atanh

    def atan2(self, other: Any) -> Self:
        """The angle of the point (other, self), in [-π, π]."""
        y, x = self._pair(other, "atan2")
        y, x = y._floating(), x._floating()
        below, left = y.signbit(), x.signbit()
        # signs as constants: the gradients on the axes are those of the side the sign names
        up, right = below.where(y.neg(), y), left.where(x.neg(), x)
        steep = right.less(up)
        small, large = steep.where(right, up), steep.where(up, right)
        edge = large.eq(0).logical_or(small.eq(math.inf))
        slope = edge.where(small.eq(math.inf).where(1.0, 0.0).cast(small.dtype), small)._divide(edge.where(1.0, large))
        angle = slope.atan()
        angle = steep.where(angle.neg().add(math.pi / 2), angle)
        angle = left.where(angle.neg().add(math.pi), angle)
        angle = below.where(angle.neg(), angle)
        return x.isnan().logical_or(y.isnan()).where(math.nan, angle)

    arctan2 = atan2

    def sinc(self) -> Self:
        """sin(πx) / (πx), 1 at 0."""
        x = self._floating()
        none = x.eq(0)
        turned = none.where(1.0, x).mul(math.pi)
        return none.where(1.0, turned.sin()._divide(turned))

    def deg2rad(self) -> Self:
        """Degrees as radians."""
        return self._floating().mul(math.pi / 180)

    def rad2deg(self) -> Self:
        """Radians as degrees."""
        return self._floating().mul(180 / math.pi)

    # -- of statistics ------------------------------------------------------------------------------------------------
    def erf(self) -> Self:
        """The error function 2/√π ∫₀ˣ e^(-t²) dt."""
        return self._unary(Ops.ERF)

    def erfc(self) -> Self:
        """1 - erf(x), exact for large x."""
        return self._unary(Ops.ERFC)

    def erfinv(self) -> Self:
        """The inverse of erf; NaN outside of [-1, 1].

        A step of Halley's method on erf (erfc in the tails) from the approximation of S. Winitzki (2008), of which one
        constant makes the error after it smallest; two for float64."""
        x = self._floating()
        wide = x if x.dtype is dtypes.float64 else x.cast(dtypes.float32)
        size = wide.abs()
        inside = size.less(1.0)
        p = inside.where(size, 0.5)
        rest = p.neg().add(1.0)
        log = rest.mul(p.add(1.0)).log()
        a = 0.15
        half = log.mul(0.5).add(2 / (math.pi * a))
        y = half.square().sub(log._divide(a)).sqrt().sub(half).maximum(0.0).sqrt()
        for _ in range(1 if wide.dtype is dtypes.float32 else 2):
            error = p.less(0.5).where(y.erf().sub(p), rest.sub(y.erfc()))
            step = error.mul(y.square().exp()).mul(math.sqrt(math.pi) / 2)
            y = y.sub(step._divide(y.mul(step).add(1.0)))
        root = size.eq(1.0).where(math.inf, inside.where(y, math.nan))
        signed = wide.less(0).where(root.neg(), wide.eq(0).where(wide, root))
        value = signed._with_gradients([wide], lambda g: [g.mul(signed.square().exp().mul(math.sqrt(math.pi) / 2))])
        return value.cast(x.dtype)

    def lgamma(self) -> Self:
        """log |Γ(x)|."""
        return self._unary(Ops.LGAMMA)

    def digamma(self) -> Self:
        """The derivative of lgamma."""
        return self._unary(Ops.DIGAMMA)

    def mvlgamma(self, p: int) -> Self:
        """The logarithm of the multivariate gamma function of dimension p."""
        if p < 1:
            raise ValueError(f"mvlgamma: p must be at least 1, got {p}")
        x = self._floating()
        out = x.lgamma()
        for j in range(1, p):
            out = out.add(x.sub(j / 2).lgamma())
        return out.add(p * (p - 1) / 4 * math.log(math.pi))

    # -- of several tensors -------------------------------------------------------------------------------------------
    def lerp(self, end: Any, weight: Any) -> Self:
        """self + weight · (end - self), exact at both ends."""
        a, b, w = self._together("lerp", end, weight)
        span = b.sub(a)
        near, far = a.add(w.mul(span)), b.sub(span.mul(w.neg().add(1.0)))
        return w.abs().less(0.5).where(near, far)

    def addcmul(self, first: Any, second: Any, value: float = 1) -> Self:
        """self + value · first · second."""
        a, b, c = self._together("addcmul", first, second)
        return a.add(b.mul(c), alpha=value)

    def addcdiv(self, first: Any, second: Any, value: float = 1) -> Self:
        """self + value · first / second. TypeError for integers."""
        a, b, c = self._together("addcdiv", first, second)
        if not a.dtype.is_float:
            raise TypeError(f"addcdiv: needs a float dtype, got {a.dtype.name}")
        return a.add(b._binary(Ops.DIV, c, "addcdiv"), alpha=value)
