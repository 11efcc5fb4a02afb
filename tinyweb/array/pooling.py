"""Pooling: maxima, means and norms of windows; windows as columns and back."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.array.activation import Activation
from tinyweb.array.convolution import Convolution, positive, spread
from tinyweb.array.core import TensorCore
from tinyweb.array.scatter import Scatter
from tinyweb.array.windows import Grid
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Size, numel_max, size_add, size_max, size_mul, size_prod, size_sub
from tinyweb.graph.schedule.recomputation import STORED
from tinyweb.graph.schedule.work import LAUNCH


class Pooling(Activation, Scatter, Convolution):
    """Of (N, C, L), (N, C, H, W) or (N, C, D, H, W); the batch N may be missing."""

    __slots__ = ()

    # -- maxima -------------------------------------------------------------------------------------------------------
    def max_pool1d(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """`max_pool2d` over one axis."""
        return self._max_pool("max_pool1d", 1, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def max_pool2d(
        self,
        kernel_size: Any = 2,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The largest element of each window of the last two axes, NaN if there is one.

        `stride` is `kernel_size` where None. At most half a kernel of padding (with the smallest value) on both
        sides. With `ceil_mode` a last window that begins inside, but reaches beyond the end, counts. With
        `return_indices` a pair: the maxima, and int32 places of the first maxima in the flattened plane. The gradient
        goes to the first maximum.
        """
        return self._max_pool("max_pool2d", 2, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def max_pool3d(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """`max_pool2d` over three axes."""
        return self._max_pool("max_pool3d", 3, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def _max_pool(
        self,
        method: str,
        n: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        return_indices: bool,
    ) -> Any:
        grid = Grid.of(self, method, n, kernel_size, stride, padding, dilation, ceil_mode)
        if self._varies(n):
            whole = self._whole(n, self._lowest())
            found = whole._max_pool(method, n, grid.kernel, grid.steps, padding, grid.apart, ceil_mode, return_indices)
            if not return_indices:
                return found._cut_to(grid.counts)
            value, place = (t._cut_to(grid.counts) for t in found)
            return value, place._in_another_plane([size_max(s) for s in grid.sizes], grid.sizes)
        x = self._filled(grid.around(), self._lowest())
        w = x._patches(grid.kernel, grid.steps, grid.apart)

        def back(g: Self, first: Self) -> Self:
            return g._to_windows(grid, x.shape, first)

        value, first = w._largest_of_windows(n, x, back, x._largest_by_axes(grid))
        if not return_indices:
            return value
        # the place in the window → the place in the plane
        place, rest = self._constant(0).int()._broadcast_to(first.shape), first
        step: Size = 1
        for i in reversed(range(n)):
            k, size = grid.kernel[i], grid.sizes[i]
            begin = self._iota(grid.counts[i])._reshape((grid.counts[i], *(1,) * (n - 1 - i)))
            at = begin.mul(grid.steps[i]).sub(grid.pads[i]).add(rest.remainder(k).mul(grid.apart[i]))
            place, rest, step = place.add(at.mul(step)), rest.floor_divide(k), size_mul(step, size)
        return value, place

    def _in_another_plane(self, old: Sequence[Size], new: Sequence[Size]) -> Self:
        """Places in flattened planes of sizes `old` as those of the same elements in planes of other sizes."""
        rest, place = self, self.mul(0)
        step: Size = 1
        for n, m in zip(reversed(old), reversed(new), strict=True):
            place, rest, step = place.add(rest.remainder(n).mul(step)), rest.floor_divide(n), size_mul(step, m)
        return place

    def _lowest(self) -> float:
        return float(self.dtype.min) if self.dtype.is_float else int(self.dtype.min)

    def _filled(self, around: Sequence[tuple[int, int]], value: float) -> Self:
        """Padded along the last axes."""
        lead = self.ndim - len(around)
        return self.pad([*((0, 0),) * lead, *around], value=value) if any(map(any, around)) else self

    def _largest_by_axes(self, grid: Grid) -> Self | None:
        """The maxima of windows from those along one axis after the other, where that takes fewer steps than to look at
        every element of each window."""
        n, lead = len(grid.kernel), numel_max(self.shape[: self.ndim - len(grid.kernel)])
        lines, steps = [size_max(s) for s in self.shape[self.ndim - n :]], (n - 1) * LAUNCH
        found = self
        for i in reversed(range(n)):
            lines[i] = size_max(grid.counts[i])
            steps += lead * math.prod(lines) * (grid.kernel[i] + (STORED if i else 0))
            found = found._sliding(self.ndim - n + i, grid.kernel[i], grid.steps[i], grid.apart[i]).max(-1)
        return found if steps < lead * math.prod(lines) * math.prod(grid.kernel) else None

    def _largest_of_windows(
        self, n: int, x: Self, gradient: Callable[[Self, Self], Self], maxima: Self | None = None
    ) -> tuple[Self, Self]:
        """Of windows (…, n axes of elements) of x: their maxima, and which element the first one is. `gradient` makes
        the gradient of x from that of the maxima and the elements."""
        axes = tuple(range(self.ndim - n, self.ndim))
        kernel = self.shape[self.ndim - n :]
        value = self.max(axes) if maxima is None else maxima
        count = numel_max(kernel)
        hit = self.eq(value._reshape((*value.shape, *(1,) * n)))
        if self.dtype.is_float:
            hit = hit.logical_or(self.isnan())
        place = self._iota(count)._reshape(kernel)
        first = hit.where(place.neg(), -count).max(axes).neg()
        if not self.dtype.is_float:
            return value, first
        return value._with_gradients([x], lambda g: [gradient(g, first)]), first

    def _to_windows(self, grid: Grid, shape: Sequence[Size], chosen: Self | None = None) -> Self:
        """The transpose of cutting windows from a tensor of `shape`: a value for each window goes to all of its
        elements, or to the `chosen` one (its number), and is added up there."""
        n = len(grid.kernel)
        lead = self.ndim - n
        numbers = self._iota(math.prod(grid.kernel))._reshape(grid.kernel)
        if not grid.overlap or any(s > 1 and d > 1 for s, d in zip(grid.steps, grid.apart, strict=True)):
            wide = self._reshape((*self.shape, *(1,) * n))
            if chosen is None:
                wide = wide._broadcast_to((*self.shape, *grid.kernel))
            else:
                wide = chosen._reshape((*chosen.shape, *(1,) * n)).eq(numbers).where(wide, 0)
            return wide._transpose_of(lambda t: t._patches(grid.kernel, grid.steps, grid.apart), shape)
        # element place · step + remainder is number block · step + remainder of the window `block` before that place
        blocks = [-(-k // s) for k, s in zip(grid.kernel, grid.steps, strict=True)]
        gaps = [d if s == 1 else 1 for s, d in zip(grid.steps, grid.apart, strict=True)]
        reach = [((b - 1) * d, (b - 1) * d) for b, d in zip(blocks, gaps, strict=True)]

        def covering(t: Self, none: float) -> Self:
            w = t.contiguous()._filled(reach, none).contiguous()._patches(blocks, (1,) * n, gaps)
            return w._reshape((*w.shape[:lead], *(1,) * n, *w.shape[lead:]))

        number: Self | None = None
        exists: Self | None = None
        for i, (k, s, b) in enumerate(zip(grid.kernel, grid.steps, blocks, strict=True)):
            block = self._iota(b).flip(0)._reshape((b, *(1,) * (n - 1 - i)))
            mine = block.mul(s).add(self._iota(s)._reshape((s, *(1,) * (3 * n - 1 - i))))
            there = mine.less(k)
            number = mine if number is None else number.mul(k).add(mine)
            exists = there if exists is None else exists.logical_and(there)
        assert number is not None and exists is not None
        here = exists if chosen is None else exists.logical_and(covering(chosen, -1).eq(number))
        terms = here.where(covering(self, 0), 0)
        total = terms.sum(tuple(range(terms.ndim - n, terms.ndim)))
        return total._dealt_out(grid.steps, shape[lead:])

    def max_unpool1d(
        self, indices: TensorCore, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Self:
        """`max_unpool2d` over one axis."""
        return self._max_unpool("max_unpool1d", 1, indices, kernel_size, stride, padding, output_size)

    def max_unpool2d(
        self, indices: TensorCore, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Self:
        """Zeros, with the elements put back to the places that `max_pool2d` took them from (`indices`).

        `output_size` (the last axes, or all) tells apart sizes that are pooled to the same one.
        """
        return self._max_unpool("max_unpool2d", 2, indices, kernel_size, stride, padding, output_size)

    def max_unpool3d(
        self, indices: TensorCore, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Self:
        """`max_unpool2d` over three axes."""
        return self._max_unpool("max_unpool3d", 3, indices, kernel_size, stride, padding, output_size)

    def _max_unpool(
        self, method: str, n: int, indices: TensorCore, kernel_size: Any, stride: Any, padding: Any, output_size: Any
    ) -> Self:
        kernel = positive(kernel_size, n, method, "kernel_size")
        steps = kernel if stride is None else positive(stride, n, method, "stride")
        pads = spread(padding, n, method, "padding")
        i = self._operand(indices, method)
        if self.ndim not in (n + 1, n + 2) or i.shape != self.shape or not i.dtype.is_int:
            raise ValueError(
                f"{method}: needs {n + 1} or {n + 2} axes and integer indices of the same shape, got {self.shape} and "
                f"{i.dtype.name} {i.shape}"
            )
        sizes = self._spatial(method, n)
        usual = tuple((s - 1) * t - 2 * p + k for s, t, p, k in zip(sizes, steps, pads, kernel, strict=True))
        out = usual if output_size is None else tuple(output_size)[-n:]
        if len(out) != n or any(abs(a - b) >= t for a, b, t in zip(out, usual, steps, strict=True)):
            raise ValueError(f"{method}: output_size {output_size} must be within a stride {steps} of {usual}")
        lead = self.shape[: self.ndim - n]
        flat = (*lead, math.prod(sizes))
        plane = self._constant(0)._broadcast_to((*lead, math.prod(out)))
        scattered: Self = plane.scatter(len(lead), i._reshape(flat), self._reshape(flat))
        return scattered._reshape((*lead, *out))

    # -- means and norms ----------------------------------------------------------------------------------------------
    def avg_pool1d(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """`avg_pool2d` over one axis."""
        return self._avg_pool("avg_pool1d", 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)

    def avg_pool2d(
        self,
        kernel_size: Any = 2,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:
        """The mean of each window of the last two axes; see `max_pool2d` for the windows.

        Sums are divided by the elements of the window that lie in the padded input, in the input itself without
        `count_include_pad`, or by `divisor_override`.
        """
        return self._avg_pool(
            "avg_pool2d", 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )

    def avg_pool3d(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:
        """`avg_pool2d` over three axes."""
        return self._avg_pool(
            "avg_pool3d", 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )

    def _avg_pool(
        self,
        method: str,
        n: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None,
    ) -> Self:
        grid = Grid.of(self, method, n, kernel_size, stride, padding, 1, ceil_mode)
        if divisor == 0:
            raise ValueError(f"{method}: divisor_override must not be 0")
        x = self._floating()
        wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
        total = wide._window_sums(n, grid)
        if divisor is not None:
            return total.div(divisor).cast(x.dtype)
        even = 1
        for i, (k, s, p, size, count) in enumerate(
            zip(grid.kernel, grid.steps, grid.pads, grid.sizes, grid.counts, strict=True)
        ):
            low, high = (-p, size_add(size, p)) if count_include_pad else (0, size)
            last = size_add(size_mul(count, s), k - s - p)  # where the last window ends
            if low <= -p and size_max(size_sub(last, high)) <= 0:
                even *= k
                continue
            begin = self._iota(count).mul(s).sub(p)
            elements = begin.add(k).minimum(high).sub(begin.maximum(low))
            total = total.div(elements._reshape((count, *(1,) * (n - 1 - i))).cast(total.dtype))
        return total.div(even).cast(x.dtype) if even != 1 else total.cast(x.dtype)

    def _window_sums(self, n: int, grid: Grid) -> Self:
        """The sums of the windows of the last n axes."""
        if self._varies(n):
            return self._whole(n)._window_sums(n, grid.largest())._cut_to(grid.counts)
        padded = self._filled(grid.around(), 0)
        w = padded._patches(grid.kernel, grid.steps, grid.apart)
        total = w.sum(tuple(range(w.ndim - n, w.ndim)))
        return total._with_gradients([padded], lambda g: [g._to_windows(grid, padded.shape)])

    def lp_pool1d(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Self:
        """`lp_pool2d` over one axis."""
        return self._lp_pool("lp_pool1d", 1, norm_type, kernel_size, stride, ceil_mode)

    def lp_pool2d(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Self:
        """The norm (Σ xᵖ)^(1/p), p = norm_type, of each window of the last two axes."""
        return self._lp_pool("lp_pool2d", 2, norm_type, kernel_size, stride, ceil_mode)

    def lp_pool3d(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Self:
        """`lp_pool2d` over three axes."""
        return self._lp_pool("lp_pool3d", 3, norm_type, kernel_size, stride, ceil_mode)

    def _lp_pool(self, method: str, n: int, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Self:
        if not norm_type > 0:
            raise ValueError(f"{method}: norm_type must be above 0, got {norm_type}")
        elements = math.prod(positive(kernel_size, n, method, "kernel_size"))
        mean = self._floating().pow(norm_type)._avg_pool(method, n, kernel_size, stride, 0, ceil_mode, True, None)
        return mean.relu().mul(elements).pow(1 / norm_type)

    # -- any number of windows ----------------------------------------------------------------------------------------
    def adaptive_avg_pool1d(self, output_size: Any) -> Self:
        """`adaptive_avg_pool2d` over one axis."""
        return self._adaptive_avg_pool("adaptive_avg_pool1d", 1, output_size)

    def adaptive_avg_pool2d(self, output_size: Any) -> Self:
        """Means of as many windows as `output_size` says (None: as many as elements), from ⌊i·n/o⌋ to ⌈(i+1)·n/o⌉."""
        return self._adaptive_avg_pool("adaptive_avg_pool2d", 2, output_size)

    def adaptive_avg_pool3d(self, output_size: Any) -> Self:
        """`adaptive_avg_pool2d` over three axes."""
        return self._adaptive_avg_pool("adaptive_avg_pool3d", 3, output_size)

    def _adaptive_avg_pool(self, method: str, n: int, output_size: Any) -> Self:
        sizes, counts = self._adaptive(method, n, output_size)
        x = self._floating()
        wide = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
        lengths = [_lengths(size, count) for size, count in zip(sizes, counts, strict=True)]
        scale = math.prod(int(each[0]) for each in lengths if each.min() == each.max())
        for i, (size, count, each) in enumerate(zip(sizes, counts, lengths, strict=True)):
            wide = wide._adaptive_sums(wide.ndim - n + i, size, count)
            if each.min() < each.max():  # the first factors are for the axes without as well
                factors = self._operand((1 / (each * scale)).astype(np.float32), method).cast(wide.dtype)
                wide, scale = wide.mul(factors._reshape((count, *(1,) * (n - 1 - i)))), 1
        return wide.div(scale).cast(x.dtype)

    def adaptive_max_pool1d(self, output_size: Any, return_indices: bool = False) -> Any:
        """`adaptive_max_pool2d` over one axis."""
        return self._adaptive_max_pool("adaptive_max_pool1d", 1, output_size, return_indices)

    def adaptive_max_pool2d(self, output_size: Any, return_indices: bool = False) -> Any:
        """Maxima of as many windows as `output_size` says; see `adaptive_avg_pool2d` and `max_pool2d`."""
        return self._adaptive_max_pool("adaptive_max_pool2d", 2, output_size, return_indices)

    def adaptive_max_pool3d(self, output_size: Any, return_indices: bool = False) -> Any:
        """`adaptive_max_pool2d` over three axes."""
        return self._adaptive_max_pool("adaptive_max_pool3d", 3, output_size, return_indices)

    def _adaptive_max_pool(self, method: str, n: int, output_size: Any, return_indices: bool) -> Any:
        sizes, counts = self._adaptive(method, n, output_size)
        lead = self.ndim - n

        def cut(x: Self) -> Self:
            for i, (size, count) in enumerate(zip(sizes, counts, strict=True)):
                x = x._adaptive_windows(lead + i, size, count)
            return x

        w = cut(self)
        kernel = w.shape[w.ndim - n :]

        def back(g: Self, first: Self) -> Self:
            number = self._iota(numel_max(kernel))._reshape(kernel)
            wide = g._reshape((*g.shape, *(1,) * n))
            return first._reshape((*first.shape, *(1,) * n)).eq(number).where(wide, 0)._transpose_of(cut, self.shape)

        value, first = w._largest_of_windows(n, self, back)
        if not return_indices:
            return value
        place, rest, step = self._constant(0).int()._broadcast_to(first.shape), first, 1
        for i in reversed(range(n)):
            k, size, count = int(kernel[i]), sizes[i], counts[i]  # type: ignore[arg-type]
            begin = self._iota(count).mul(size).floor_divide(count)._reshape((count, *(1,) * (n - 1 - i)))
            place = place.add(begin.add(rest.remainder(k)).mul(step))
            rest, step = rest.floor_divide(k), step * size
        return value, place

    def _adaptive(self, method: str, n: int, output_size: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if self.ndim not in (n + 1, n + 2):
            raise ValueError(f"{method}: needs {n + 1} or {n + 2} axes, got {self.shape}")
        sizes = self._spatial(method, n)
        given = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,) * n
        if any(o is not None and (isinstance(o, bool) or not hasattr(o, "__index__")) for o in given):
            raise ValueError(f"{method}: output_size must be {n} whole numbers or None, got {output_size!r}")
        given = tuple(None if o is None else operator.index(o) for o in given)
        counts = tuple(s if o is None else o for o, s in zip(given, sizes, strict=False))
        if len(given) != n or any(o < 1 for o in counts) or 0 in sizes:
            raise ValueError(
                f"{method}: output_size must be {n} numbers of at least 1, got {output_size} of {self.shape}"
            )
        return sizes, counts

    def _adaptive_windows(self, axis: int, size: int, count: int) -> Self:
        """Windows as a new last axis; shorter ones end with their last element again."""
        if size % count == 0:
            return self._sliding(axis, size // count, size // count)
        begin, last = self._adaptive_places(size, count)
        at = begin.add(self._iota(int(_lengths(size, count).max())))
        w = self._take(at.less(last).where(at, last), axis)
        return w.permute(*range(axis + 1), *range(axis + 2, w.ndim), axis + 1)

    def _adaptive_sums(self, axis: int, size: int, count: int) -> Self:
        """Sums of such windows: of what all have, and of what only longer ones have."""
        if size % count == 0:
            return self._sliding(axis, size // count, size // count).sum(-1)
        (begin, last), lengths = self._adaptive_places(size, count), _lengths(size, count)
        least, most = int(lengths.min()), int(lengths.max())
        total = self._take(begin.add(self._iota(least)), axis).sum(axis + 1)
        if least < most:
            at = begin.add(self._iota(most - least)).add(least)
            # a place outside picks what is not there: zeros
            total = total.add(self._take(at.less_equal(last).where(at, -1), axis).sum(axis + 1))
        return total

    def _adaptive_places(self, size: int, count: int) -> tuple[Self, Self]:
        """The first and the last element of each window, (count, 1)."""
        i = self._iota(count).unsqueeze(1)
        return i.mul(size).floor_divide(count), i.add(1).mul(size).sub(1).floor_divide(count)

    # -- windows as columns -------------------------------------------------------------------------------------------
    def im2col(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Self:
        """Windows of (N, C, H, W) as columns (N, C · elements, windows): torch.nn.functional.unfold."""
        grid = Grid.of(self, "im2col", 2, kernel_size, stride, padding, dilation, False, half=False)
        return self._filled(grid.around(), 0)._patches(grid.kernel, grid.steps, grid.apart)._as_columns(grid)

    def _as_columns(self, grid: Grid) -> Self:
        """(N, C, H', W', windows…) → (N, C · elements, windows)."""
        w, lead = self, self.ndim - 4
        w = w.permute(*range(lead), lead + 2, lead + 3, lead, lead + 1)
        channels = w._fixed(lead - 1, "im2col")
        return w._reshape((*w.shape[: lead - 1], channels * math.prod(grid.kernel), size_prod(grid.counts)))

    def fold(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Self:
        """The transpose of `im2col`: columns (N, C · elements, windows), added where windows overlap: (N, C, H, W)."""
        kernel, out = positive(kernel_size, 2, "fold", "kernel_size"), positive(output_size, 2, "fold", "output_size")
        elements = math.prod(kernel)
        rows = self.shape[-2] if self.ndim in (2, 3) else 0
        if not isinstance(rows, int) or not rows or rows % elements:
            raise ValueError(f"fold: needs columns (N, C · {elements}, windows), got {self.shape}")
        shape = (*self.shape[:-2], rows // elements, *out)
        x = self._floating()
        grid = Grid.of(
            x._constant(0)._broadcast_to(shape), "fold", 2, kernel, stride, padding, dilation, False, half=False
        )
        if size_prod(grid.counts) != self.shape[-1]:
            raise ValueError(
                f"fold: an output of {out} has {grid.counts} windows, but {self.shape} holds {self.shape[-1]}"
            )

        def columns(t: Self) -> Self:
            t = t._filled(grid.around(), 0)
            for axis, of_axis in enumerate(zip(grid.kernel, grid.steps, grid.apart, strict=True), len(shape) - 2):
                size, step, apart = of_axis
                t = t._sliding_by_blocks(axis, size, step) if apart == 1 else t._sliding(axis, *of_axis)
            return t._as_columns(grid)

        return x._transpose_of(columns, shape).cast(self.dtype)

    col2im = fold


def _lengths(size: int, count: int) -> npt.NDArray[np.int64]:
    """Elements of each adaptive window."""
    i = np.arange(count)
    lengths: npt.NDArray[np.int64] = -(-(i + 1) * size // count) - i * size // count
    return lengths
