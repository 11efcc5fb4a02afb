"""Orthogonal factors: QR by Householder reflections, eigenvalues and singular values by Jacobi rotations.

As in `elimination`, all steps of a loop are one kernel, and results bring their gradients along.
"""

from __future__ import annotations

import math
from typing import Self, TypeVar

from tinyweb.array.elimination import EPSILON, SMALLEST
from tinyweb.array.tridiagonal import COUNTED, Tridiagonal
from tinyweb.dtype import dtypes

T = TypeVar("T", bound="Orthogonal")
APART = 256  # times what two vectors have in common that their values are apart: what turns them is small beside 1
INLINE = 64  # columns up to which a rotation's angles are computed again for every element


class Orthogonal(Tridiagonal):
    """Factors of matrices of any shape (…, m, n)."""

    __slots__ = ()

    def _unit_scale(self, axes: tuple[int, ...] = (-2, -1)) -> tuple[Self, Self]:
        """The matrix, or with the axis -2 each column, over its largest element, so that no square overflows or
        vanishes, and that element (…, 1, 1)."""
        largest = self.abs().max(axes, keepdim=True)
        usable = largest.greater(0) & largest.less(math.inf)
        scale = usable.where(largest, 1.0).detach().contiguous()
        return self.div(scale), scale

    # -- QR -----------------------------------------------------------------------------------------------------------
    def _reflections(self, pivoting: bool = False) -> tuple[Self, Self, Self]:
        """Householder's reflections (Golub and Van Loan, section 5.2): (triangle with the vectors below it, their
        factors, places of the columns).

        With `pivoting` the longest column left comes next (Businger and Golub 1965). State: the matrix; a column with
        the factors, one with the number of the step; a row with the step at which a column was taken.
        """
        m, n = self._matrix("qr")
        k, late, least = min(m, n), float(n), SMALLEST[self.dtype] / EPSILON[self.dtype]
        state = self._with_columns(0.0, 0.0)
        state = type(self).cat([state, state._constant(late)._broadcast_to((*state.shape[:-2], 1, n + 2))], axis=-2)
        rows, columns = self._iota(m + 1).unsqueeze(1), self._iota(n + 2)

        def advanced(state: Self) -> Self:
            step = state.select(-1, n + 1).select(-1, 0).int()
            at = step._reshape((*step.shape, 1, 1))
            unused = state.select(-2, m).eq(late) & columns.less(n)
            chosen = step
            if pivoting:
                inside = rows.ge(at) & rows.less(m)
                length = inside.where(state, 0.0).square().sum(-2)
                chosen = unused.where(length, -1.0).argmax(-1).contiguous()
            column = state._line(chosen, -1).unsqueeze(-1)
            head = column._line(step, -2).unsqueeze(-2)
            below = rows.greater(at) & rows.less(m)
            rest = below.where(column, 0.0).square().sum(-2, keepdim=True)
            length = head.square().add(rest).sqrt()
            flat = rest.less_equal(least)  # nothing to reflect; of squares that lost digits no reflection is made
            top = flat.where(head, head.less(0).where(length, length.neg()))
            factor = flat.where(0.0, top.sub(head).div(flat.where(1.0, top)))
            vector = rows.eq(at).where(1.0, below.where(column.div(flat.where(1.0, head.sub(top))), 0.0)).contiguous()
            along = vector.mul(state).sum(-2, keepdim=True)
            mine = columns.eq(chosen._reshape((*chosen.shape, 1, 1)))
            reflected = state.sub(factor.mul(vector).mul(along))
            own = rows.eq(at).where(top, below.where(vector, state))
            new = mine.where(own, unused.unsqueeze(-2).where(reflected, state))
            new = (rows.eq(m) & columns.less(n)).where(mine.where(at.cast(self.dtype), state), new)
            new = (rows.eq(at) & columns.eq(n)).where(factor, new)
            return columns.eq(n + 1).where(state.add(1.0), new)

        state = state._repeated(k, advanced)
        state = state.contiguous()
        order, place = state.select(-2, m)._along(state.ndim - 2, 0, n)._order_places()
        inner = state._along(state.ndim - 2, 0, m)
        factors = inner.select(-1, n)._along(state.ndim - 2, 0, k)
        table = inner._along(state.ndim - 1, 0, n)
        if pivoting:
            table = table.mT._pick(order, table.ndim - 2).mT
        return table.contiguous(), factors, place

    def _orthogonal(self, factors: Self, count: int) -> Self:
        """The first columns of the product of the reflections in this table, I - V T Vᵀ with T⁻¹ the upper half of VᵀV
        and the inverse factors on its diagonal (Puglisi 1992)."""
        table = self
        m, n = table._matrix("qr")
        k = min(m, n)
        identity = table._identity(k)
        used = factors.ne(0).unsqueeze(-2)
        v = used.where(table._along(table.ndim - 1, 0, k).tril(-1).add(table._identity(m, k)), 0.0).contiguous()
        diagonal = factors.eq(0).where(1.0, factors).reciprocal().unsqueeze(-1)
        t = identity.bool().where(diagonal, v.mT.matmul(v).triu(1))._inverse_triangle(upper=True)
        first = v._along(v.ndim - 2, 0, count) if count <= m else v
        return table._identity(m, count).sub(v.matmul(t.matmul(first.mT))).contiguous()

    def qr(self, mode: str = "reduced") -> tuple[Self, Self]:
        """(Q, R) with self = Q @ R: orthonormal columns, upper triangle. (…, m, n) gives (m, min(m, n)) and
        (min(m, n), n) if `mode` is "reduced", (m, m) and (m, n) if "complete"; with "r" Q is empty.

        As LAPACK's, R may have negative diagonal elements.
        """
        if mode not in ("reduced", "complete", "r"):
            raise ValueError(f"qr: mode is 'reduced', 'complete' or 'r', got {mode!r}")
        m, n = self._matrix("qr")
        a, k = self._real(), min(m, n)
        if mode == "r":
            return self._constant(0)._broadcast_to((0,)), self.qr()[1]
        if 0 in a.shape:
            q = a._identity(m, m if mode == "complete" else k)
            return q._broadcast_to((*a.shape[:-2], *q.shape))._rounded(self), a._along(
                a.ndim - 2, 0, k if mode == "reduced" else m
            )._rounded(self)
        square = a._along(a.ndim - 1, 0, k)
        unit, scale = square._unit_scale((-2,))
        table, factors, _ = unit._reflections()
        raw = table._along(table.ndim - 2, 0, k).triu().mul(scale)
        q = table._orthogonal(factors, k)

        def gradient(m_: Self, to_q: Self | None) -> list[Self]:
            both = q.matmul(m_.tril().add(m_.tril(-1).mT))
            both = both if to_q is None else both.add(to_q)
            return [both.matmul(raw._inverse_triangle(upper=True).mT)]

        whole = q._with_gradients([square], lambda g: gradient(g.mT.matmul(q).neg(), g))
        r = raw._with_gradients([square], lambda g: gradient(raw.matmul(g.mT), None))
        if n > k:
            r = type(self).cat([r, whole.mT.matmul(a._along(a.ndim - 1, k, n))], axis=-1)
        if mode == "complete" and m > k:
            r = r._pad_along(r.ndim - 2, 0, m - k)
            rest = table._orthogonal(factors, m)
            whole = type(self).cat([whole, rest._along(rest.ndim - 1, k, m)], axis=-1)
        return whole._rounded(self), r._rounded(self)

    # -- rotations ----------------------------------------------------------------------------------------------------
    def _angles(self, diagonal: Self, coupling: Self) -> tuple[Self, Self]:
        """(cosine, sine) of the rotations that decouple columns i and n-1-i, for every i (Rutishauser 1966)."""
        n = self._fixed(self.ndim - 1, "eigh")
        ratio = diagonal.flip(-1).sub(diagonal).div(coupling.mul(2.0))
        side = self._iota(n).less(n // 2).where(1.0, -1.0).cast(self.dtype)
        sign = ratio.eq(0).where(side, ratio.less(0).where(-1.0, 1.0))
        tangent = sign.div(ratio.abs().add(ratio.square().add(1.0).sqrt()))
        tangent = coupling.eq(0).where(0.0, tangent)
        cosine = tangent.square().add(1.0).rsqrt()
        return cosine, tangent.mul(cosine)

    def _partners(self, n: int) -> Self:
        """Where the columns come from that are next to each other's partners: all but the first move on by one."""
        i = self._iota(n)
        return i.eq(0).where(0, i.eq(1).where(n - 1, i.sub(1)))

    def _one_sided(self, height: int, sweeps: int) -> Self:
        """Hestenes' rotations (1958): the first `height` rows' columns become orthogonal; the other rows follow."""
        n = self._fixed(self.ndim - 1, "svd")
        state, axis, move = self, self.ndim - 1, self._partners(self._fixed(self.ndim - 1, "svd"))

        def advanced(state: Self) -> Self:
            part = state._along(axis - 1, 0, height)
            both = type(self).stack([part, part.flip(-1)], axis=-3)
            products = both.mul(part.unsqueeze(-3)).sum(-2).contiguous()
            angles = self._angles(products.select(-2, 0), products.select(-2, 1))
            cosine, sine = (x if n <= INLINE else x.contiguous() for x in angles)
            state = cosine.unsqueeze(-2).mul(state).sub(sine.unsqueeze(-2).mul(state.flip(-1)))
            return state._take(move, axis)

        state = state._repeated(sweeps * (n - 1), advanced).contiguous()
        return state

    def _orthonormal(self) -> Self:
        """Nearly orthonormal columns made more so by one step of Newton's iteration (Björck and Bowie 1971)."""
        return self.matmul(self._to_orthonormal()).contiguous()

    def _to_orthonormal(self) -> Self:
        """What such columns are multiplied with."""
        n = self._fixed(self.ndim - 1, "svd")
        return self._identity(n).mul(1.5).sub(self.mT.matmul(self).mul(0.5))

    def _refined_vectors(self, vectors: Self) -> tuple[Self, Self]:
        """(eigenvalues, vectors) of symmetric matrices, of vectors that are nearly eigenvectors: their errors are
        squared (Ogita and Aishima 2018). Where values are about equal, vectors are only made orthonormal."""
        n = self._fixed(self.ndim - 1, "eigh")
        diagonal = self._identity(n).bool()
        lengths = vectors.mT.matmul(vectors).contiguous()
        products = vectors.mT.matmul(self.matmul(vectors)).contiguous()
        rest = self._identity(n).sub(lengths)
        values = products.diagonal(0, -2, -1).div(lengths.diagonal(0, -2, -1)).contiguous()
        row = values.unsqueeze(-2)
        gaps = row.sub(values.unsqueeze(-1))
        sides = products.add(row.mul(rest))
        apart = gaps.abs().greater(sides.abs().mul(APART)) & ~diagonal
        turns = apart.where(sides.div(apart.where(gaps, 1.0)), rest.mul(0.5)).contiguous()
        return values, vectors.add(vectors.matmul(turns))._orthonormal()._orthonormal()

    def _refined_columns(self, turns: Self) -> tuple[Self, Self]:
        """Columns that are nearly orthogonal made more so, as `_refined_vectors`, and `turns` with them."""
        n = self._fixed(self.ndim - 1, "svd")
        products = self.mT.matmul(self).contiguous()
        squares = products.diagonal(0, -2, -1)
        gaps = squares.unsqueeze(-2).sub(squares.unsqueeze(-1))
        apart = gaps.abs().greater(products.abs().mul(APART)) & ~self._identity(n).bool()
        change = self._identity(n).add(apart.where(products.div(apart.where(gaps, 1.0)), 0.0)).contiguous()
        columns = self.matmul(change).contiguous()
        turns = turns.matmul(change).contiguous()
        for _ in range(2):
            change = turns._to_orthonormal().contiguous()
            columns, turns = columns.matmul(change).contiguous(), turns.matmul(change).contiguous()
        return columns, turns

    def _sweeps(self, n: int) -> int:
        """Sweeps until only rounding errors are left; convergence is quadratic in the end."""
        return max(n - 1, 1).bit_length() + (2 if self.dtype is dtypes.float32 else 4)

    # -- eigenvalues --------------------------------------------------------------------------------------------------
    def _spectrum(self) -> tuple[Self, Self]:
        """(eigenvalues in ascending order, eigenvectors) of symmetric matrices."""
        n = self._fixed(self.ndim - 1, "eigh")
        if n == 0:
            return self.sum(-1), self
        even, lead = n + n % 2, [None] * (self.ndim - 2)
        a = self._pad([*lead, (0, even - n), (0, even - n)]).contiguous()
        identity = a._identity(even)._broadcast_to(a.shape)
        # all eigenvalues made positive, the columns of what rotations make orthogonal are the vectors, but for lengths
        bound = a.abs().sum(-1, keepdim=True).max(-2, keepdim=True).contiguous()
        shift = identity.mul(bound.greater(0).where(bound, 1.0).mul(2.0))
        turned = a.add(shift).contiguous()._one_sided(even, self._sweeps(n))
        vectors = turned.div(turned.square().sum(-2, keepdim=True).sqrt()).contiguous()
        values, vectors = a._refined_vectors(vectors)
        values = values._along(a.ndim - 2, 0, n).contiguous()
        vectors = vectors._along(a.ndim - 2, 0, n)._along(a.ndim - 1, 0, n)
        order, _ = values._order_places()
        axis = a.ndim - 2
        values = values.unsqueeze(-1)._pick(order, axis).squeeze(-1)
        return values.contiguous(), vectors.mT._pick(order, axis).mT.contiguous()

    def eigh(self, UPLO: str = "L") -> tuple[Self, Self]:
        """(eigenvalues in ascending order, orthonormal eigenvectors as columns) of symmetric matrices, of which only
        the lower (or with "U" the upper) triangle is looked at.

        The gradient of eigenvectors is infinite or NaN where eigenvalues are equal, and takes the matrix as symmetric.
        """
        self._square("eigh")
        if UPLO not in ("L", "U"):
            raise ValueError(f"eigh: UPLO is 'L' or 'U', got {UPLO!r}")
        a = self._real()
        unit, scale = a._unit_scale() if a.numel() else (a, a)
        low = (unit if UPLO == "L" else unit.mT).tril()
        values, vectors = low.add(low.tril(-1).mT)._spectrum()
        values = values.mul(scale.squeeze(-1)) if a.numel() else values
        gaps = values.unsqueeze(-2).sub(values.unsqueeze(-1))

        def of_values(g: Self) -> list[Self]:
            return [vectors.mul(g.unsqueeze(-2)).matmul(vectors.mT)]

        def of_vectors(g: Self) -> list[Self]:
            same = a._identity(gaps._fixed(-1, "eigh")).bool()
            inner = same.where(0.0, vectors.mT.matmul(g).div(same.where(1.0, gaps)))
            return [vectors.matmul(inner).matmul(vectors.mT)]

        w, v = values._with_gradients([a], of_values), vectors._with_gradients([a], of_vectors)
        return w._rounded(self), v._rounded(self)

    def eigvalsh(self, UPLO: str = "L") -> Self:
        """The eigenvalues of symmetric matrices in ascending order (see `eigh`)."""
        n = self._square("eigvalsh")
        if UPLO not in ("L", "U") or not 1 <= n <= COUNTED or not self.numel():
            return self.eigh(UPLO)[0]
        a = self._real()
        unit, scale = a.detach()._unit_scale()
        low = (unit if UPLO == "L" else unit.mT).tril()
        values = low.add(low.tril(-1).mT)._symmetric_values().mul(scale.squeeze(-1))

        def of_values(a: Self, g: Self) -> list[Self]:
            vectors = a.eigh(UPLO)[1]
            return [vectors.mul(g.unsqueeze(-2)).matmul(vectors.mT)]

        return values._with_later_gradients([a], of_values)._rounded(self)

    # -- singular values ----------------------------------------------------------------------------------------------
    def _singular(self) -> tuple[Self, Self, Self, Self]:
        """(U, singular values, V, complete Q of the first factor) of (…, m, n) with m ≥ n ≥ 1.

        QR with pivoting first, then one-sided rotations of its triangle (Drmač and Veselić 2008): A Π = Q R, and
        Rᵀ J = W has orthogonal columns, so that U = Q J, and Π times the normalised W is V.
        """
        m, n = self._matrix("svd")
        axis = self.ndim - 2
        table, factors, place = self._reflections(pivoting=True)
        q = table._orthogonal(factors, m)
        even = n + n % 2
        wide = [None] * axis + [(0, even - n), (0, even - n)]
        triangle = table._along(axis, 0, n).triu().mT._pad(wide).contiguous()
        identity = self._identity(even)._broadcast_to(triangle.shape)
        first = type(self).cat([triangle, identity], axis=-2)._one_sided(even, self._sweeps(n))
        turns = first._along(axis, even, 2 * even)._orthonormal()
        w, turns = triangle.matmul(turns).contiguous()._refined_columns(turns)
        w, turns = (x._along(axis, 0, n)._along(axis + 1, 0, n) for x in (w, turns))
        values = w.square().sum(-2).sqrt().contiguous()
        down, _ = values.neg()._order_places()
        values = values.unsqueeze(-1)._pick(down, axis).squeeze(-1).contiguous()
        w, turns = (x.mT._pick(down, axis).mT.contiguous() for x in (w, turns))
        # what belongs to vanishing singular values has no direction: a QR makes the columns orthonormal all the same
        table, factors, _ = w._unit_scale((-2,))[0]._reflections()
        right = table._orthogonal(factors, n)
        right = right.mul(table.diagonal(0, -2, -1).less(0).where(-1.0, 1.0).unsqueeze(-2))
        # column i of self went to `place`: row i of Π times a matrix is its row there
        right = right._pick(place, axis).contiguous()
        return q._along(axis + 1, 0, n).matmul(turns).contiguous(), values, right, q

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """(U, S, Vᵀ) with self = U @ diag(S) @ Vᵀ, singular values in descending order: (…, m, n) gives (m, k), (k,)
        and (k, n) with k = min(m, n), or (m, m) and (n, n) with `full_matrices`.

        The gradients of U and V are those of their first k columns, and infinite or NaN where singular values are
        equal or vanish.
        """
        m, n = self._matrix("svd")
        a, k = self._real(), min(m, n)
        if 0 in a.shape:
            lead = a.shape[:-2]
            u, v = a._identity(m, m if full_matrices else k), a._identity(n if full_matrices else k, n)
            values = a._constant(0)._broadcast_to((*lead, k))
            return u._broadcast_to((*lead, *u.shape)), values, v._broadcast_to((*lead, *v.shape))
        unit, scale = a._unit_scale()
        u, s, v, q = (unit if m >= n else unit.mT)._singular()
        extra = q._along(q.ndim - 1, k, max(m, n))
        u, v = (u, v) if m >= n else (v, u)
        s = s.mul(scale.squeeze(-1))
        out_u, out_s, out_v = _svd_gradients(a, u, s, v)
        if full_matrices and m > n:
            out_u = type(self).cat([out_u, extra], axis=-1)
        if full_matrices and n > m:
            out_v = type(self).cat([out_v, extra], axis=-1)
        return out_u._rounded(self), out_s._rounded(self), out_v.mT._rounded(self)

    def svdvals(self) -> Self:
        """The singular values in descending order, each to within a rounding error of the largest; those below 2^-32
        of it (2^-64 in float64) are 0."""
        m, n = self._matrix("svd")
        if not 1 <= min(m, n) <= COUNTED or not self.numel():
            return self.svd(full_matrices=False)[1]
        a = self._real()
        unit, scale = a.detach()._unit_scale()
        values = (unit if m >= n else unit.mT)._singular_values().flip(-1).mul(scale.squeeze(-1))

        def of_values(a: Self, g: Self) -> list[Self]:
            u, _, v = a.svd(full_matrices=False)
            return [u.mul(g.unsqueeze(-2)).matmul(v)]

        return values._with_later_gradients([a], of_values)._rounded(self)


def _svd_gradients(a: T, u: T, s: T, v: T) -> tuple[T, T, T]:
    """U, S and V with their gradients (Ionescu, Vantzos and Sminchisescu 2015)."""
    k = s._fixed(s.ndim - 1, "svd")
    diagonal = a._identity(k).bool()
    squares = s.square()
    gaps = squares.unsqueeze(-2).sub(squares.unsqueeze(-1))
    row, column = s.unsqueeze(-2), s.unsqueeze(-1)

    def turned(x: T, g: T) -> T:
        inner = x.mT.matmul(g)
        return diagonal.where(0.0, inner.sub(inner.mT).div(diagonal.where(1.0, gaps)))

    def outside(x: T, g: T) -> T:
        """What of g is orthogonal to the columns of x."""
        return g.sub(x.matmul(x.mT.matmul(g)))

    def of_u(g: T) -> list[T]:
        inside = u.matmul(turned(u, g).mul(row)).matmul(v.mT)
        return [inside.add(outside(u, g).div(row).matmul(v.mT)) if u.shape[-2] != k else inside]

    def of_v(g: T) -> list[T]:
        inside = u.matmul(turned(v, g).mul(column)).matmul(v.mT)
        return [inside.add(u.matmul(outside(v, g).div(row).mT)) if v.shape[-2] != k else inside]

    return (
        u._with_gradients([a], of_u),
        s._with_gradients([a], lambda g: [u.mul(g.unsqueeze(-2)).matmul(v.mT)]),
        v._with_gradients([a], of_v),
    )
