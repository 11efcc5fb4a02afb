"""Division with a quotient rounded to a whole number, its exact remainder, and greatest common divisors."""

from __future__ import annotations

import math
from typing import Any, Self

from tinyweb.array.functions import Functions
from tinyweb.graph.ir import Ops


class Division(Functions):
    """Quotients and remainders. Integers divided by 0 give 0; floats follow IEEE 754."""

    __slots__ = ()

    def div(self, other: Any, rounding_mode: str | None = None) -> Self:
        """self / other, of integers in float32; or the quotient rounded "trunc" (to 0) or "floor" (down), in the
        operands' dtype."""
        if rounding_mode not in (None, "trunc", "floor"):
            raise ValueError(f'div: rounding_mode must be None, "trunc" or "floor", got {rounding_mode!r}')
        if rounding_mode is None:
            return self._divide(other)
        a, b = self._pair(other, "div")
        if a.dtype.kind == "bool":
            raise TypeError("div: booleans have no whole quotient")
        if a.dtype.is_float:
            return a._floor_quotient(b) if rounding_mode == "floor" else a.div(b).trunc()
        down = a._binary(Ops.FLOORDIV, b, "div")
        if rounding_mode == "floor" or a.dtype.kind == "uint":
            return down
        # rounded down means away from 0 where the quotient is negative and not whole
        return a._binary(Ops.MOD, b, "div").ne(0).logical_and(a.less(0).ne(b.less(0))).where(down.add(1), down)

    divide = true_divide = div

    def floor_divide(self, other: Any) -> Self:
        """The quotient rounded down, in the operands' dtype. TypeError for booleans."""
        return self.div(other, "floor")

    floordiv = floor_divide

    def remainder(self, other: Any) -> Self:
        """self - other · floor(self / other), without rounding: the sign is that of the divisor."""
        a, b = self._pair(other, "remainder")
        if a.dtype.kind == "bool":
            raise TypeError("remainder: booleans have no remainder")
        if not a.dtype.is_float:
            return a._binary(Ops.MOD, b, "remainder")
        if isinstance(other, int | float) and 1 <= abs(other) < math.inf and abs(math.frexp(other)[0]) == 0.5:
            # by a power of two every step is exact
            rest = a.sub(a.div(b).floor().mul(b))
            return a.isinf().where(math.nan, rest)
        rest = a._truncated_rest(b)
        other_side = rest.ne(0).logical_and(rest.less(0).ne(b.less(0)))
        value = other_side.where(rest.add(b), rest)
        return value._with_gradients([a, b], lambda g: [g, g.mul(a.div(b).floor()).neg()])

    mod = remainder

    def fmod(self, other: Any) -> Self:
        """self - other · trunc(self / other), without rounding: the sign is that of the dividend."""
        a, b = self._pair(other, "fmod")
        if a.dtype.kind == "bool":
            raise TypeError("fmod: booleans have no remainder")
        if not a.dtype.is_float:
            rest = a._binary(Ops.MOD, b, "fmod")
            if a.dtype.kind == "uint":
                return rest
            return rest.ne(0).logical_and(a.less(0).ne(rest.less(0))).where(rest.sub(b), rest)
        return a._truncated_rest(b)._with_gradients([a, b], lambda g: [g, g.mul(a.div(b).trunc()).neg()])

    def _floor_quotient(self, b: Self) -> Self:
        """floor(a / b) of floats: self - remainder is a multiple of b, so that the quotient only needs rounding."""
        rest = self._truncated_rest(b)
        whole = self.sub(rest).div(b)
        down = rest.ne(0).logical_and(rest.less(0).ne(b.less(0))).where(whole.sub(1.0), whole).round()
        quotient = self.div(b)
        return b.eq(0).where(quotient, down)._without_gradient(self)

    def _truncated_rest(self, b: Self) -> Self:
        """fmod of floats. No gradient."""
        return self._binary(Ops.FMOD, b, "fmod")

    # -- whole numbers ------------------------------------------------------------------------------------------------
    def gcd(self, other: Any) -> Self:
        """The greatest common divisor, not negative: Euclid's algorithm. TypeError for floats and booleans."""
        a, b = self._pair(other, "gcd")
        if not a.dtype.is_int:
            raise TypeError(f"gcd: needs integers, got {self.dtype.name} and {b.dtype.name}")
        dtype = a.dtype
        a, b = a.abs(), b.abs()
        # Lamé: numbers of n bits take at most n / log2(golden ratio) steps, each on the remainder by something nonzero
        for _ in range(math.ceil((dtype.bits - dtype.is_signed) / math.log2((1 + math.sqrt(5)) / 2)) + 1):
            done = b.eq(0)
            a, b = done.where(a, b), done.where(b, a._binary(Ops.MOD, done.where(1, b), "gcd"))
        return a

    def lcm(self, other: Any) -> Self:
        """The least common multiple, not negative; 0 where either is. TypeError for floats and booleans."""
        a, b = self._pair(other, "lcm")
        if not a.dtype.is_int:
            raise TypeError(f"lcm: needs integers, got {self.dtype.name} and {b.dtype.name}")
        common = a.gcd(b).maximum(1)
        return a._binary(Ops.FLOORDIV, common, "lcm").mul(b).abs()
