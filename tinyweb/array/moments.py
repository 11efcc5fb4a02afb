"""Means, deviations, norms, and sums of exponentials."""

from __future__ import annotations

import math
from typing import Any, Self

from tinyweb.array.creation import Creation
from tinyweb.array.reduction import Reduction
from tinyweb.dtype import DTypeLike, dtypes
from tinyweb.graph.ir import size_max


class Moments(Reduction, Creation):
    """Statistics along axes. Half floats are computed in float32."""

    __slots__ = ()

    # -- means --------------------------------------------------------------------------------------------------------
    def mean(self, axis: Any = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The mean. TypeError for integers without a float `dtype`."""
        x = self._float_only("mean", dtype)
        wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
        return wide.sum(axis, keepdim).div(self._count(self._axes(axis, "mean"))).cast(x.dtype)

    def nanmean(self, axis: Any = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The mean of what is not NaN. TypeError for integers without a float `dtype`."""
        x = self._float_only("nanmean", dtype)
        wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
        count = wide.isnan().logical_not().sum(axis, keepdim)
        return wide.nansum(axis, keepdim).div(count.cast(wide.dtype)).cast(x.dtype)

    def _float_only(self, method: str, dtype: DTypeLike | None = None) -> Self:
        x = self if dtype is None else self.cast(dtype)
        if not x.dtype.is_float:
            raise TypeError(f"{method}: needs a float dtype, got {x.dtype.name}: cast first")
        return x

    def var(
        self, axis: Any = None, keepdim: bool = False, correction: float | None = 1, unbiased: bool | None = None
    ) -> Self:
        """The mean squared distance from the mean, the count lessened by `correction` (1 or 0 for `unbiased` true or
        false); in two passes, less what the mean's rounding error adds (Chan, Golub and LeVeque 1983). TypeError for
        integers."""
        return self._variance(axis, keepdim, correction, unbiased, "var")[0].cast(self.dtype)

    def std(
        self, axis: Any = None, keepdim: bool = False, correction: float | None = 1, unbiased: bool | None = None
    ) -> Self:
        """The square root of `var`; its gradient is 0 where all elements are equal."""
        return self._variance(axis, keepdim, correction, unbiased, "std")[0]._root_of_sum().cast(self.dtype)

    def var_mean(
        self, axis: Any = None, keepdim: bool = False, correction: float | None = 1, unbiased: bool | None = None
    ) -> tuple[Self, Self]:
        """(variance, mean): see `var`."""
        var, mean = self._variance(axis, keepdim, correction, unbiased, "var_mean")
        return var.cast(self.dtype), mean.cast(self.dtype)

    def std_mean(
        self, axis: Any = None, keepdim: bool = False, correction: float | None = 1, unbiased: bool | None = None
    ) -> tuple[Self, Self]:
        """(standard deviation, mean): see `std`."""
        var, mean = self._variance(axis, keepdim, correction, unbiased, "std_mean")
        return var._root_of_sum().cast(self.dtype), mean.cast(self.dtype)

    def _variance(
        self, axis: Any, keepdim: bool, correction: float | None, unbiased: bool | None, method: str
    ) -> tuple[Self, Self]:
        x = self._float_only(method)
        x = x if x.dtype.bits >= 32 else x.cast(dtypes.float32)
        axes = self._axes(axis, method)
        less = (1 if correction is None else correction) if unbiased is None else float(unbiased)
        mean = x.mean(axes, keepdim=True)
        deviation = x.sub(mean)
        n = self._count(axes)
        below = max(n - less, 0.0) if isinstance(n, float) else n.sub(float(less)).maximum(0.0)
        excess = deviation.detach().sum(axes, keepdim).square().div(n)
        var = deviation.square().sum(axes, keepdim).sub(excess).div(below)
        return var, mean if keepdim else mean._without(axes)

    def cov(self, correction: int = 1) -> Self:
        """The covariances of the rows of a matrix (v, n), n observations of v variables: (v, v); of a vector or
        one row its variance."""
        if self.ndim > 2:
            raise ValueError(f"cov: needs a vector or a matrix, got {self.shape}")
        x = self._float_only("cov") if self.ndim == 2 else self._float_only("cov")._reshape((1, self.numel()))
        centred = x.sub(x.mean(1, keepdim=True))
        count = x._count((1,))
        below = max(count - correction, 0.0) if isinstance(count, float) else count.sub(float(correction))
        products = centred.unsqueeze(0).mul(centred.unsqueeze(1)).sum(-1).div(below)
        return products._reshape(()) if products.shape == (1, 1) else products

    def corrcoef(self) -> Self:
        """The correlation coefficients of the rows of a matrix (v, n): (v, v), between -1 and 1; of a vector 1."""
        products = self.cov()
        if not products.ndim:
            return products.div(products)
        place = self.arange(size_max(products.shape[0]), device=self.device)
        own = place.unsqueeze(0).eq(place.unsqueeze(1)).where(products, 0.0).sum(0).sqrt()
        # in memory: a gradient compares the very numbers that were cut off, not quotients that are rounded otherwise
        return products.div(own.unsqueeze(0)).div(own.unsqueeze(1)).contiguous().clamp(-1.0, 1.0)

    # -- norms --------------------------------------------------------------------------------------------------------
    def norm(
        self, p: float | str | None = 2, axis: Any = None, keepdim: bool = False, dtype: DTypeLike | None = None
    ) -> Self:
        """The p-norm of vectors: (Σ|x|ᵖ)^(1/p), for p = ±inf the largest or smallest |x|, for 0 how many are not 0;
        "fro" and None are 2. At 0 the gradient is 0. TypeError for integers; ValueError for a negative or infinite p
        of no elements."""
        return self._float_only("norm", dtype)._norm(2 if p is None or p == "fro" else p, axis, keepdim, "norm")

    def _norm(self, p: float | str, axis: Any, keepdim: bool, method: str) -> Self:
        """`norm` of floats, summed in at least 32 bits."""
        if not isinstance(p, int | float) or math.isnan(p):
            raise ValueError(f'{method}: p must be a number or "fro", got {p!r}: for matrices see matrix_norm')
        axes = self._axes(axis, method)
        if p < 0 or p == math.inf:
            self._not_empty(axes, method)
        result = self.dtype
        x = self.cast(dtypes.float32) if result.bits < 32 else self
        if p == 2:
            out = x.square().sum(axes, keepdim)._root_of_sum()
        elif p == 1:
            out = x.abs().sum(axes, keepdim)
        elif math.isinf(p):
            out = x.abs().max(axes, keepdim) if p > 0 else x.abs().min(axes, keepdim)
        elif p == 0:
            # not x ≠ 0: what it is made of depends on x, with a gradient of 0
            out = x.isnan().where(1.0, x.sign().abs()).sum(axes, keepdim)
        else:
            size = x.abs()
            none = size.eq(0)
            # powers of 0 apart: their gradients may be infinite
            powers = none.where(0.0 if p > 0 else math.inf, none.where(1.0, size).pow(p))
            total = powers.sum(axes, keepdim)
            zero = total.eq(0 if p > 0 else math.inf)
            out = zero.where(0.0, zero.where(1.0, total).pow(1 / p))
        return out.cast(result)

    def dist(self, other: Any, p: float = 2) -> Self:
        """The p-norm of the difference of two tensors."""
        return self.sub(other).norm(p)

    # -- exponentials -------------------------------------------------------------------------------------------------
    def softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
        """eˣ normalised along an axis; stable for large values. Integers as float32."""
        e, total, _ = self._softmax_parts(axis, dtype, "softmax")
        return e.div(total)

    def log_softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
        """log(softmax(x)), exact where softmax is close to 0."""
        _, total, shifted = self._softmax_parts(axis, dtype, "log_softmax")
        return shifted.sub(total.log())

    def softmin(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
        """softmax(-x)."""
        return self.neg().softmax(axis, dtype)

    def _softmax_parts(self, axis: int, dtype: DTypeLike | None, method: str) -> tuple[Self, Self, Self]:
        a = self._axis(axis, method=method)
        x = (self if dtype is None else self.cast(dtype))._floating()
        if self.ndim and self.shape[a] == 0:
            return x, x.sum(a, keepdim=True), x
        # the result does not depend on what is subtracted
        shifted = x.sub(x.detach().max(a, keepdim=True))
        e = shifted.exp()
        return e, e.sum(a, keepdim=True), shifted

    def logsumexp(self, axis: Any = None, keepdim: bool = False) -> Self:
        """log(Σ eˣ) without overflow; -inf where there is nothing to sum. Integers as float32."""
        axes = self._axes(axis, "logsumexp")
        x = self._floating()
        if any(x.shape[a] == 0 for a in axes):
            return x.sum(axes, keepdim).log()
        top = x.detach().max(axes, keepdim=True)
        top = top.isinf().where(0.0, top)
        total = x.sub(top).exp().sum(axes, keepdim=True)
        none = total.eq(0)
        out = none.where(-math.inf, none.where(1.0, total).log().add(top))
        return out if keepdim else out._without(axes)
