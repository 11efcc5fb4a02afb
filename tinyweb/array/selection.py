"""What is made of sorted elements: order statistics, bisection, counts, and drawing without a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import numpy as np

from tinyweb.array.core import TensorCore
from tinyweb.array.gathering import host_value
from tinyweb.array.random import Random
from tinyweb.array.sorting import Sorting
from tinyweb.array.threefry import Generator
from tinyweb.dtype import dtypes, promote
from tinyweb.graph.ir import Ops, UOp, size_max

Counts = TypeVar("Counts", bound=Sorting)
INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


class Selection(Random, Sorting):
    """Medians, quantiles, modes, histograms, unique elements, permutations and samples."""

    __slots__ = ()

    # -- order statistics ---------------------------------------------------------------------------------------------
    def median(self, axis: int | None = None, keepdim: bool = False) -> Any:
        """The lower of the two middle elements, NaN if there is one: of all elements, or (values, positions) along an
        axis. ValueError where there are none."""
        return self._middle(axis, keepdim, "median", skip_nan=False)

    def nanmedian(self, axis: int | None = None, keepdim: bool = False) -> Any:
        """`median` of what is not NaN; NaN where nothing is left."""
        return self._middle(axis, keepdim, "nanmedian", skip_nan=True)

    def _middle(self, axis: int | None, keepdim: bool, method: str, skip_nan: bool) -> Any:
        if axis is None:
            value = self.flatten()._middle(0, False, method, skip_nan)[0]
            return value._reshape((1,) * self.ndim) if keepdim else value
        x = self if self.ndim else self._reshape((1,))
        a = self._axis(axis, method=method)
        n = x._fixed(a, method)
        if n == 0:
            raise ValueError(f"{method}: axis {axis} of {self.shape} has no elements")
        at = x.full_like((n - 1) // 2, dtypes.int32)._along(a, 0, 1)
        if x.dtype.is_float:
            if skip_nan:
                at = x.isnan().sum(a, keepdim=True).neg().add(n - 1).maximum(0).bitwise_right_shift(1)
            else:
                at = x.detach().max(a, keepdim=True).isnan().where(n - 1, at)
        found = x._order_statistic(a, at)
        if not self.ndim:
            return found[0]._reshape(()), found[1]._reshape(())
        return found if keepdim else (found[0].squeeze(a), found[1].squeeze(a))

    def quantile(self, q: Any, axis: int | None = None, keepdim: bool = False, interpolation: str = "linear") -> Self:
        """The q-th quantiles (numbers in [0, 1], one or a vector of them: the first axis of the result), of all
        elements or along an axis; NaN where there is one. `interpolation` between elements: "linear", "lower",
        "higher", "nearest" or "midpoint"."""
        return self._quantiles(q, axis, keepdim, interpolation, "quantile", skip_nan=False)

    def nanquantile(
        self, q: Any, axis: int | None = None, keepdim: bool = False, interpolation: str = "linear"
    ) -> Self:
        """`quantile` of what is not NaN."""
        return self._quantiles(q, axis, keepdim, interpolation, "nanquantile", skip_nan=True)

    def _quantiles(
        self, q: Any, axis: int | None, keepdim: bool, interpolation: str, method: str, skip_nan: bool
    ) -> Self:
        if not self.dtype.is_float:
            raise TypeError(f"{method}: needs a float dtype, got {self.dtype.name}")
        if interpolation not in INTERPOLATIONS:
            raise ValueError(
                f"{method}: interpolation must be one of {', '.join(INTERPOLATIONS)}, got {interpolation!r}"
            )
        wanted, known = self._operand(q, method), not isinstance(q, TensorCore | UOp)
        if known and not all(0 <= x <= 1 for x in np.ravel(q)):
            raise ValueError(f"{method}: q must be within [0, 1], got {q}")
        wanted = wanted.cast(self.dtype if self.dtype.bits >= 32 else dtypes.float32)
        if wanted.ndim > 1:
            raise ValueError(f"{method}: q must be a number or a vector, got shape {wanted.shape}")
        a = 0 if axis is None else self._axis(axis, method=method)
        x = self.flatten() if axis is None or not self.ndim else self
        n = x._fixed(a, method)
        if n == 0:
            raise ValueError(f"{method}: axis {axis} of {self.shape} has no elements")
        values = x.sort(a)[0].transpose(a, -1)
        nans = values.isnan().sum(-1, keepdim=True)
        last = nans.neg().add(n - 1).maximum(0) if skip_nan else nans.full_like(n - 1)
        place = last.cast(wanted.dtype).mul(wanted.flatten()).detach()  # (…, q)
        low, high = place.floor(), place.ceil()
        if interpolation == "nearest":
            low = high = place.round()
        elif interpolation != "linear":
            low, high = {"lower": (low, low), "higher": (high, high), "midpoint": (low, high)}[interpolation]
        out = values._gather(values.ndim - 1, low.int())
        if low is not high:  # else there is nothing between two infinities
            second = values._gather(values.ndim - 1, high.int())
            part = place.sub(low) if interpolation == "linear" else low.lt(high).where(0.5, low.mul(0.0))
            out = out.lerp(second, part.cast(self.dtype))
        if not skip_nan:
            out = nans.ne(0).where(float("nan"), out)
        # the quantiles to the front, the axis to its place
        rest = out.transpose(a, -1)
        front = rest.permute(a, *(i for i in range(rest.ndim) if i != a))
        if keepdim:
            shape = (1,) * self.ndim if axis is None else tuple(1 if i == a else s for i, s in enumerate(self.shape))
            front = front._reshape((front.shape[0], *shape))
        return front if wanted.ndim else front._reshape(front.shape[1:])

    def mode(self, axis: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
        """(values, positions) of the most frequent elements along an axis: of equally frequent ones the smallest."""
        a = self._axis(axis, method="mode")
        if not self.ndim:
            return self._same(), self.full_like(0, dtypes.int32)
        n = self._fixed(a, "mode")
        if n == 0:
            raise ValueError(f"mode: axis {axis} of {self.shape} has no elements")
        turned = self.transpose(a, -1)
        keys, bits = turned._rows()._order_keys(True)
        if keys._is_short(bits):
            keys = keys.contiguous()
            often = keys.unsqueeze(-1).eq(keys.unsqueeze(-2)).sum(-1).contiguous()
            most = often.eq(often.max(-1, keepdim=True))
            least = most.where(keys, 0).max(-1, keepdim=True)  # in descending order its key is the largest
            place = most.logical_and(keys.eq(least)).where(keys._iota(n), -1).max(-1, keepdim=True)
            at = place._reshape((*turned.shape[:-1], 1)).transpose(a, -1)
            found = self._gather(a, at), at
            return found if keepdim else (found[0].squeeze(a), found[1].squeeze(a))
        values, order = self.sort(a)
        place = values._places(a)
        begins = values._along(a, 1, n).ne(values._along(a, 0, n - 1))._pad_along(a, 1, 0)
        run = place.sub(begins.where(place, 0)._running_max(a))
        at = run.argmax(a, keepdim=True)
        found = values._gather(a, at), order._gather(a, at)
        return found if keepdim else (found[0].squeeze(a), found[1].squeeze(a))

    # -- bisection ----------------------------------------------------------------------------------------------------
    def searchsorted(self, values: Any, right: bool = False, side: str | None = None) -> Self:
        """Where `values` belong in this sorted tensor (int32): before equal elements, with `right` (side="right")
        behind them. A vector serves values of any shape; else all but the last axes must be equal."""
        if side not in (None, "left", "right") or (side == "left" and right):
            raise ValueError(f'searchsorted: side must be "left" or "right" and agree with right, got {side!r}')
        after = right or side == "right"
        v = self._operand(values, "searchsorted")
        if self.ndim == 0 or (self.ndim > 1 and self.shape[:-1] != v.shape[:-1]):
            raise ValueError(f"searchsorted: {self.shape} is no vector, and {v.shape} differs before the last axis")
        dtype = promote(self.dtype, v.dtype)
        line, wanted = self.cast(dtype).detach(), v.cast(dtype).detach()
        return line._insertion(wanted, after)

    def bucketize(self, boundaries: Any, right: bool = False) -> Self:
        """Which interval between the sorted vector `boundaries` each element lies in (int32): see `searchsorted`."""
        edges = self._operand(boundaries, "bucketize")
        if edges.ndim != 1:
            raise ValueError(f"bucketize: boundaries must be a vector, got shape {edges.shape}")
        return edges.searchsorted(self, right)

    # -- counting -----------------------------------------------------------------------------------------------------
    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:
        """How many elements lie in each of `bins` equal intervals of [min, max] (of the elements' own range where both
        are equal), in this dtype; what lies outside is not counted."""
        return self._histogram(bins, None if min == max else (min, max), "histc")[0]

    def histogram(self, bins: int = 100, range: tuple[float, float] | None = None) -> tuple[Self, Self]:
        """(counts, edges) of `bins` equal intervals of `range` (of the elements' own range without it)."""
        return self._histogram(bins, range, "histogram")

    def _histogram(self, bins: int, range: tuple[float, float] | None, method: str) -> tuple[Self, Self]:
        if not isinstance(bins, int) or bins < 1:
            raise ValueError(f"{method}: the number of bins must be a whole number ≥ 1, got {bins!r}")
        if range is not None and (not isinstance(range, Sequence) or len(range) != 2 or not range[0] < range[1]):
            raise ValueError(f"{method}: the range must have min < max, got {range}")
        x = self._floating().flatten().detach()
        if range is not None or x.shape[0] == 0:
            low, high = (x._constant(v) for v in range or (0.0, 1.0))
        else:
            low, high = x.min(), x.max()
            flat = low.eq(high)
            low, high = (
                flat.where(low.sub(0.5 if method == "histogram" else 1), low),
                flat.where(high.add(0.5 if method == "histogram" else 1), high),
            )
        inside = x.ge(low).logical_and(x.le(high))
        bin = x.sub(low).mul(bins).div(high.sub(low)).floor().clamp(0, bins - 1).int()
        counts = _counted(inside.where(bin, -1), x.full_like(1, dtypes.int32), bins)
        edges = x._iota(bins + 1).cast(x.dtype).mul(high.sub(low)).div(float(bins)).add(low)
        return counts.cast(self.dtype), edges

    def bincount(self, weights: TensorCore | None = None, minlength: int = 0) -> Self:
        """How often (or with how much weight) each number 0, 1, … occurs in a vector of integers ≥ 0. Its largest
        element is read on the host."""
        if not self.dtype.is_int or self.ndim != 1:
            raise TypeError(f"bincount: needs a vector of integers, got {self.shape} of {self.dtype.name}")
        if minlength < 0:
            raise ValueError(f"bincount: minlength must not be negative, got {minlength}")
        seen = host_value(self, "bincount")
        if seen.size and seen.min() < 0:
            raise ValueError("bincount: the elements must not be negative")
        count = max(int(seen.max()) + 1 if seen.size else 0, minlength)
        index = self.cast(dtypes.int32) if self.dtype.bits < 32 else self
        if weights is None:
            return _counted(index, index.full_like(1, dtypes.int32), count)
        if weights.shape != self.shape:
            raise ValueError(f"bincount: weights {weights.shape} must have the shape {self.shape}")
        values = self._new(weights.uop)
        wide = values._summable(None)
        return _counted(index, wide, count).cast(values.dtype if values.dtype.is_float else wide.dtype)

    def isin(self, elements: Any, invert: bool = False) -> Self:
        """Whether each element is one of `elements`."""
        among = self._operand(elements, "isin").flatten()
        found = self.unsqueeze(-1).eq(among).any(-1)
        return found.logical_not() if invert else found

    def unique(
        self, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None
    ) -> Any:
        """The different elements (or slices along an axis) in order, found on the host; with them, where asked for, at
        which of them each element is, and how often each occurs (int32)."""
        if axis is not None:
            axis = self._axis(axis, method="unique")
        host = host_value(self, "unique")
        found = np.unique(host, return_inverse=True, return_counts=True, axis=axis if self.ndim else None)
        inverse = found[1].reshape(found[1].shape if axis is not None else host.shape)
        return self._found(found[0], inverse, found[2], return_inverse, return_counts)

    def unique_consecutive(
        self, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None
    ) -> Any:
        """The first of every run of equal elements (or slices along an axis), found on the host; see `unique`."""
        if axis is not None:
            axis = self.atleast_1d()._axis(axis, method="unique_consecutive")
        x = np.atleast_1d(host_value(self, "unique_consecutive"))
        rows = x.reshape(-1, 1) if axis is None else np.moveaxis(x, axis, 0)
        flat = rows.reshape(rows.shape[0], math.prod(rows.shape[1:]))
        begins = np.ones(len(rows), bool)
        begins[1:] = (flat[1:] != flat[:-1]).any(1)
        starts = np.flatnonzero(begins)
        values = rows[starts].reshape(-1) if axis is None else np.moveaxis(rows[starts], 0, axis)
        inverse: Any = np.cumsum(begins) - 1
        inverse = inverse.reshape(self.shape) if axis is None else inverse
        counts = np.diff(np.append(starts, len(rows)))
        return self._found(values, inverse, counts, return_inverse, return_counts)

    def _found(self, values: Any, inverse: Any, counts: Any, return_inverse: bool, return_counts: bool) -> Any:
        parts = [(values, self.dtype)]
        parts += [(inverse, dtypes.int32)] if return_inverse else []
        parts += [(counts, dtypes.int32)] if return_counts else []
        out = tuple(type(self)(x, dtype=dtype, device=self.device) for x, dtype in parts)
        return out[0] if len(out) == 1 else out

    # -- drawing ------------------------------------------------------------------------------------------------------
    @classmethod
    def randperm(cls, n: int, device: str | None = None, generator: Generator | None = None) -> Self:
        """The numbers 0 … n - 1 (int32) in random order: the order of random words."""
        if not isinstance(n, int) or n < 0:
            raise ValueError(f"randperm: needs a whole number ≥ 0, got {n!r}")
        return cls._words((n,), generator, device)[0].argsort(0)

    def multinomial(self, num_samples: int = 1, replacement: bool = False, generator: Generator | None = None) -> Self:
        """Positions (int32) drawn with probabilities proportional to the elements of the last axis: (samples) of a
        vector, (rows, samples) of a matrix.

        With replacement by bisection of the running sum; without by the largest of the weights divided by exponential
        noise (Efraimidis and Spirakis 2006), where at least `num_samples` weights of a row must not be 0.
        """
        if self.ndim not in (1, 2) or not self.dtype.is_float:
            raise TypeError(f"multinomial: needs a float vector or matrix, got {self.shape} of {self.dtype.name}")
        n = self._fixed(self.ndim - 1, "multinomial")
        if not isinstance(num_samples, int) or num_samples < 1 or n == 0 or (num_samples > n and not replacement):
            raise ValueError(f"multinomial: cannot draw {num_samples!r} of {n} elements, replacement={replacement}")
        rows: Sequence[Any] = self.shape[:-1]
        weights = self.cast(dtypes.float32).detach()
        options: dict[str, Any] = {"device": self.device, "generator": generator}
        if not replacement:
            noise = type(self).exponential(*rows, n, **options)
            return weights.div(noise).topk(num_samples)[1]
        # rounding may neither make the sums fall nor give a weight of 0 a step of its own
        steps = weights.eq(0).where(0.0, weights.cumsum(-1))._running_max(self.ndim - 1)
        level = type(self).rand(*rows, num_samples, **options).mul(steps._along(self.ndim - 1, n - 1, n))
        return steps.contiguous().searchsorted(level, right=True).minimum(size_max(n) - 1)


def _counted(index: Counts, values: Counts, count: int) -> Counts:
    """For each number below `count`, the sum of the values whose index it is."""
    zeros = values._new(UOp.const(0, values.dtype))._broadcast_to((count,))
    if not count or not index.numel():
        return zeros
    return zeros._new(UOp(Ops.SCATTER, values.dtype, (zeros.uop, index.uop, values.uop), (0, Ops.ADD)))
