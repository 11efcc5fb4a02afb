"""Eigenvalues without eigenvectors: Householder's reflections make a symmetric matrix tridiagonal, and bisection finds
its eigenvalues, all at once.

Each halving counts, by the signs of the pivots of an elimination, how many eigenvalues lie below the middle of each
interval (Sturm's sequence; Barth, Martin and Wilkinson 1967). As in `elimination`, all steps of a loop are one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

from tinyweb.array.elimination import EPSILON, Elimination

COUNTED = 64  # rows up to which the pivots of a count are written out in one kernel
EXTRA = 4  # halvings beyond the digits of the largest value


class Tridiagonal(Elimination):
    """Eigenvalues of symmetric matrices (…, n, n)."""

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
        for _ in range(n - 2):
            state = state.contiguous()
            step = state.select(-1, n).select(-1, 0).int()
            vector, factor = state._line(step, -1).unsqueeze(-1)._reflector(step.add(1))
            # (I - f v vᵀ) A (I - f v vᵀ) = A - v wᵀ - w vᵀ
            image = state._along(last, 0, n).matmul(vector).mul(factor).contiguous()
            both = vector.mul(image).sum(-2, keepdim=True).mul(factor).mul(0.5)
            other = image.sub(both.mul(vector)).contiguous()
            v, w = (x.mT._pad_along(last, 0, 1) for x in (vector, other))
            state = columns.eq(n).where(state.add(1.0), state.sub(vector.mul(w)).sub(other.mul(v)))
        matrix = state.contiguous()._along(last, 0, n)
        return matrix.diagonal(0, -2, -1), matrix.diagonal(-1, -2, -1)

    def _bisected(self, size: Self, n: int, count: Callable[[Self], Self]) -> Self:
        """The values (…, n) in ascending order, between `self` (…, 1) and `size` above it; `count` says how many are
        below each of (…, n + 1) numbers, of which the last stands for none."""
        last, number = self.ndim - 1, self._iota(n + 1)
        # where the interval of each begins, and behind them how long all are
        state = number.eq(n).where(size, self)
        for _ in range(EXTRA - round(math.log2(EPSILON[self.dtype]))):
            state = state.contiguous()
            half = state._along(last, n, n + 1).mul(0.5)
            middle = state.add(half)
            beyond = count(middle).le(number.cast(self.dtype))
            state = number.eq(n).where(half, beyond.where(middle, state))
        state = state.contiguous()
        return state._along(last, 0, n).add(state._along(last, n, n + 1).mul(0.5)).contiguous()

    def _symmetric_values(self) -> Self:
        """The eigenvalues (…, n) of symmetric matrices in ascending order."""
        diagonal, beside = (x.contiguous() for x in self._tridiagonal())
        last, n = diagonal.ndim - 1, self._fixed(self.ndim - 1, "eigvalsh")
        size = beside.abs()
        around = size._pad_along(last, 0, 1).add(size._pad_along(last, 1, 0))
        # all are within this distance of 0 (Gershgorin)
        bound = diagonal.abs().add(around).max(-1, keepdim=True).contiguous()
        small = bound.mul(EPSILON[self.dtype] ** 2).contiguous()  # nothing beside the entries
        guard = small, small.mul(2.0).contiguous()
        entries = [diagonal._along(last, i, i + 1) for i in range(n)]
        squares = [beside._along(last, i, i + 1).square() for i in range(n - 1)]

        def count(x: Self) -> Self:
            pivot, negative = entries[0].sub(x)._signed(*guard)
            below = negative
            for entry, square in zip(entries[1:], squares, strict=True):
                pivot, negative = entry.sub(x).sub(square.div(pivot))._signed(*guard)
                below = below.add(negative)
            return below

        return bound.neg()._bisected(bound.mul(2.0), n, count)

    def _signed(self, small: Self, twice: Self) -> tuple[Self, Self]:
        """Pivots, none of them 0, and 1 for those below: a vanishing one is."""
        negative = self.less(small)
        return negative.where(self.sub(twice), self), negative.cast(self.dtype)
