"""Images (and lines, and volumes) at other places: resizing, sampling by a grid, pixels as channels and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.array.core import TensorCore
from tinyweb.array.pooling import Pooling
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, size_prod
from tinyweb.graph.schedule.indexing import same

MODES = ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area")
CUBIC = -0.75  # the free number of cubic convolution (Keys 1981) that image libraries use


class Resampling(Pooling):
    """interpolate, grid_sample, affine_grid, pixel_shuffle."""

    __slots__ = ()

    def interpolate(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> Self:
        """(N, C, …) with its one to three last axes resized to `size`, or by `scale_factor`: a number for all axes or
        one for each.

        `mode`: "nearest" (by rounding down), "nearest-exact", "linear" (or "bilinear", "trilinear"), "bicubic", "area"
        (the mean of what a pixel covers). With `align_corners` the corners' centres stay, else the corners do;
        `antialias` widens linear and cubic kernels where the image becomes smaller. Coordinates follow `scale_factor`
        where given, unless `recompute_scale_factor`. Integers are rounded to integers, held within their range.
        """
        n = self.ndim - 2
        if mode not in MODES or not 1 <= n <= 3:
            raise ValueError(
                f"interpolate: needs 3 to 5 axes (N, C, …) and a mode of {', '.join(MODES)}; got {self.shape}, {mode!r}"
            )
        if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
            raise ValueError(f"interpolate: align_corners has no meaning with mode {mode!r}")
        if antialias and mode not in ("linear", "bilinear", "bicubic"):
            raise ValueError(f"interpolate: antialias needs mode bilinear or bicubic, got {mode!r}")
        sizes = self._spatial("interpolate", n)
        out, factors = _target_sizes(sizes, n, size, scale_factor)
        if recompute_scale_factor:
            factors = [None] * n
        if mode == "area":
            mean = self._adaptive_avg_pool("interpolate", n, out)
            # a mean that ends in one half may come out a little below
            return mean.add(0.5 + 2**-12).floor().cast(self.dtype) if self.dtype.is_int else mean
        nearest = mode.startswith("nearest")
        x = self if nearest else self._floating()
        wide = x if nearest or x.dtype.bits >= 32 else x.cast(dtypes.float32)
        for i, (old, new, factor) in enumerate(zip(sizes, out, factors, strict=True)):
            if old == new and (factor in (None, 1.0)):
                continue
            at, weights = _taps(old, new, factor, mode, bool(align_corners), antialias)
            wide = wide._resampled(2 + i, at, weights)
        if self.dtype.is_int and not nearest:
            wide = wide.add(0.5).floor()  # the nearest whole number; the cast holds it within the range
            return wide.cast(self.dtype)
        return wide.cast(x.dtype)

    def _resampled(self, axis: int, at: npt.NDArray[np.int32], weights: npt.NDArray[np.float32] | None) -> Self:
        """Along an axis, sums of elements `at` (new, taps) times `weights`, or (None) just the elements (new, 1)."""
        old = self._fixed(axis, "interpolate")
        new = len(at)
        if weights is None and new % old == 0 and np.array_equal(at[:, 0], np.arange(new) // (new // old)):
            return self.repeat_interleave(new // old, axis)
        if weights is None:
            first, weights = at[:, 0], np.ones((new, 1), np.float32)
        else:  # elements side by side: the weights of what the border repeats are those of the border
            taps = min(at.shape[1], old)
            first, each = np.minimum(at.min(1, initial=old), old - taps), weights
            weights = np.zeros((new, taps), np.float32)
            np.add.at(weights, (np.arange(new)[:, None], at - first[:, None]), each)
        last = old - weights.shape[1]
        places = self._operand(first.astype(np.uint32), "interpolate")
        # the places are known to be inside
        places = places.less(last).where(places, last).int().unsqueeze(1).add(self._iota(weights.shape[1]))
        picked = self._take(places, axis)
        if weights.shape[1] == 1:
            return picked.squeeze(axis + 1)
        behind = (1,) * (self.ndim - axis - 1)
        factors = self._operand(weights, "interpolate").cast(self.dtype)._reshape((*weights.shape, *behind))
        return picked.mul(factors).sum(axis + 1)

    upsample = interpolate

    # -- by a grid ----------------------------------------------------------------------------------------------------
    def affine_grid(self, size: Sequence[int], align_corners: bool = False) -> Self:
        """Coordinates for `grid_sample` of an affine map: this (N, 2, 3) matrix and a size (N, C, H, W) give (N, H, W,
        2); (N, 3, 4) and (N, C, D, H, W) give (N, D, H, W, 3)."""
        n = len(size) - 2
        if n not in (2, 3) or self.shape != (size[0], n, n + 1) or any(s < 1 for s in size):
            raise ValueError(f"affine_grid: {self.shape} and size {tuple(size)}: needs (N, 2, 3) with (N, C, H, W)")
        columns = []
        for i, s in enumerate(size[:1:-1]):  # x first
            steps = np.linspace(-1, 1, s) if s > 1 else np.zeros(1)
            line = self._operand(
                (steps if align_corners or s == 1 else steps * (s - 1) / s).astype(np.float32), "affine_grid"
            )
            columns.append(line._reshape((s, *(1,) * i))._broadcast_to(tuple(size[2:])).unsqueeze(-1))
        theta = self._floating()
        turned = theta.permute(0, 2, 1)._reshape((size[0], *(1,) * (n - 1), n + 1, n))
        out: Self | None = None
        for i, c in enumerate(columns):
            row = turned.shrink([*(None,) * n, (i, i + 1), None])
            term = row.mul(c.unsqueeze(0).cast(theta.dtype))
            out = term if out is None else out.add(term)
        assert out is not None
        return out.add(turned.shrink([*(None,) * n, (n, n + 1), None]))

    def grid_sample(
        self,
        grid: TensorCore,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> Self:
        """(N, C, H, W) at the places of `grid` (N, H', W', 2), x before y, -1 … 1 from edge to edge: (N, C, H', W'); or
        (N, C, D, H, W) with (N, D', H', W', 3).

        `mode` is "bilinear", "nearest" or (in the plane) "bicubic". Places outside count as "zeros", as the "border"
        next to them, or by "reflection". -1 and 1 are the centres of the outermost pixels with `align_corners`, else
        their edges. The gradient compares each place with each pixel.
        """
        g, n = self._operand(grid, "grid_sample")._floating(), self.ndim - 2
        if n not in (2, 3) or g.ndim != n + 2 or g.shape[-1] != n or g.shape[0] != self.shape[0]:
            raise ValueError(
                f"grid_sample: {self.shape} with grid {g.shape}: needs (N, C, H, W), (N, H', W', 2), or one axis more"
            )
        taps = {"nearest": 1, "bilinear": 2, "bicubic": 4}.get(mode)
        if taps is None or (taps == 4 and n == 3) or padding_mode not in ("zeros", "border", "reflection"):
            raise ValueError(
                "grid_sample: mode is bilinear, nearest or (4 axes) bicubic, padding_mode zeros, border or reflection; "
                f"got {mode!r} and {padding_mode!r}"
            )
        sizes, x = self._spatial("grid_sample", n), self._floating()
        if 0 in sizes:
            raise ValueError(f"grid_sample: nothing to sample in {self.shape}")
        batch, channels, out = x.shape[0], x.shape[1], g.shape[1:-1]
        rows = x._reshape((batch, channels, math.prod(sizes))).permute(0, 2, 1)
        # all taps are an axis around that of places: places are one tensor, weights another, with vectors along both
        place: Self | None = None
        inside: Self | None = None
        weight: Self | None = None
        for i, s in enumerate(sizes):
            c = g.shrink([*(None,) * (n + 1), (n - 1 - i, n - i)])._reshape((batch, 1, size_prod(out)))
            c = c.add(1.0).mul((s - 1) / 2) if align_corners else c.add(1.0).mul(s / 2).sub(0.5)
            if taps != 4:
                c = c._folded_back(s, padding_mode, align_corners)
            low = c.round() if taps == 1 else c.floor().detach()
            at = low.int()
            if taps > 1:
                t = c.sub(low)
                steps = self._iota(taps**n).floor_divide(taps ** (n - 1 - i)).remainder(taps).unsqueeze(-1)
                at = at.add(steps.sub(taps // 4))
                w = steps.eq(0).where(t.neg().add(1.0), t) if taps == 2 else _cubic(t, steps)
                weight = w if weight is None else weight.mul(w)
            if taps == 4 and padding_mode != "zeros":
                at = at.cast(c.dtype)._folded_back(s, padding_mode, align_corners).int()
            within = at.greater_equal(0).logical_and(at.less(s))
            inside = within if inside is None else inside.logical_and(within)
            place = at if place is None else place.mul(s).add(at)
        assert place is not None and inside is not None
        # a place outside picks a row that is not there: zeros
        index = inside.where(place, -1)
        if weight is not None and not same(channels, 1):  # the same for all of them
            index, weight = index.contiguous(), weight.contiguous()
        index = index._reshape((batch, size_prod(index.shape[1:])))
        total = x._new(UOp(Ops.TAKE, x.dtype, (rows.uop, index.uop), 1))
        if weight is not None:
            total = total._reshape((batch, taps**n, size_prod(out), channels))
            total = total.mul(weight.unsqueeze(-1).cast(x.dtype)).sum(1)
        return total.permute(0, 2, 1)._reshape((batch, channels, *out))

    def _folded_back(self, size: int, padding_mode: str, align_corners: bool) -> Self:
        """Coordinates brought inside as the mode of padding says."""
        c = self
        if padding_mode == "zeros":
            return c
        if padding_mode == "reflection":
            low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
            span = high - low
            if span == 0:
                return c.mul(0.0)
            away = c.sub(low).abs()
            turns = away.div(span).floor().detach()
            rest = away.sub(turns.mul(span))
            c = turns.remainder(2.0).eq(0).where(rest.add(low), rest.neg().add(high))
        return c.less_equal(0).where(0.0, c.greater_equal(size - 1).where(size - 1.0, c))

    # -- pixels and channels ------------------------------------------------------------------------------------------
    def pixel_shuffle(self, upscale_factor: int) -> Self:
        """(…, C · r², H, W) → (…, C, H · r, W · r) (Shi et al. 2016)."""
        r = upscale_factor
        if self.ndim < 3 or r < 1 or self._fixed(self.ndim - 3, "pixel_shuffle") % (r * r):
            raise ValueError(f"pixel_shuffle: needs (…, C · {r}², H, W), got {self.shape}")
        *lead, c, h, w = self.shape
        k = len(lead)
        x = self._reshape((*lead, size_prod((c,)) // (r * r), r, r, h, w))
        x = x.permute(*range(k + 1), k + 3, k + 1, k + 4, k + 2)
        return x._reshape((*lead, size_prod((c,)) // (r * r), size_prod((h, r)), size_prod((w, r))))

    def pixel_unshuffle(self, downscale_factor: int) -> Self:
        """(…, C, H · r, W · r) → (…, C · r², H, W): the inverse of `pixel_shuffle`."""
        r = downscale_factor
        sizes = [self._fixed(self.ndim - i, "pixel_unshuffle") for i in (2, 1)] if self.ndim >= 3 else []
        if not sizes or r < 1 or any(s % r for s in sizes):
            raise ValueError(f"pixel_unshuffle: needs (…, C, H · {r}, W · {r}), got {self.shape}")
        *lead, c, _, _ = self.shape
        k, (h, w) = len(lead), (s // r for s in sizes)
        x = self._reshape((*lead, c, h, r, w, r)).permute(*range(k + 1), k + 2, k + 4, k + 1, k + 3)
        return x._reshape((*lead, size_prod((c, r * r)), h, w))

    def channel_shuffle(self, groups: int) -> Self:
        """Channels (axis 1) dealt out anew: the first of every group, then the second … (Zhang et al. 2018)."""
        if self.ndim < 3 or groups < 1 or self._fixed(1, "channel_shuffle") % groups:
            raise ValueError(f"channel_shuffle: needs (N, C, …) with C a multiple of {groups}, got {self.shape}")
        batch, c, *rest = self.shape
        x = self._reshape((batch, groups, size_prod((c,)) // groups, *rest))
        return x.permute(0, 2, 1, *range(3, x.ndim))._reshape(self.shape)


def _target_sizes(
    sizes: Sequence[int], n: int, size: Any, scale_factor: Any
) -> tuple[tuple[int, ...], list[float | None]]:
    """The new sizes, and the factors where they were given."""
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: give either size or scale_factor")
    given = size if size is not None else scale_factor
    each = (given,) * n if isinstance(given, int | float) else tuple(given)
    if len(each) == 1:
        each *= n
    if len(each) != n or not all(isinstance(v, int | float) and 0 < v < math.inf for v in each) or 0 in sizes:
        raise ValueError(
            f"interpolate: needs one positive number or {n} of them, and axes of at least 1; got {given!r}"
        )
    if size is not None:
        return tuple(int(v) for v in each), [None] * n
    return tuple(math.floor(s * f) for s, f in zip(sizes, each, strict=True)), [float(f) for f in each]


def _taps(
    old: int, new: int, factor: float | None, mode: str, align_corners: bool, antialias: bool
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32] | None]:
    """Which elements, with which weights, make up each new one: (new, taps) both. Coordinates in float32, as others
    compute them."""
    f = np.float32
    i = np.arange(new, dtype=f)
    scale = f(1 / factor) if factor else f(old / max(new, 1))
    if mode.startswith("nearest"):
        at = np.floor((i + f(0.5 if mode == "nearest-exact" else 0)) * scale)
        return np.minimum(at, old - 1).astype(np.int32)[:, None], None
    if align_corners:
        scale = f((old - 1) / (new - 1)) if new > 1 else f(0)
    kernel: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
    if antialias:
        cubic = mode == "bicubic"
        kernel, reach = (lambda t: _cubic_weight(t, -0.5), 2.0) if cubic else (lambda t: np.maximum(1 - abs(t), 0), 1.0)
        stretch = max(float(scale), 1.0)
        centre = float(scale) * (np.arange(new) + 0.5)
        begin = np.maximum(np.floor(centre - reach * stretch + 0.5), 0).astype(int)
        end = np.minimum(np.floor(centre + reach * stretch + 0.5), old).astype(int)
        at = begin[:, None] + np.arange(max(int((end - begin).max(initial=1)), 1))
        weights = np.where(at < end[:, None], kernel((at + 0.5 - centre[:, None]) / stretch), 0.0)
        weights = weights / weights.sum(1, keepdims=True)
        return np.minimum(at, old - 1).astype(np.int32), weights.astype(f)
    c = i * scale if align_corners else (i + f(0.5)) * scale - f(0.5)
    if mode == "bicubic":
        low = np.floor(c)
        t = (c - low).astype(f)
        at = low[:, None] + np.arange(-1, 3)
        weights = _cubic_weight(t[:, None].astype(np.float64) - np.arange(-1, 3), CUBIC)
    else:
        c = np.maximum(c, 0)
        low = np.minimum(np.floor(c), old - 1)
        at = low[:, None] + np.arange(2)
        t = np.minimum(c - low, 1)
        weights = np.stack([1 - t, t], 1)
    return np.clip(at, 0, old - 1).astype(np.int32), weights.astype(f)


def _cubic_weight(t: npt.NDArray[np.float64], a: float) -> npt.NDArray[np.float64]:
    """Cubic convolution (Keys 1981) at a distance."""
    d = np.abs(t)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _cubic(t: Any, steps: Any) -> Any:
    """The same for each of four elements, `steps` being 0 … 3 and `t` the way from element 1 to 2."""
    a = CUBIC
    d = t.sub(steps.cast(t.dtype).sub(1.0)).abs()
    near = d.mul(a + 2).sub(a + 3).mul(d).mul(d).add(1.0)
    far = d.sub(5.0).mul(d).add(8.0).mul(d).mul(a).sub(4 * a)
    return steps.eq(1).logical_or(steps.eq(2)).where(near, far)
