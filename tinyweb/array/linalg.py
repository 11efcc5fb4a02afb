"""Linear algebra: products of matrices."""

from __future__ import annotations

from typing import Self

from tinyweb.array.core import TensorCore
from tinyweb.array.indexing import Indexing
from tinyweb.array.movement import broadcast_shapes
from tinyweb.dtype import DType, dtypes, promote
from tinyweb.graph.schedule.indexing import same


class Linalg(Indexing):
    """matmul and what is made of it."""

    __slots__ = ()

    def matmul(self, other: TensorCore, dtype: DType | None = None) -> Self:
        """Matrix product by NumPy's rules: (…, m, k) @ (…, k, n), vectors as a row or a column. Half floats are
        multiplied and summed in float32.

        `dtype` is the dtype of the result (the operands' common one without it).
        """
        a, b = self, self._new(other.uop)
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

    def _contract(self, weight: Self, dtype: DType | None) -> Self:
        """(…, m, k) and (…, n, k) → (…, m, n)."""
        result = dtype or promote(self.dtype, weight.dtype)
        wide = dtypes.float32 if result.is_float and result.bits < 32 else result
        x = self.cast(wide).unsqueeze(-2)
        w = weight.cast(wide).unsqueeze(-3)
        shape = broadcast_shapes("matmul", x.shape, w.shape)
        return x._broadcast_to(shape).mul(w._broadcast_to(shape)).sum(-1).cast(result)
