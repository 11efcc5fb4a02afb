"""Products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self, TypeVar

from tinyweb.array.core import TensorCore
from tinyweb.array.joining import Joining
from tinyweb.array.moments import Moments
from tinyweb.array.movement import as_shape, broadcast_shapes
from tinyweb.dtype import DTypeLike, dtypes, promote, to_dtype
from tinyweb.graph.ir import size_prod
from tinyweb.graph.schedule.indexing import same

Factor = TypeVar("Factor", bound="Linalg")


class Linalg(Joining, Moments):
    """matmul and what is made of it. Half floats are multiplied and summed in float32."""

    __slots__ = ()

    # -- matrices -----------------------------------------------------------------------------------------------------
    def matmul(self, other: TensorCore, dtype: DTypeLike | None = None) -> Self:
        """Matrix product by NumPy's rules: (…, m, k) @ (…, k, n), vectors as a row or a column.

        `dtype` is the dtype of the result (the operands' common one without it). TypeError for booleans.
        """
        a, b = self, self._partner(other, "matmul")
        if a.ndim == 0 or b.ndim == 0:
            raise ValueError(f"matmul: shapes {a.shape} and {b.shape}: numbers have no matrix product, use *")
        if a.ndim == 1:
            out = a.unsqueeze(0).matmul(b, dtype)
            return out.squeeze(-1 if b.ndim == 1 else -2)
        if b.ndim == 1:
            return a.matmul(b.unsqueeze(1), dtype).squeeze(-1)
        if not same(a.shape[-1], b.shape[-2]):
            raise ValueError(
                f"matmul: shapes {a.shape} and {b.shape}: "
                "the last axis of the first must equal the last but one of the second"
            )
        return a._contract(b.transpose(-1, -2), dtype)

    dot = matmul

    def __matmul__(self, other: TensorCore) -> Self:
        return self.matmul(other)

    def _partner(self, other: Any, method: str) -> Self:
        """The second operand of a product, on this device, not both of them booleans."""
        if not isinstance(other, TensorCore):
            raise TypeError(f"{method}: needs a tensor, got {type(other).__name__}")
        if other.device != self.device:
            raise ValueError(f"{method}: tensors live on {self.device} and {other.device}: move one with .to()")
        if promote(self.dtype, other.dtype) is dtypes.bool:
            raise TypeError(f"{method}: booleans have no product of matrices: cast one")
        return self._new(other.uop)

    def _contract(self, weight: Self, dtype: DTypeLike | None) -> Self:
        """(…, m, k) and (…, n, k) → (…, m, n)."""
        result = promote(self.dtype, weight.dtype) if dtype is None else to_dtype(dtype)
        wide = dtypes.float32 if result.is_float and result.bits < 32 else result
        x = self.cast(wide).unsqueeze(-2)
        w = weight.cast(wide).unsqueeze(-3)
        shape = broadcast_shapes("matmul", x.shape, w.shape)
        return x._broadcast_to(shape).mul(w._broadcast_to(shape)).sum(-1).cast(result)

    def _ranked(self, method: str, *wanted: tuple[Any, int]) -> None:
        """TypeError unless all are tensors, ValueError unless each has so many axes."""
        for t, _ in wanted:
            if not isinstance(t, TensorCore):
                raise TypeError(f"{method}: needs tensors, got {type(t).__name__}")
        if any(t.ndim != n for t, n in wanted):
            shapes = ", ".join(str(t.shape) for t, _ in wanted)
            raise ValueError(f"{method}: needs tensors of {' and '.join(str(n) for _, n in wanted)} axes, got {shapes}")

    def mm(self, mat2: TensorCore) -> Self:
        """The product of two matrices (n, k), (k, m)."""
        self._ranked("mm", (self, 2), (mat2, 2))
        return self.matmul(mat2)

    def bmm(self, mat2: TensorCore) -> Self:
        """Products of matrices in equally long batches: (b, n, k), (b, k, m)."""
        self._ranked("bmm", (self, 3), (mat2, 3))
        if not same(self.shape[0], mat2.shape[0]):
            raise ValueError(f"bmm: {self.shape} and {mat2.shape} differ in the number of matrices")
        return self.matmul(mat2)

    def mv(self, vec: TensorCore) -> Self:
        """A matrix (n, k) times a vector (k,)."""
        self._ranked("mv", (self, 2), (vec, 1))
        return self.matmul(vec)

    def _weighed(self, product: Self, beta: Any, alpha: Any) -> Self:
        """beta · self + alpha · product; with beta 0, NaN in self does not matter."""
        scaled = product if isinstance(alpha, int | float) and alpha == 1 else product.mul(alpha)
        shape = broadcast_shapes("addmm", self.shape, product.shape)
        if len(shape) != product.ndim or not all(map(same, shape, product.shape)):
            raise ValueError(
                f"addmm and its kin: {self.shape} does not broadcast to the product's shape {product.shape}"
            )
        if isinstance(beta, int | float) and beta == 0:
            return scaled.cast(promote(self.dtype, scaled.dtype))
        return scaled.add(self if isinstance(beta, int | float) and beta == 1 else self.mul(beta))

    def addmm(self, mat1: TensorCore, mat2: TensorCore, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta · self + alpha · (mat1 @ mat2)."""
        return self._weighed(self._new(mat1.uop).mm(mat2), beta, alpha)

    def addmv(self, mat: TensorCore, vec: TensorCore, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta · self + alpha · (mat @ vec)."""
        return self._weighed(self._new(mat.uop).mv(vec), beta, alpha)

    def addr(self, vec1: TensorCore, vec2: TensorCore, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta · self + alpha · outer(vec1, vec2)."""
        return self._weighed(self._new(vec1.uop).outer(vec2), beta, alpha)

    def baddbmm(self, batch1: TensorCore, batch2: TensorCore, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta · self + alpha · (batch1 @ batch2), matrix by matrix."""
        return self._weighed(self._new(batch1.uop).bmm(batch2), beta, alpha)

    def addbmm(self, batch1: TensorCore, batch2: TensorCore, *, beta: Any = 1, alpha: Any = 1) -> Self:
        """beta · self + alpha · the sum of batch1 @ batch2 over the batch."""
        return self._weighed(self._partner(batch1, "addbmm").bmm(batch2).sum(0), beta, alpha)

    def matrix_power(self, n: int) -> Self:
        """The product of n copies of square matrices, by repeated squaring; of their inverses for negative n."""
        size = self._square("matrix_power")
        if n < 0:
            inverse: Any = self
            found: Self = inverse.inverse()
            return found.matrix_power(-n)
        out: Self | None = None
        square, left = self, n
        while left:
            if left & 1:
                out = square._same() if out is None else out.matmul(square)
            left >>= 1
            if left:
                square = square.matmul(square)
        return self._identity(size)._broadcast_to(self.shape) if out is None else out

    def _square(self, method: str) -> int:
        """The size of square matrices."""
        if self.ndim < 2 or not same(self.shape[-1], self.shape[-2]):
            raise ValueError(f"{method}: needs square matrices (…, n, n), got {self.shape}")
        return self._fixed(self.ndim - 1, method)

    def _identity(self, n: int, m: int | None = None) -> Self:
        """Ones on the diagonal of an (n, m) matrix of this dtype."""
        rows, columns = self._iota(n).unsqueeze(1), self._iota(n if m is None else m).unsqueeze(0)
        return rows.eq(columns).cast(self.dtype)

    def multi_dot(self: Factor | Sequence[Factor], *others: Any) -> Factor:
        """The product of several matrices (the first and the last may be vectors), in the order that takes the fewest
        multiplications (Cormen et al., Introduction to Algorithms, section 15.2)."""
        parts: list[Any] = [p for o in (self, *others) for p in (o if isinstance(o, list | tuple) else [o])]
        for p in parts:
            if not isinstance(p, TensorCore):
                raise TypeError(f"multi_dot: needs tensors, got {type(p).__name__}")
        if len(parts) < 2:
            raise ValueError(f"multi_dot: needs at least two tensors, got {len(parts)}")
        row, column = parts[0].ndim == 1, parts[-1].ndim == 1
        mats = [
            p.unsqueeze(0) if i == 0 and row else p.unsqueeze(1) if i == len(parts) - 1 and column else p
            for i, p in enumerate(parts)
        ]
        if any(m.ndim != 2 for m in mats) or not all(same(a.shape[1], b.shape[0]) for a, b in pairwise(mats)):
            raise ValueError(f"multi_dot: the shapes {[p.shape for p in parts]} make no product of matrices")
        sizes = [mats[0]._fixed(0, "multi_dot"), *(m._fixed(1, "multi_dot") for m in mats)]
        best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(mats))}
        for span in range(1, len(mats)):
            for i in range(len(mats) - span):
                j = i + span
                best[i, j] = min(
                    (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
                )

        def product(i: int, j: int) -> Any:
            k = best[i, j][1]
            return mats[i] if i == j else product(i, k).matmul(product(k + 1, j))

        out = product(0, len(mats) - 1)
        out = out.squeeze(0) if row else out
        result: Factor = out.squeeze(-1) if column else out
        return result

    # -- vectors ------------------------------------------------------------------------------------------------------
    def vdot(self, other: TensorCore) -> Self:
        """The product of two vectors."""
        self._ranked("vdot", (self, 1), (other, 1))
        return self.matmul(other)

    def vecdot(self, other: TensorCore, axis: int = -1) -> Self:
        """Products of vectors along an axis; the others broadcast."""
        a, b = self._pair(self._partner(other, "vecdot"), "vecdot")
        return a._summed_product(b, [a._axis(axis, method="vecdot")])

    def _summed_product(self, other: Self, axes: Sequence[int]) -> Self:
        """The sum over axes of the product of two tensors of one shape and dtype."""
        wide = dtypes.float32 if self.dtype.is_float and self.dtype.bits < 32 else self.dtype
        return self.cast(wide).mul(other.cast(wide)).sum(tuple(axes)).cast(self.dtype)

    def inner(self, other: TensorCore) -> Self:
        """Sums of products over the last axes of both: shape self.shape[:-1] + other.shape[:-1]."""
        b = self._partner(other, "inner")
        if not self.ndim or not b.ndim:
            return self.mul(b)
        if not same(self.shape[-1], b.shape[-1]):
            raise ValueError(f"inner: {self.shape} and {b.shape} differ in their last axis")
        return self.tensordot(b, ([-1], [-1]))

    def outer(self, vec2: TensorCore) -> Self:
        """Every element of a vector times every element of another."""
        self._ranked("outer", (self, 1), (vec2, 1))
        return self.unsqueeze(1).mul(self._new(vec2.uop).unsqueeze(0))

    ger = outer

    def cross(self, other: TensorCore, axis: int = -1) -> Self:
        """The vector product along an axis of size 3; the others broadcast. Both tensors have the same rank."""
        other = self._partner(other, "cross")
        if self.ndim != other.ndim:
            raise ValueError(f"cross: {self.shape} and {other.shape} must have the same number of axes")
        d = self._axis(axis, method="cross")
        if self.ndim == 0 or not self.shape[d] == other.shape[d] == 3:
            raise ValueError(f"cross: axis {axis} of {self.shape} and {other.shape} must be of size 3")
        a, b = self._pair(other, "cross")
        return a.roll(-1, d).mul(b.roll(-2, d)).sub(a.roll(-2, d).mul(b.roll(-1, d)))

    def kron(self, other: TensorCore) -> Self:
        """The Kronecker product: every element of this tensor times the whole of the other, side by side."""
        b = self._partner(other, "kron") if self.dtype is not dtypes.bool else self._new(other.uop)
        rank = max(self.ndim, b.ndim)
        m, n = (1,) * (rank - self.ndim) + tuple(self.shape), (1,) * (rank - b.ndim) + tuple(b.shape)
        x = self._reshape(tuple(s for i in m for s in (i, 1)))
        y = b._reshape(tuple(s for i in n for s in (1, i)))
        return x.mul(y)._reshape(tuple(size_prod(p) for p in zip(m, n, strict=True)))

    def tensordot(self, other: TensorCore, dims: Any = 2) -> Self:
        """Sums of products over the last `dims` axes of this and the first of the other tensor, or over the axes in
        the two lists `dims`."""
        b = self._partner(other, "tensordot")
        if not isinstance(dims, Sequence):
            (dims,) = as_shape([dims])
            if not 0 <= dims <= min(self.ndim, b.ndim):
                raise ValueError(f"tensordot: {dims} axes of {self.shape} and {b.shape} cannot be summed over")
            mine, yours = list(range(self.ndim - dims, self.ndim)), list(range(dims))
        else:
            if len(dims) != 2 or isinstance(dims, str):
                raise ValueError(f"tensordot: dims must be a number or two lists of axes, got {dims!r}")
            lists = [as_shape([x]) for x in dims]
            mine = [self._axis(x, method="tensordot") for x in lists[0]]
            yours = [b._axis(x, method="tensordot") for x in lists[1]]
        if len(mine) != len(yours) or not all(same(self.shape[i], b.shape[j]) for i, j in zip(mine, yours)):
            raise ValueError(f"tensordot: axes {mine} of {self.shape} and {yours} of {b.shape} must be of equal sizes")
        kept = [i for i in range(self.ndim) if i not in mine]
        others = [j for j in range(b.ndim) if j not in yours]
        shape = tuple(self.shape[i] for i in kept), tuple(b.shape[j] for j in others)
        length = size_prod(self.shape[i] for i in mine)
        x = self.permute(*kept, *mine)._reshape((size_prod(shape[0]), length))
        y = b.permute(*others, *yours)._reshape((size_prod(shape[1]), length))
        return x._contract(y, None)._reshape(shape[0] + shape[1])

    # -- sums and distances -------------------------------------------------------------------------------------------
    def trace(self) -> Self:
        """The sum of the diagonal of a matrix."""
        if self.ndim != 2:
            raise ValueError(f"trace: needs a matrix, got {self.shape}")
        return self.diagonal().sum()

    def cdist(self, x2: TensorCore, p: float = 2.0) -> Self:
        """The p-norms of the differences of every row of (…, m, k) from every row of (…, n, k): (…, m, n).

        Computed from the differences themselves, which is exact where rows are close to each other.
        """
        b = self._partner(x2, "cdist")
        if self.ndim < 2 or b.ndim < 2 or not same(self.shape[-1], b.shape[-1]):
            raise ValueError(f"cdist: needs (…, m, k) and (…, n, k), got {self.shape} and {b.shape}")
        if p < 0:
            raise ValueError(f"cdist: p must be at least 0, got {p}")
        return self._floating().unsqueeze(-2).sub(b.unsqueeze(-3)).vector_norm(p, -1)

    def vector_norm(self, ord: float = 2, axis: Any = None, keepdim: bool = False) -> Self:
        """The p-norm of vectors along axes (of all elements without them): (Σ |x|ᵖ)^(1/p); inf and -inf for the largest
        and the smallest |x|, 0 for how many are not 0. The gradient of the norm of zeros is zero."""
        return self._floating()._norm(ord, axis, keepdim, "vector_norm")
