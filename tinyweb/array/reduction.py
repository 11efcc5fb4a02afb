"""Methods that fold axes: sums, extrema, where the extremum is, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyweb.array.creation import Creation
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, Size, UOp, size_max, size_prod


class Reduction(Creation):
    """Reductions over one, several or all axes."""

    __slots__ = ()

    def _axes(self, axis: Any, method: str) -> tuple[int, ...]:
        if axis is None:
            return tuple(range(self.ndim))
        axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
        found = tuple(self._axis(a, method=method) for a in axes) if self.ndim else ()
        if len(set(found)) != len(found):
            raise ValueError(f"{method}: axis {axis} names an axis twice")
        return tuple(sorted(found))

    def _reduce(self, op: Ops, axis: Any, keepdim: bool, method: str) -> Self:
        axes = self._axes(axis, method)
        out = self._new(UOp(Ops.REDUCE, self.dtype, (self.uop,), (op, axes))) if axes else self
        return out if keepdim else out._reshape(tuple(s for i, s in enumerate(out.shape) if i not in axes))

    def _count(self, axes: tuple[int, ...]) -> Any:
        n: Size = size_prod(self.shape[a] for a in axes)
        return float(n) if isinstance(n, int) else self._new(n.cast(dtypes.float32))

    def sum(self, axis: Any = None, keepdim: bool = False, dtype: DType | None = None) -> Self:
        """Sum; booleans and small integers are summed as int32 (uint32), half floats in float32."""
        if dtype is None:
            x: Self = self
            if self.dtype.kind in ("bool", "int", "uint") and self.dtype.bits < 32:
                x = self.cast(dtypes.uint32 if self.dtype.kind == "uint" else dtypes.int32)
            elif self.dtype.is_float and self.dtype.bits < 32:
                return self.float()._reduce(Ops.ADD, axis, keepdim, "sum").cast(self.dtype)
        else:
            x = self.cast(dtype)
        return x._reduce(Ops.ADD, axis, keepdim, "sum")

    def prod(self, axis: Any = None, keepdim: bool = False) -> Self:
        x = self.cast(dtypes.int32) if self.dtype.kind in ("bool", "int", "uint") and self.dtype.bits < 32 else self
        return x._reduce(Ops.MUL, axis, keepdim, "prod")

    def max(self, axis: Any = None, keepdim: bool = False) -> Self:
        if any(self.shape[a] == 0 for a in self._axes(axis, "max")):
            raise ValueError(f"max: no elements along the reduced axes of {self.shape}")
        return self._reduce(Ops.MAX, axis, keepdim, "max")

    def min(self, axis: Any = None, keepdim: bool = False) -> Self:
        if self.dtype.is_float:
            return self.neg().max(axis, keepdim).neg()
        return self.bitwise_not().max(axis, keepdim).bitwise_not()

    def mean(self, axis: Any = None, keepdim: bool = False) -> Self:
        x = self if self.dtype.is_float else self.float()
        wide = x.float() if x.dtype.bits < 32 else x
        return wide.sum(axis, keepdim).div(self._count(self._axes(axis, "mean"))).cast(x.dtype)

    def var(self, axis: Any = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The mean squared distance from the mean; in two passes, less what the mean's rounding error adds (Chan, Golub
        and LeVeque 1983). Half floats in float32.
        """
        axes = self._axes(axis, "var")
        x = self if self.dtype.is_float and self.dtype.bits >= 32 else self.float()
        deviation = x.sub(x.mean(axes, keepdim=True))
        n = self._count(axes)
        below = max(n - correction, 0.0) if isinstance(n, float) else n.sub(float(correction)).maximum(0.0)
        excess = deviation.detach().sum(axes, keepdim).square().div(n)
        out = deviation.square().sum(axes, keepdim).sub(excess).div(below)
        return out.cast(self.dtype) if self.dtype.is_float else out

    def std(self, axis: Any = None, keepdim: bool = False, correction: int = 1) -> Self:
        return self.var(axis, keepdim, correction).sqrt()

    def any(self, axis: Any = None, keepdim: bool = False) -> Self:
        return self.bool()._reduce(Ops.MAX, axis, keepdim, "any")

    def all(self, axis: Any = None, keepdim: bool = False) -> Self:
        return self.logical_not().any(axis, keepdim).logical_not()

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The (lowest) index of the maximum along an axis, or in the flattened tensor; a NaN counts as the maximum."""
        if axis is None:
            flat = self.flatten().argmax(0)
            return flat._reshape((1,) * self.ndim) if keepdim else flat
        a = self._axis(axis, method="argmax")
        n = self.shape[a]
        largest = self.max(a, keepdim=True)
        hit = self.equal(largest)
        if self.dtype.is_float:
            hit = hit.logical_or(self.isnan())
        # counting down makes the first of equal maxima the largest count
        place = self._new(UOp(Ops.IOTA, dtypes.int32, (), size_max(n)))
        place = place.shrink([(0, n)])._reshape(tuple(n if i == a else 1 for i in range(self.ndim)))
        countdown = (-place).add(size_max(n))
        best = hit.where(countdown._broadcast_to(self.shape), 0).max(a, keepdim)
        return best.neg().add(size_max(n))

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The (lowest) index of the minimum."""
        return (self.neg() if self.dtype.is_float else self.bitwise_not()).argmax(axis, keepdim)

    def softmax(self, axis: int = -1) -> Self:
        """exp(x) normalised along an axis; stable for large values."""
        e, total, _ = self._softmax_parts(axis, "softmax")
        return e.div(total)

    def log_softmax(self, axis: int = -1) -> Self:
        _, total, shifted = self._softmax_parts(axis, "log_softmax")
        return shifted.sub(total.log())

    def _softmax_parts(self, axis: int, method: str) -> tuple[Self, Self, Self]:
        a = self._axis(axis, method=method)
        x = self if self.dtype.is_float else self.float()
        shifted = x.sub(x.max(a, keepdim=True))
        e = shifted.exp()
        return e, e.sum(a, keepdim=True), shifted

    def logsumexp(self, axis: Any = None, keepdim: bool = False) -> Self:
        axes = self._axes(axis, "logsumexp")
        m = self.max(axes, keepdim=True)
        safe = m.isinf().where(0.0, m)
        out = self.sub(safe).exp().sum(axes, keepdim=True).log().add(safe)
        return out if keepdim else out._reshape(tuple(s for i, s in enumerate(out.shape) if i not in axes))

    def norm(self, axis: Any = None, keepdim: bool = False) -> Self:
        """The Euclidean norm."""
        return self.square().sum(axis, keepdim).sqrt()
