"""Running sums, products and extrema along an axis.

A scan of n elements takes n steps in order along its axis (`graph/schedule/ordered.py`), and so does its gradient.
"""

from __future__ import annotations

import math
from typing import Self, TypeVar

from tinyweb.array.core import TensorCore
from tinyweb.array.joining import Joining
from tinyweb.array.reduction import Reduction
from tinyweb.dtype import DTypeLike, dtypes, to_dtype
from tinyweb.graph.ir import Ops, UOp, size_max

T = TypeVar("T", bound="Scan")
BLOCK = 16


class Scan(Joining, Reduction):
    """Methods whose element i depends on elements 0 … i."""

    __slots__ = ()

    def cumsum(self, axis: int, dtype: DTypeLike | None = None) -> Self:
        """Running sums along an axis. Booleans and small integers are summed as int32, half floats in float32."""
        x = self._summable(dtype)
        return x._scan(Ops.ADD, axis, "cumsum").cast(dtype or (self.dtype if self.dtype.is_float else x.dtype))

    def cumprod(self, axis: int, dtype: DTypeLike | None = None) -> Self:
        """Running products along an axis; dtypes as in `cumsum`."""
        x = self._summable(dtype)
        return x._scan(Ops.MUL, axis, "cumprod").cast(dtype or (self.dtype if self.dtype.is_float else x.dtype))

    def logcumsumexp(self, axis: int) -> Self:
        """Logarithms of running sums of exponentials, without overflow."""
        a = self._axis(axis, method="logcumsumexp")
        x = self._floating()
        wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
        if not wide.shape:
            return self._reshape((1,)).logcumsumexp(0)._reshape(())
        # sums relative to the largest so far: where x is no larger, y[i] = y[i - 1] + exp(x[i] - top[i - 1]); else
        # y[i] = y[i - 1] · exp(top[i - 1] - x[i]) + 1
        top, n, fixed = wide.detach()._running_max(a), size_max(wide.shape[a]), wide.detach()
        before = top._along(a, 0, max(n - 1, 0))._pad_along(a, min(n, 1), 0)
        before = self._places(a).greater(0).where(before, -math.inf)
        less = fixed.sub(before.isfinite().where(before, 0.0)).abs().neg().exp()  # infinities have no distance
        grows = fixed.greater(before)
        each = grows.where(1.0, less)._with_gradients(
            [wide], lambda g: [g.mul(wide.sub(top.isfinite().where(top, 0.0)).exp())]
        )
        factors = grows.where(less, 1.0)
        total = wide._new(UOp(Ops.SCAN, wide.dtype, (each.uop, factors.uop), (Ops.MULADD, a)))
        return total.eq(0).where(1.0, total).log().add(top).cast(x.dtype)

    def cummax(self, axis: int) -> tuple[Self, Self]:
        """Running maxima and where they are (int32): the last of equal ones, as in PyTorch; NaN stays."""
        a = self._axis(axis, method="cummax")
        values = self.detach()._running_max(a)
        place = self._places(a)
        reached = self.eq(values).logical_or(self.isnan()) if self.dtype.is_float else self.eq(values)
        index = reached.where(place, -1).contiguous()._running_max(a)
        return values._with_gradients([self], lambda g: [_collect(g, index, a)]), index

    def cummin(self, axis: int) -> tuple[Self, Self]:
        """Running minima and where they are (int32): the last of equal ones, as in PyTorch; NaN stays."""
        if self.dtype.is_float:
            values, index = self.neg().cummax(axis)
            return values.neg(), index
        values, index = self.bitwise_not().cummax(axis)
        return values.bitwise_not(), index

    def _running_max(self, axis: int) -> Self:
        return self._scan(Ops.MAX, axis, "cummax")

    def _scan(self, op: Ops, axis: int, method: str) -> Self:
        """Each element combined with all before it along an axis."""
        a = self._axis(axis, method=method)
        x = self if self.shape else self._reshape((1,))
        return self._new(UOp(Ops.SCAN, x.dtype, (x.uop,), (op, a)))._reshape(self.shape)

    # -- differences --------------------------------------------------------------------------------------------------
    def diff(
        self, n: int = 1, axis: int = -1, prepend: TensorCore | None = None, append: TensorCore | None = None
    ) -> Self:
        """n-th differences of neighbours along an axis, of booleans whether they differ; with the tensors `prepend` and
        `append` joined to it first."""
        if not isinstance(n, int) or n < 0:
            raise ValueError(f"diff: the order must be a whole number ≥ 0, got {n!r}")
        if self.ndim == 0:
            raise ValueError("diff: needs a tensor with at least one axis")
        a = self._axis(axis, method="diff")
        around = [self._new(t.uop) for t in (prepend, self, append) if t is not None]
        x = self._new(around[0].cat(*around[1:], axis=a).uop)
        for _ in range(n):
            size = size_max(x.shape[a])
            if size == 0:
                break
            later, earlier = x._along(a, 1, size), x._along(a, 0, size - 1)
            x = later.ne(earlier) if x.dtype is dtypes.bool else later.sub(earlier)
        return x

    def trapezoid(self, x: TensorCore | None = None, dx: float = 1.0, axis: int = -1) -> Self:
        """The integral along an axis by the trapezoidal rule, over points `x` or points `dx` apart."""
        return self._trapezoids(x, dx, axis, "trapezoid").sum(axis)

    def cumulative_trapezoid(self, x: TensorCore | None = None, dx: float = 1.0, axis: int = -1) -> Self:
        """Running integrals along an axis by the trapezoidal rule, over points `x` or points `dx` apart."""
        return self._trapezoids(x, dx, axis, "cumulative_trapezoid").cumsum(axis)

    def _trapezoids(self, x: TensorCore | None, dx: float, axis: int, method: str) -> Self:
        a = self._axis(axis, method=method)
        if not self.shape:
            raise ValueError(f"{method}: a 0-d tensor has no axis to integrate along")
        n = size_max(self.shape[a])
        pairs = self._along(a, min(1, n), n).add(self._along(a, 0, max(n - 1, 0)))
        if x is None:
            return pairs.mul(dx / 2)
        points = self._new(x.uop)
        if points.ndim == 1:
            points = points._reshape(tuple(n if i == a else 1 for i in range(self.ndim)))
        return pairs.mul(points.diff(axis=a)).mul(0.5)

    # -- how --------------------------------------------------------------------------------------------------------
    def _summable(self, dtype: DTypeLike | None) -> Self:
        if dtype is not None:
            dtype = to_dtype(dtype)
            return self.cast(dtype if not dtype.is_float or dtype.bits >= 32 else dtypes.float32)
        if self.dtype.is_float:
            return self.cast(dtypes.float32) if self.dtype.bits < 32 else self
        small = dtypes.uint32 if self.dtype.kind == "uint" else dtypes.int32
        return self.cast(small) if self.dtype.bits < 32 else self

    def _places(self, axis: int) -> Self:
        """The position along an axis, in this tensor's shape, as int32."""
        n = self.shape[axis] if self.ndim else 1
        return self._iota(n)._reshape(tuple(n if i == axis else 1 for i in range(self.ndim)))._broadcast_to(self.shape)


def _collect(g: T, index: T, axis: int) -> T:
    """Σ over i of g[i] where index[i] is j, for every j along an axis."""
    if g.ndim == 0:
        return g
    last = [*(i for i in range(g.ndim) if i != axis), axis]
    x, picks = g.permute(last), index.permute(last)
    zeros = x._new(UOp.const(0, x.dtype))._broadcast_to(x.shape)
    total = x._new(UOp(Ops.SCATTER, x.dtype, (zeros.uop, picks.uop, x.uop), (g.ndim - 1, Ops.ADD)))
    return total.permute([last.index(i) for i in range(g.ndim)])
