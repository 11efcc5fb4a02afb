"""Eigenvalues and singular values without vectors: Householder's reflections make a matrix tridiagonal, or bidiagonal,
and bisection finds the values, all at once.

Each halving counts, by the signs of the pivots of an elimination, how many values lie below the middle of each interval
(Sturm's sequence; Barth, Martin and Wilkinson 1967; without forming squares of a matrix: Fernando and Parlett 1994). As
in `elimination`, all steps of a loop are one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

from tinyweb.array.elimination import EPSILON, Elimination
from tinyweb.dtype import dtypes

COUNTED = 64  # rows up to which the pivots of a count are written out in one kernel
# below the largest singular value, within which others are told from 0
OCTAVES = {dtypes.float32: 32, dtypes.float64: 64}
EXTRA = 4  # halvings beyond the digits of the largest value


class Tridiagonal(Elimination):
    """Eigenvalues and singular values of matrices (…, m, n)."""

    __slots__ = ()

    def _reflector(self, at: Self) -> tuple[Self, Self]:
        """Of columns (…, n, 1) the reflection I - f v vᵀ that leaves nothing below row `at` (…): v and f."""
        rows = self._iota(self.shape[-2]).unsqueeze(1)
        head = self._line(at, -2).unsqueeze(-2)
        at = at._reshape((*at.shape, 1, 1))
        below = rows.greater(at)
        rest = below.where(self, 0.0).square().sum(-2, keepdim=True)
        length = head.square().add(rest).sqrt()
        flat = rest.eq(0)  # nothing to reflect
        top = flat.where(head, head.less(0).where(length, length.neg()))
        factor = flat.where(0.0, top.sub(head).div(flat.where(1.0, top)))
        vector = rows.eq(at).where(1.0, below.where(self.div(flat.where(1.0, head.sub(top))), 0.0))
        return vector.contiguous(), factor

    def _tridiagonal(self) -> tuple[Self, Self]:
        """The diagonal (…, n) and the one beside it (…, n - 1) of a similar tridiagonal matrix (Golub and Van Loan,
        section 8.3). State: the matrix, and a column with the number of the step."""
        n = self._fixed(self.ndim - 1, "eigvalsh")
        state, last, columns = self._with_columns(0.0), self.ndim - 1, self._iota(n + 1)

        def advanced(state: Self) -> Self:
            step = state.select(-1, n).select(-1, 0).int()
            vector, factor = state._line(step, -1).unsqueeze(-1)._reflector(step.add(1))
            # (I - f v vᵀ) A (I - f v vᵀ) = A - v wᵀ - w vᵀ
            image = state._along(last, 0, n).matmul(vector).mul(factor).contiguous()
            both = vector.mul(image).sum(-2, keepdim=True).mul(factor).mul(0.5)
            other = image.sub(both.mul(vector)).contiguous()
            v, w = (x.mT._pad_along(last, 0, 1) for x in (vector, other))
            return columns.eq(n).where(state.add(1.0), state.sub(vector.mul(w)).sub(other.mul(v)))

        state = state._repeated(n - 2, advanced)
        matrix = state.contiguous()._along(last, 0, n)
        return matrix.diagonal(0, -2, -1), matrix.diagonal(-1, -2, -1)

    def _bidiagonal(self) -> tuple[Self, Self]:
        """The diagonal (…, n) and the one above it (…, n - 1) of a bidiagonal matrix with the singular values of (…, m,
        n), m ≥ n (section 5.4). State as above."""
        n = self._fixed(self.ndim - 1, "svdvals")
        state, last, columns = self._with_columns(0.0), self.ndim - 1, self._iota(n + 1)

        def advanced(state: Self) -> Self:
            step = state.select(-1, n).select(-1, 0).int()
            vector, factor = state._line(step, -1).unsqueeze(-1)._reflector(step)
            along = vector.mul(state).sum(-2, keepdim=True).mul(factor)
            state = columns.eq(n).where(state, state.sub(vector.mul(along))).contiguous()
            row = state._line(step, -2)._along(last - 1, 0, n).unsqueeze(-1)
            # the last row has nothing to the right of its diagonal
            vector, factor = row._reflector(step.add(1).minimum(n - 1))
            image = state._along(last, 0, n).matmul(vector).mul(factor).contiguous()
            new = state.sub(image.mul(vector.mT._pad_along(last, 0, 1)))
            return columns.eq(n).where(state.add(1.0), new)

        state = state._repeated(n, advanced)
        matrix = state.contiguous()._along(last, 0, n)
        return matrix.diagonal(0, -2, -1), matrix.diagonal(1, -2, -1)

    def _bisected(self, size: Self, n: int, count: Callable[[Self], Self]) -> Self:
        """The values (…, n) in ascending order, between `self` (…, 1) and `size` above it; `count` says how many are
        below each of (…, n + 1) numbers, of which the last stands for none."""
        last, number = self.ndim - 1, self._iota(n + 1)
        # where the interval of each begins, and behind them how long all are
        state = number.eq(n).where(size, self)

        def advanced(state: Self) -> Self:
            half = state._along(last, n, n + 1).mul(0.5)
            middle = state.add(half)
            beyond = count(middle).le(number.cast(self.dtype))
            return number.eq(n).where(half, beyond.where(middle, state))

        state = state._repeated(EXTRA - round(math.log2(EPSILON[self.dtype])), advanced)
        state = state.contiguous()
        return state._along(last, 0, n).add(state._along(last, n, n + 1).mul(0.5)).contiguous()

    def _bisected_bits(self, n: int, count: Callable[[Self], Self]) -> Self:
        """As `_bisected`, of values from 0 to `self` (…, 1), each to all its digits: the bits of positive floats are in
        their order, so that halving what lies between those of two floats halves it in the logarithm. What is below
        2^-OCTAVES of the largest is 0."""
        last, whole = self.ndim - 1, dtypes.int32 if self.dtype is dtypes.float32 else dtypes.int64
        digits = -round(math.log2(EPSILON[self.dtype])) + round(math.log2(OCTAVES[self.dtype]))
        top = self.greater(0).where(self, 1.0).bitcast(whole)
        least = top.sub(1 << digits).contiguous()
        number = self._iota(n + 1)
        # how far each is above the least, and behind them the length of all intervals
        state = number.eq(n).where(1 << digits, least.mul(0))

        def advanced(state: Self) -> Self:
            half = state._along(last, n, n + 1).rshift(1)
            middle = state.add(half)
            beyond = count(least.add(middle).bitcast(self.dtype)).le(number.cast(self.dtype))
            return number.eq(n).where(half, beyond.where(middle, state))

        found = state._repeated(digits, advanced).contiguous()._along(last, 0, n)
        values = found.eq(0).where(0.0, least.add(found).add(1).bitcast(self.dtype))
        return values.add(self.mul(0.0)).contiguous()  # NaN stays

    def _symmetric_values(self) -> Self:
        """The eigenvalues (…, n) of symmetric matrices in ascending order."""
        diagonal, beside = (x.contiguous() for x in self._tridiagonal())
        last, n = diagonal.ndim - 1, self._fixed(self.ndim - 1, "eigvalsh")
        size = beside.abs()
        around = size._pad_along(last, 0, 1).add(size._pad_along(last, 1, 0))
        # all are within this distance of 0 (Gershgorin)
        bound = diagonal.abs().add(around).max(-1, keepdim=True).contiguous()
        small = bound.mul(EPSILON[self.dtype] ** 2)
        guard = small.contiguous(), small.mul(2.0).contiguous()
        entries = [diagonal._along(last, i, i + 1) for i in range(n)]
        beside = beside.square().contiguous()
        squares = [beside._along(last, i, i + 1) for i in range(n - 1)]

        def count(x: Self) -> Self:
            pivot, negative = entries[0].sub(x)._signed(*guard)
            below = negative
            for entry, square in zip(entries[1:], squares, strict=True):
                pivot, negative = entry.sub(x).sub(square.div(pivot))._signed(*guard)
                below = below.add(negative)
            return below

        return bound.neg()._bisected(bound.mul(2.0), n, count)

    def _singular_values(self) -> Self:
        """The singular values (…, n) of (…, m, n), m ≥ n, in ascending order."""
        diagonal, above = (x.contiguous() for x in self._bidiagonal())
        last, n = diagonal.ndim - 1, self._fixed(self.ndim - 1, "svdvals")
        size = above.abs()
        bound = diagonal.abs().add(size._pad_along(last, 0, 1).maximum(size._pad_along(last, 1, 0)))
        bound = bound.max(-1, keepdim=True).contiguous()
        # pivots are nothing beside the square of the least value that is told from 0
        small = bound.square().mul(EPSILON[self.dtype] ** 2 * 2.0 ** (-2 * OCTAVES[self.dtype]))
        guard = small.contiguous(), small.mul(2.0).contiguous()
        diagonal, above = diagonal.square().contiguous(), above.square().contiguous()
        entries = [diagonal._along(last, i, i + 1) for i in range(n)]
        squares = [above._along(last, i, i + 1) for i in range(n - 1)]

        def count(x: Self) -> Self:
            shift = x.square().neg()
            pivot, negative = entries[0].add(shift)._signed(*guard)
            below, rest = negative, shift
            for entry, square in zip(entries[1:], squares, strict=True):
                rest = rest.mul(square.div(pivot)).add(shift)
                pivot, negative = entry.add(rest)._signed(*guard)
                below = below.add(negative)
            return below

        return bound._bisected_bits(n, count)

    def _signed(self, small: Self, twice: Self) -> tuple[Self, Self]:
        """Pivots, none of them 0, and 1 for those below: a vanishing one is."""
        negative = self.less(small)
        return negative.where(self.sub(twice), self), negative.cast(self.dtype)
