"""What singular values tell: pseudo-inverses, least squares, ranks, condition numbers, norms of matrices."""

from __future__ import annotations

import math
from typing import Any, Self

from tinyweb.array.core import TensorCore
from tinyweb.array.elimination import EPSILON
from tinyweb.array.orthogonal import Orthogonal
from tinyweb.dtype import dtypes
from tinyweb.graph.schedule.indexing import same


class Spectral(Orthogonal):
    """Methods made of singular values."""

    __slots__ = ()

    def _tolerance(self, values: Self, rtol: float | None, atol: float | None) -> Self:
        """What counts as zero among descending singular values, (…, 1): max(atol, rtol · the largest)."""
        m, n = self._matrix("matrix_rank")
        if rtol is None:
            rtol = max(m, n) * EPSILON[values.dtype] if not atol else 0.0
        return values._along(values.ndim - 1, 0, 1).mul(rtol).maximum(atol or 0.0)

    def matrix_rank(self, rtol: float | None = None, atol: float | None = None) -> Self:
        """int32: how many singular values are above max(atol, rtol · the largest); rtol is max(m, n) times the
        rounding unit unless one of them is given."""
        a = self._real()
        if 0 in a._matrix("matrix_rank"):
            return a.sum((-2, -1)).cast(dtypes.int32)
        values = a.svdvals()
        return values.greater(a._tolerance(values, rtol, atol)).sum(-1)

    def pinv(self, rtol: float | None = None, atol: float | None = None) -> Self:
        """The pseudo-inverse (Penrose 1955) of (…, m, n): (…, n, m). Tolerances as in `matrix_rank`.

        The gradient takes the rank as constant (Golub and Pereyra 1973).
        """
        m, n = self._matrix("pinv")
        a = self._real()
        if m == 0 or n == 0:
            return a.mT._rounded(self)
        u, s, v = a.detach().svd(full_matrices=False)
        kept = s.greater(a._tolerance(s, rtol, atol))
        inverse = kept.where(kept.where(s, 1.0).reciprocal(), 0.0).unsqueeze(-2)
        p = v.mT.mul(inverse).matmul(u.mT).contiguous()

        def rule(p: Self, g: Self) -> list[Self]:
            gt, pt = g.mT, p.mT
            left = gt.sub(a.matmul(p.matmul(gt))).matmul(p).matmul(pt)
            right = pt.matmul(p).matmul(gt.sub(gt.matmul(p).matmul(a)))
            return [left.add(right).sub(pt.matmul(g).matmul(pt))]

        return p._closed([a], rule)._rounded(self)

    def lstsq(self, b: TensorCore, rcond: float | None = None) -> tuple[Self, Self, Self, Self]:
        """(solution, residuals, rank, singular values) of the least squares problem self @ X ≈ b: the shortest X that
        makes |self @ X - b| smallest.

        self (…, m, n), b (…, m, k). Residuals are the sums of squares that are left for each column if m > n, else
        empty. Singular values below rcond · the largest count as zero.
        """
        m, n = self._matrix("lstsq")
        rhs = self._partner(b, "lstsq")
        if rhs.ndim < 2 or not same(rhs.shape[-2], m):
            raise ValueError(f"lstsq: {self.shape} and {rhs.shape}: matrix and right side differ in the number of rows")
        a, v = self._real()._same_real(rhs)
        p = a.pinv(rcond)
        x = p.matmul(v)
        x = x.add(p.matmul(v.sub(a.matmul(x))))
        left = a.matmul(x).sub(v).square().sum(-2) if m > n else a._constant(0)._broadcast_to((0,))
        values = a.detach().svd(full_matrices=False)[1]
        return x._rounded(self, rhs), left._rounded(self, rhs), a.detach().matrix_rank(rcond), values._rounded(self)

    def cond(self, p: Any = None) -> Self:
        """Condition numbers: the largest over the smallest singular value, or with `p` (a norm as in `matrix_norm`) the
        norm of square matrices times that of their inverses."""
        m, n = self._matrix("cond")
        if p is None or p in (2, -2):
            values = self._real().svdvals()
            k = min(m, n)
            if k == 0:
                raise ValueError(f"cond: {self.shape} has no singular values")
            large, small = values.select(-1, 0), values.select(-1, k - 1)
            return (small.div(large) if p == -2 else large.div(small))._rounded(self)
        self._square("cond")
        return self.matrix_norm(p).mul(self.inverse().matrix_norm(p))

    def matrix_norm(self, ord: Any = "fro", axis: Any = (-2, -1), keepdim: bool = False) -> Self:
        """Norms of matrices in two axes: "fro" (the root of the sum of squares), "nuc" (the sum of singular values),
        inf and -inf (the largest, smallest sum of absolute values of a row), 1 and -1 (of a column), 2 and -2 (the
        largest, smallest singular value)."""
        if self.ndim < 2 or not isinstance(axis, tuple | list) or len(axis) != 2:
            raise ValueError(f"matrix_norm: needs two axes of {self.shape}, got {axis}")
        a, b = (self._axis(x, method="matrix_norm") for x in axis)
        if a == b:
            raise ValueError(f"matrix_norm: needs two different axes of {self.shape}, got {tuple(axis)}")
        t = self._floating().movedim((a, b), (-2, -1))
        if ord == "fro":
            out = t.vector_norm(2, (-2, -1))
        elif ord == "nuc":
            out = t.svdvals().sum(-1)
        elif ord in (2, -2):
            values = t.svdvals()
            out = values.max(-1) if ord == 2 else values.min(-1)
        elif ord in (1, -1, math.inf, -math.inf):
            sums = t.abs().sum(-1 if math.isinf(ord) else -2)
            out = sums.max(-1) if ord > 0 else sums.min(-1)
        else:
            raise ValueError(f"matrix_norm: ord is 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2, got {ord!r}")
        if keepdim:
            for d in sorted((a, b)):
                out = out.unsqueeze(d)
        return out
