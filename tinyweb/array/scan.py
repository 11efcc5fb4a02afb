"""Running sums, products and extrema along an axis.

A scan of n elements works on blocks of 16: each element combines those before it in its block, then the results of the
whole blocks are scanned in the same way and combined with the elements of the next block. This takes about 18 n steps
in a few kernels, and every step has the gradient of the operations it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tinyweb.array.core import TensorCore
from tinyweb.array.linalg import Linalg
from tinyweb.dtype import DTypeLike, dtypes, to_dtype
from tinyweb.graph.ir import Ops, size_max

T = TypeVar("T", bound=Linalg)
BLOCK = 16


class Scan(Linalg):
    """Methods whose element i depends on elements 0 … i."""

    __slots__ = ()

    def cumsum(self, axis: int, dtype: DTypeLike | None = None) -> Self:
        """Running sums along an axis. Booleans and small integers are summed as int32, half floats in float32."""
        x = self._summable(dtype)
        return x._accumulate(axis, "cumsum", lambda t, m: m.where(t, 0)._fold(Ops.ADD), lambda a, b: a.add(b), 0).cast(
            dtype or (self.dtype if self.dtype.is_float else x.dtype)
        )

    def cumprod(self, axis: int, dtype: DTypeLike | None = None) -> Self:
        """Running products along an axis; dtypes as in `cumsum`."""
        x = self._summable(dtype)
        return x._accumulate(axis, "cumprod", lambda t, m: m.where(t, 1)._fold(Ops.MUL), lambda a, b: a.mul(b), 1).cast(
            dtype or (self.dtype if self.dtype.is_float else x.dtype)
        )

    def logcumsumexp(self, axis: int) -> Self:
        """Logarithms of running sums of exponentials, without overflow."""
        x = self._floating()
        wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x

        def direct(t: Self, mask: Self) -> Self:
            top = mask.where(t, -math.inf)._fold(Ops.MAX, keepdim=True)
            top = top.isfinite().where(top, 0.0).detach()
            total = mask.where(t.sub(top), -math.inf).exp()._fold(Ops.ADD)
            none = total.eq(0)
            return none.where(-math.inf, none.where(1.0, total).log().add(top._reshape(total.shape)))

        return wide._accumulate(axis, "logcumsumexp", direct, lambda a, b: a.logaddexp(b), -math.inf).cast(x.dtype)

    def cummax(self, axis: int) -> tuple[Self, Self]:
        """Running maxima and where they are (int32): the last of equal ones, as in PyTorch; NaN stays."""
        a = self._axis(axis, method="cummax")
        low = -math.inf if self.dtype.is_float else self.dtype.min
        values = self._running_max(a, "cummax", low)
        place = self._places(a)
        reached = self.eq(values).logical_or(self.isnan()) if self.dtype.is_float else self.eq(values)
        index = reached.where(place, -1)._running_max(a, "cummax", -1)
        return values._with_gradients([self], lambda g: [_collect(g, index, a)]), index

    def cummin(self, axis: int) -> tuple[Self, Self]:
        """Running minima and where they are (int32): the last of equal ones, as in PyTorch; NaN stays."""
        if self.dtype.is_float:
            values, index = self.neg().cummax(axis)
            return values.neg(), index
        values, index = self.bitwise_not().cummax(axis)
        return values.bitwise_not(), index

    def _running_max(self, axis: int, method: str, low: Any) -> Self:
        return self._accumulate(
            axis, method, lambda t, m: m.where(t, t._constant(low))._fold(Ops.MAX), lambda a, b: a.maximum(b), low
        )

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

    def _fold(self, op: Ops, keepdim: bool = False) -> Self:
        return self._reduce(op, -1, keepdim, "scan")

    def _places(self, axis: int) -> Self:
        """The position along an axis, in this tensor's shape, as int32."""
        n = self.shape[axis] if self.ndim else 1
        return self._iota(n)._reshape(tuple(n if i == axis else 1 for i in range(self.ndim)))._broadcast_to(self.shape)

    def _accumulate(
        self,
        axis: int,
        method: str,
        direct: Callable[[Self, Self], Self],
        combine: Callable[[Self, Self], Self],
        identity: float,
    ) -> Self:
        """direct(x (…, n, m), mask) folds the last axis where the mask holds; combine joins two results."""
        a = self._axis(axis, method=method)
        if self.ndim == 0:
            return self._reshape((1,))._accumulate(0, method, direct, combine, identity)._reshape(())
        last = [*(i for i in range(self.ndim) if i != a), a]
        scanned = self.permute(last)._accumulate_last(direct, combine, identity)
        return scanned.permute([last.index(i) for i in range(self.ndim)])

    def _accumulate_last(
        self, direct: Callable[[Self, Self], Self], combine: Callable[[Self, Self], Self], identity: float
    ) -> Self:
        n = self.shape[-1]
        if not isinstance(n, int) or n <= 2 * BLOCK:
            if n == 0:
                return self
            place = self._iota(n)
            mask = place._reshape((1, n)).le(place._reshape((n, 1)))
            wide = (*self.shape, n)
            return direct(self.unsqueeze(-2)._broadcast_to(wide), mask._broadcast_to(wide))
        blocks = -(-n // BLOCK)
        front = [None] * (self.ndim - 1)
        rows = self.pad([*front, (0, blocks * BLOCK - n)])._reshape((*self.shape[:-1], blocks, BLOCK))
        within = rows._accumulate_last(direct, combine, identity)
        totals = within._along(within.ndim - 1, BLOCK - 1, BLOCK)._reshape((*self.shape[:-1], blocks))
        whole = totals._along(totals.ndim - 1, 0, blocks - 1)._accumulate_last(direct, combine, identity)
        before = whole.pad([*front, (1, 0)], value=identity).unsqueeze(-1)._broadcast_to(within.shape)
        joined = combine(before, within)._reshape((*self.shape[:-1], blocks * BLOCK))
        return joined._along(joined.ndim - 1, 0, n)


def _collect(g: T, index: T, axis: int) -> T:
    """Σ over i of g[i] where index[i] is j, for every j along an axis."""
    if g.ndim == 0:
        return g
    n = g.shape[axis]
    columns = g._iota(n)._reshape(tuple(n if i == axis + 1 else 1 for i in range(g.ndim + 1)))
    return index.unsqueeze(axis + 1).eq(columns).where(g.unsqueeze(axis + 1), 0).sum(axis)
