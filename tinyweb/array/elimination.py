"""Linear systems: LU and Cholesky factors, determinants, inverses, solutions.

A factorisation takes one step per column. The number of the step is part of the state, so that all steps are one
kernel, compiled once; every step's state is put into memory. The inverse of a triangle takes 2 log2(n) products of
blocks instead, and everything else is made of these. Results bring their gradients along, known in closed form, so that
the steps are not differentiated. Integers and half floats are computed in float32.

Nothing is raised for values: a singular matrix has infinite or NaN elements in its inverse, a matrix that is not
positive definite a Cholesky factor with NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from tinyweb.array.core import TensorCore
from tinyweb.array.gathering import Gathering
from tinyweb.array.linalg import Linalg
from tinyweb.array.movement import broadcast_shapes
from tinyweb.dtype import dtypes, promote
from tinyweb.graph.ir import Shape
from tinyweb.graph.schedule.indexing import same

EPSILON = {dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}
SMALLEST = {dtypes.float32: 2.0**-126, dtypes.float64: 2.0**-1022}  # of all digits


class Elimination(Linalg, Gathering):
    """Factors of square matrices and what they are good for. All methods take batches (…, n, n)."""

    __slots__ = ()

    # -- shared with the layers above ---------------------------------------------------------------------------------
    def _real(self) -> Self:
        """The numbers that linear algebra computes with: float32, or float64 as it is."""
        return self if self.dtype is dtypes.float64 else self.cast(dtypes.float32)

    def _rounded(self, *given: TensorCore) -> Self:
        """A result in the dtype of what was given, where that is a float."""
        dtype = promote(*(x.dtype for x in given))
        return self.cast(dtype) if dtype.is_float else self

    def _closed(self, inputs: Sequence[Self], rule: Callable[[Self, Self], Sequence[Self]]) -> Self:
        """This value with the gradients rule(value, gradient that arrives), for second derivatives too."""
        inner = self._with_gradients(inputs, lambda g: rule(self, g))
        return self._with_gradients(inputs, lambda g: rule(inner, g))

    def _matrix(self, method: str) -> tuple[int, int]:
        """Rows and columns."""
        if self.ndim < 2:
            raise ValueError(f"{method}: needs matrices (…, m, n), got {self.shape}")
        return self._fixed(self.ndim - 2, method), self._fixed(self.ndim - 1, method)

    def _line(self, index: Self, axis: int) -> Self:
        """The row (axis -2) or column (axis -1) of each matrix that `index` (…) names."""
        return (self if axis == -2 else self.transpose(-2, -1))._pick(index, self.ndim - 2)

    def _with_columns(self, *values: float) -> Self:
        """More columns, each of one number."""
        shape = (*self.shape[:-1], 1)
        return type(self).cat([self, *(self._constant(v)._broadcast_to(shape) for v in values)], axis=-1)

    def _blocks(self, rows: Sequence[Sequence[Self]]) -> Self:
        """A matrix of matrices."""
        return type(self).cat([type(self).cat(list(row), axis=-1) for row in rows], axis=-2)

    def _summed_to(self, shape: Shape) -> Self:
        """Undoes a broadcast of the axes before the last two: the gradient of what was broadcast."""
        more = self.ndim - len(shape)
        axes = [i for i in range(self.ndim - 2) if i < more or (shape[i - more] == 1 and self.shape[i] != 1)]
        return (self.sum(axes, keepdim=True) if axes else self)._reshape(shape)

    def _order_places(self) -> tuple[Self, Self]:
        """What puts the elements along the last axis in ascending order, by counting those before each: (order, place),
        the one the inverse of the other. Equal elements keep their order, NaN is equal to anything."""
        i = self._iota(self.shape[-1])
        mine, other = self.unsqueeze(-1), self.unsqueeze(-2)
        earlier = i.less(i.unsqueeze(1)) & ~mine.less(other)
        place = (other.less(mine) | earlier).sum(-1).contiguous()
        return place.unsqueeze(-2).eq(i.unsqueeze(1)).where(i, 0).sum(-1).contiguous(), place

    # -- LU -----------------------------------------------------------------------------------------------------------
    def _lu_steps(self) -> tuple[Self, Self, Self]:
        """LU with partial pivoting of (…, m, n): (factors, order, place).

        Row i of the factors was row order[i], and row j became row place[j], as if pivots were exchanged with the rows
        in their places (Golub and Van Loan, Matrix Computations, section 3.4). No row is moved before the end: the
        state is the matrix, a column with the place of every row, and a column with the number of the step.
        """
        m, n = self._matrix("lu")
        rows, columns = self._iota(m), self._iota(n + 2)
        places = rows.cast(self.dtype).unsqueeze(1)._broadcast_to((*self.shape[:-1], 1))
        state = type(self).cat([self, places], axis=-1)._with_columns(0.0)

        def advanced(state: Self) -> Self:
            step = state.select(-1, n + 1).select(-1, 0)
            at, now = step.int()._reshape((*step.shape, 1, 1)), step.unsqueeze(-1)
            column, place = state._line(step.int(), -1), state.select(-1, n)
            unused = place.ge(now)
            size = unused.where(column.abs(), -1.0)
            # of the largest the first in place; where one is NaN any
            largest = unused & ~size.less(size.max(-1, keepdim=True))
            first = largest.where(place, float(m)).min(-1, keepdim=True)
            number = place.eq(first).where(rows, 0).sum(-1).contiguous()
            row = state._line(number, -2).unsqueeze(-2)
            pivot = column.unsqueeze(-1)._line(number, -2).unsqueeze(-1)
            chosen, first = rows.eq(number.unsqueeze(-1)).unsqueeze(-1), row.select(-1, n).unsqueeze(-1)
            factor = column.unsqueeze(-1).div(pivot.eq(0).where(1.0, pivot))
            below = columns.eq(at).where(factor, state.sub(factor.mul(row)))
            inside = (unused.unsqueeze(-1) & ~chosen) & (columns.ge(at) & columns.less(n))
            swapped = chosen.where(now.unsqueeze(-1), place.eq(now).unsqueeze(-1).where(first, state))
            rest = columns.eq(n).where(swapped, columns.eq(n + 1).where(state.add(1.0), state))
            return inside.where(below, rest)

        state = state._repeated(min(m, n), advanced)
        state = state.contiguous()
        place = state.select(-1, n).int().contiguous()
        order = place.unsqueeze(-2).eq(rows.unsqueeze(1)).where(rows, 0).sum(-1).contiguous()
        return state._along(state.ndim - 1, 0, n)._pick(order, state.ndim - 2).contiguous(), order, place

    def lu(self) -> tuple[Self, Self, Self]:
        """(P, L, U) with self = P @ L @ U: a permutation, a lower triangle with a diagonal of ones, an upper triangle.

        (…, m, n) gives (m, m), (m, min(m, n)), (min(m, n), n).
        """
        m, n = self._matrix("lu")
        a, k = self._real(), min(m, n)
        factors, order, _ = a._lu_steps()
        p = order.unsqueeze(-2).eq(self._iota(m).unsqueeze(1)).cast(a.dtype)
        lower = factors._along(a.ndim - 1, 0, k).tril(-1).add(a._identity(m, k))
        upper = factors._along(a.ndim - 2, 0, k).triu()
        if m == n:
            left, right = p.matmul(lower._inverse_triangle().mT), upper._inverse_triangle(upper=True).mT
            low, up = lower, upper
            lower = low._with_gradients([a], lambda g: [left.matmul(low.mT.matmul(g).tril(-1)).matmul(right)])
            upper = up._with_gradients([a], lambda g: [left.matmul(g.matmul(up.mT).triu()).matmul(right)])
        return p._rounded(self), lower._rounded(self), upper._rounded(self)

    def _inverse_steps(self, factors: Self, place: Self) -> Self:
        """The inverse from the factors: U⁻¹ L⁻¹ with the columns back in their places."""
        n = self._fixed(self.ndim - 1, "inverse")
        lower = factors.tril(-1).add(self._identity(n))._inverse_triangle()
        lower = lower.mT._pick(place, self.ndim - 2).mT
        return factors.triu()._inverse_triangle(upper=True).matmul(lower).contiguous()

    def _exchanged(self) -> Self:
        """The inverse of (…, n, n) in place: with y = A x each step solves the row with the largest pivot for one of x,
        which takes the place of that row's y (Gauss and Jordan; Householder, Principles of Numerical Analysis, 1953).

        No row is moved before the end: the state is the matrix, a column with the step that a row was solved in (-1:
        none), and a column with the number of the step.
        """
        n = self._fixed(self.ndim - 1, "inverse")
        rows, columns = self._iota(n), self._iota(n + 2)
        state = self._with_columns(-1.0, 0.0)

        def advanced(state: Self) -> Self:
            step, solved = state.select(-1, n + 1).select(-1, 0), state.select(-1, n)
            column = state._line(step.int(), -1)
            size = solved.less(0).where(column.abs(), -1.0)
            # of the largest the first; where one is NaN any
            largest = solved.less(0) & ~size.less(size.max(-1, keepdim=True))
            first = largest.where(rows, n - 1).min(-1).contiguous()
            pivot = column.unsqueeze(-1)._line(first, -2).unsqueeze(-1)
            at = columns.eq(step.int()._reshape((*step.shape, 1, 1)))
            row = at.where(1.0, state._line(first, -2).unsqueeze(-2)).div(pivot)
            chosen = rows.eq(first.unsqueeze(-1)).unsqueeze(-1)
            changed = chosen.where(row, at.where(0.0, state).sub(column.unsqueeze(-1).mul(row)))
            marked = chosen.where(step._reshape((*step.shape, 1, 1)), state)
            return columns.less(n).where(changed, columns.eq(n).where(marked, state.add(1.0)))

        state = state._repeated(n, advanced)
        state = state.contiguous()
        place = state.select(-1, n).int().contiguous()
        order = place.unsqueeze(-2).eq(rows.unsqueeze(1)).where(rows, 0).sum(-1).contiguous()
        x = state._along(state.ndim - 1, 0, n)._pick(order, state.ndim - 2).mT
        return x._pick(place, state.ndim - 2).mT.contiguous()

    def inverse(self) -> Self:
        """The inverse of square matrices, refined by one step of Newton's method X (2 I - A X) (Schulz 1933)."""
        n = self._square("inverse")
        a = self._real()
        x = a._exchanged()
        x = x.add(x.matmul(a._identity(n).sub(a.matmul(x)))).contiguous()
        return x._closed([a], lambda v, g: [v.mT.matmul(g).matmul(v.mT).neg()])._rounded(self)

    inv = inverse

    def solve(self, b: TensorCore, *, left: bool = True) -> Self:
        """X with self @ X = b (X @ self = b unless `left`): b (…, n, k), or vectors (…, n).

        As in PyTorch, b holds vectors if it has one axis, or is of the shape of self without its last axis.
        """
        n = self._square("solve")
        rhs = self._partner(b, "solve")
        if rhs.ndim == 1 or (rhs.ndim == self.ndim - 1 and all(map(same, rhs.shape, self.shape[:-1]))):
            wide = -1 if left else -2
            return self._solve(rhs.unsqueeze(wide), n, left).squeeze(wide)
        return self._solve(rhs, n, left)

    def _solve(self, rhs: Self, n: int, left: bool) -> Self:
        """`solve` of matrices."""
        if rhs.ndim < 2 or not same(rhs.shape[-2 if left else -1], n):
            raise ValueError(f"solve: {self.shape} and {rhs.shape}: the matrix and the right side differ in size")
        if not left:
            return self.mT._solve(rhs.mT, n, True).mT
        a, v = self._real()._same_real(rhs)
        inverse = a._exchanged()._closed([a], lambda x, g: [x.mT.matmul(g).matmul(x.mT).neg()])
        return a._solved(inverse, v)._rounded(self, rhs)

    def _same_real(self, other: Self) -> tuple[Self, Self]:
        a, b = self._real(), other._real()
        return a.cast(promote(a.dtype, b.dtype)), b.cast(promote(a.dtype, b.dtype))

    def _solved(self, inverse: Self, b: Self) -> Self:
        """The solution of self @ X = b by a known inverse and one step of refinement, with its gradients."""
        lead = broadcast_shapes("solve", self.shape[:-2], b.shape[:-2])
        x = self._refined(inverse, b)._broadcast_to((*lead, *b.shape[-2:])).contiguous()

        def rule(value: Self, g: Self) -> list[Self]:
            to_b = self.mT._refined(inverse.mT, g)
            return [to_b.matmul(value.mT).neg()._summed_to(self.shape), to_b._summed_to(b.shape)]

        return x._closed([self, b], rule)

    def _refined(self, inverse: Self, b: Self) -> Self:
        x = inverse.matmul(b).contiguous()
        return x.add(inverse.matmul(b.sub(self.matmul(x))))

    # -- determinants -------------------------------------------------------------------------------------------------
    def _sign_of(self, order: Self) -> Self:
        """1 or -1: the sign of a permutation, from the number of pairs out of order."""
        i = self._iota(order.shape[-1])
        pairs = order.unsqueeze(-1).greater(order.unsqueeze(-2)) & i.unsqueeze(1).less(i.unsqueeze(0))
        return pairs.sum((-2, -1)).mod(2).mul(-2).add(1).cast(self.dtype)

    def det(self) -> Self:
        """Determinants of square matrices. The gradient is that of the cofactors, also where the matrix is singular."""
        self._square("det")
        a = self._real()
        factors, order, place = a._lu_steps()
        diagonal, sign = factors.diagonal(0, -2, -1), a._sign_of(order)
        value = diagonal.prod(-1).mul(sign)

        def gradients(g: Self) -> list[Self]:
            # a pivot of zero is taken as a tiny one: inverse times determinant is then the matrix of cofactors
            largest = factors.abs().max((-2, -1), keepdim=True) if a.numel() else factors.sum((-2, -1), keepdim=True)
            tiny = largest.eq(0).where(1.0, largest).mul(EPSILON[a.dtype] ** 2)
            small = factors.abs().less(tiny) & a._identity(factors._fixed(-1, "det")).bool()
            safe = small.where(factors.less(0).where(tiny.neg(), tiny), factors)
            cofactors = safe.diagonal(0, -2, -1).prod(-1).mul(sign)
            return [g.mul(cofactors).unsqueeze(-1).unsqueeze(-1).mul(a._inverse_steps(safe, place).mT)]

        return value._with_gradients([a], gradients)._rounded(self)

    def slogdet(self) -> tuple[Self, Self]:
        """(sign, logarithm of the absolute value) of determinants: 0 and minus infinity for singular matrices."""
        self._square("slogdet")
        a = self._real()
        factors, order, place = a._lu_steps()
        diagonal = factors.diagonal(0, -2, -1)
        sign = diagonal.sign().prod(-1).mul(a._sign_of(order)).detach()
        value = diagonal.abs().log().sum(-1)
        inverse = a._inverse_steps(factors, place)._closed([a], lambda x, g: [x.mT.matmul(g).matmul(x.mT).neg()])
        out = value._with_gradients([a], lambda g: [g.unsqueeze(-1).unsqueeze(-1).mul(inverse.mT)])
        return sign._rounded(self), out._rounded(self)

    def logdet(self) -> Self:
        """Logarithms of determinants, NaN where one is negative."""
        sign, log = self.slogdet()
        return sign.less(0).where(float("nan"), log)

    # -- triangles ----------------------------------------------------------------------------------------------------
    def _inverse_triangle(self, upper: bool = False) -> Self:
        """The inverse of lower (or upper) triangles; what is on their other side is not looked at.

        [[A, 0], [C, D]]⁻¹ = [[A⁻¹, 0], [-D⁻¹ C A⁻¹, D⁻¹]], for all blocks of one size at once, from 1 up.
        """
        if upper:
            return self.mT._inverse_triangle().mT
        n, lead = self._fixed(self.ndim - 1, "solve_triangular"), tuple(self.shape[:-2])
        if n == 0:
            return self
        total, axis, size = 1 << (n - 1).bit_length(), len(lead), 1
        t = self._pad([None] * axis + [(0, total - n)] * 2)
        diagonal = t.diagonal(0, -2, -1)
        blocks = self._iota(total).less(n).where(diagonal.reciprocal(), 1.0)._reshape((*lead, total, 1, 1))
        while size < total:
            pairs = total // (2 * size)
            halves = blocks._reshape((*lead, pairs, 2, size, size))
            a, d = halves.select(axis + 1, 0), halves.select(axis + 1, 1)
            tiles = t._reshape((*lead, pairs, 2 * size, pairs, 2 * size)).diagonal(0, axis, axis + 2).movedim(-1, axis)
            c = tiles._along(axis + 1, size, 2 * size)._along(axis + 2, 0, size)
            corner = d.matmul(c.matmul(a)).neg()
            blocks = self._blocks([[a, a._constant(0)._broadcast_to(a.shape)], [corner, d]]).contiguous()
            size *= 2
        return blocks._reshape((*lead, total, total)).shrink([None] * axis + [(0, n)] * 2)

    def solve_triangular(self, b: TensorCore, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Self:
        """X with self @ X = b (X @ self = b unless `left`) for triangular matrices (…, n, n), b (…, n, k).

        Only the given triangle is looked at, and with `unitriangular` its diagonal counts as ones.
        """
        n = self._square("solve_triangular")
        rhs = self._partner(b, "solve_triangular")
        if rhs.ndim < 2 or not same(rhs.shape[-2 if left else -1], n):
            raise ValueError(f"solve_triangular: {self.shape} and {rhs.shape}: matrix and right side differ in size")
        if not left:
            return self.mT.solve_triangular(rhs.mT, upper=not upper, unitriangular=unitriangular).mT
        a, v = self._real()._same_real(rhs)
        t = a.triu() if upper else a.tril()
        t = a._identity(n).bool().where(1.0, t) if unitriangular else t
        return t._solved(t._inverse_triangle(upper), v)._rounded(self, rhs)

    # -- Cholesky -----------------------------------------------------------------------------------------------------
    def cholesky(self, upper: bool = False) -> Self:
        """The lower triangle L with self = L @ Lᵀ (or U with self = Uᵀ @ U) of symmetric, positive definite matrices;
        of self only the lower triangle is looked at. (Golub and Van Loan, section 4.2)"""
        n = self._square("cholesky")
        a = self._real()
        columns, rows = self._iota(n + 1), self._iota(n).unsqueeze(1)
        # both triangles are carried along: a row is read as it lies, where a column has its elements far apart
        state = a.tril().add(a.tril(-1).mT)._with_columns(0.0)

        def advanced(state: Self) -> Self:
            step = state.select(-1, n).select(-1, 0).int()
            column = state._line(step, -1)
            pivot = column.unsqueeze(-1)._line(step, -2).unsqueeze(-1)
            at = step._reshape((*step.shape, 1, 1))
            across = state._line(step, -2).unsqueeze(-2)
            changed = state.sub(column.unsqueeze(-1).div(pivot).mul(across))
            inside = rows.greater(at) & columns.greater(at) & columns.less(n)
            return inside.where(changed, columns.eq(n).where(state.add(1.0), state))

        state = state._repeated(n, advanced)
        factor = state.contiguous()._along(state.ndim - 1, 0, n).tril()
        factor = factor.div(factor.diagonal(0, -2, -1).sqrt().unsqueeze(-2)).tril().contiguous()
        inverse = factor._inverse_triangle()

        def gradients(g: Self) -> list[Self]:
            inner = factor.mT.matmul(g).tril()
            half = a._identity(n).bool().where(inner.mul(0.5), inner)
            whole = inverse.mT.matmul(half).matmul(inverse)
            return [whole.add(whole.mT).mul(0.5)]

        out = factor._with_gradients([a], gradients)._rounded(self)
        return out.mT if upper else out

    def cholesky_solve(self, factor: TensorCore, upper: bool = False) -> Self:
        """X with A @ X = self, for A given by its Cholesky factor."""
        f = self._partner(factor, "cholesky_solve")
        low = f.mT if upper else f
        return low.mT.solve_triangular(low.solve_triangular(self, upper=False), upper=True)

    def cholesky_inverse(self, upper: bool = False) -> Self:
        """The inverse of the matrix whose Cholesky factor this is."""
        low = (self.mT if upper else self)._real()
        low._square("cholesky_inverse")
        inverse = low.tril()._inverse_triangle()
        return inverse.mT.matmul(inverse)._rounded(self)
