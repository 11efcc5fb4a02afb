"""Convolutions: windows of the input (a view) times weights, summed. Nothing is copied once per window.

The gradients are convolutions too and are given as such; what differentiating the windows would give is slower.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Self

from tinyweb.array.core import TensorCore
from tinyweb.array.padding import Padding
from tinyweb.array.reduction import Reduction
from tinyweb.array.views import window_count
from tinyweb.dtype import dtypes, promote
from tinyweb.graph.ir import Ops, Size, larger_size, size_add, size_max, size_mul, size_prod, size_sub, through
from tinyweb.graph.schedule.indexing import same

_SAME_VALUES = (
    Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP, Ops.EXPAND, Ops.DETACH, Ops.CUSTOM_GRADIENT,
)  # fmt: skip
WORTH_MEMORY = 16  # uses of each input element from which it is computed once, into memory


def spread(value: Any, n: int, method: str, name: str) -> tuple[int, ...]:
    """A number for all of `n` axes, or one for each."""
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    each = tuple(operator.index(v) for v in given if hasattr(v, "__index__") and not isinstance(v, bool))
    if len(each) == len(given) == 1:
        each *= n
    if len(each) != n or len(each) < len(given):
        raise ValueError(f"{method}: {name} must be a whole number or {n} of them, got {value!r}")
    return each


def positive(value: Any, n: int, method: str, name: str) -> tuple[int, ...]:
    each = spread(value, n, method, name)
    if any(v < 1 for v in each):
        raise ValueError(f"{method}: {name} must be at least 1, got {value!r}")
    return each


class Convolution(Padding, Reduction):
    """Convolutions over one to three axes, their transposes, and windows as columns."""

    __slots__ = ()

    # -- as in torch.nn.functional ------------------------------------------------------------------------------------
    def conv1d(
        self,
        weight: TensorCore,
        bias: TensorCore | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Self:
        """`conv2d` over one axis: (N, C, L) with weights (O, C / groups, K)."""
        return self._convolve("conv1d", 1, weight, bias, stride, padding, dilation, groups)

    def conv2d(
        self,
        weight: TensorCore,
        bias: TensorCore | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Self:
        """Cross-correlation of (N, C, H, W), or (C, H, W), with weights (O, C / groups, K, L): (N, O, H', W').

        `stride`, `padding` and `dilation` are numbers for both axes or one for each; padding (with zeros) may also be
        a pair (before, after) for each axis, "valid" (none) or "same" (as much as keeps the size; stride 1). Half
        floats are summed in float32. ValueError where shapes and numbers do not go together.
        """
        return self._convolve("conv2d", 2, weight, bias, stride, padding, dilation, groups)

    def conv3d(
        self,
        weight: TensorCore,
        bias: TensorCore | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Self:
        """`conv2d` over three axes: (N, C, D, H, W) with weights (O, C / groups, K, L, M)."""
        return self._convolve("conv3d", 3, weight, bias, stride, padding, dilation, groups)

    def conv_transpose1d(
        self,
        weight: TensorCore,
        bias: TensorCore | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Self:
        """`conv_transpose2d` over one axis."""
        return self._deconvolve("conv_transpose1d", 1, weight, bias, stride, padding, output_padding, groups, dilation)

    def conv_transpose2d(
        self,
        weight: TensorCore,
        bias: TensorCore | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Self:
        """The transpose (the gradient) of `conv2d`: (N, C, H, W), or (C, H, W), with weights (C, O / groups, K, L).

        The size of an axis is (n - 1) · stride - 2 · padding + dilation · (K - 1) + output_padding + 1.
        """
        return self._deconvolve("conv_transpose2d", 2, weight, bias, stride, padding, output_padding, groups, dilation)

    def conv_transpose3d(
        self,
        weight: TensorCore,
        bias: TensorCore | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Self:
        """`conv_transpose2d` over three axes."""
        return self._deconvolve("conv_transpose3d", 3, weight, bias, stride, padding, output_padding, groups, dilation)

    # -- arguments ----------------------------------------------------------------------------------------------------
    def _convolve(
        self,
        method: str,
        n: int,
        weight: TensorCore,
        bias: TensorCore | None,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
    ) -> Self:
        x, w = self._operands(method, n, weight, groups)
        if x.ndim == n + 1:
            return x.unsqueeze(0)._convolve(method, n, w, bias, stride, padding, dilation, groups).squeeze(0)
        steps, apart = positive(stride, n, method, "stride"), positive(dilation, n, method, "dilation")
        kernel = w._spatial(method, n)
        if x._varies(n):
            around = _padding(method, padding, steps, [(k - 1) * d for k, d in zip(kernel, apart, strict=True)])
            each = zip(x.shape[2:], around, kernel, steps, apart, strict=True)
            out = [window_count(size_add(s, before + after), k, t, d) for s, (before, after), k, t, d in each]
            return x._whole(n)._convolve(method, n, w, bias, steps, around, apart, groups)._cut_to(out)
        sizes = x._spatial(method, n)
        if not same(x.shape[1], w.shape[1] * groups) or w.shape[0] % groups:
            raise ValueError(
                f"{method}: input {x.shape} and weight {w.shape} with groups={groups}: the weight must be (outputs, "
                "channels / groups, …), outputs a multiple of groups"
            )
        around = _padding(method, padding, steps, [(k - 1) * d for k, d in zip(kernel, apart, strict=True)])
        for s, k, d, (before, after) in zip(sizes, kernel, apart, around, strict=True):
            if s + before + after < (k - 1) * d + 1:
                raise ValueError(
                    f"{method}: a kernel of {kernel} with dilation {apart} is larger than the padded input {x.shape}"
                )
        result = promote(x.dtype, w.dtype)
        wide = dtypes.float32 if result.is_float and result.bits < 32 else result
        x, w = x.cast(wide), w.cast(wide)
        uses = size_max(w.shape[0]) // groups * math.prod(kernel) // math.prod(steps)
        padded = x._padded([(0, 0), (0, 0), *around], uses)
        y = padded._correlate(w, steps, apart, groups)
        first = [before for before, _ in around]

        def back(g: Self) -> list[Self]:
            g = g._padded([(0, 0)] * g.ndim, WORTH_MEMORY)  # it is read again and again
            return [
                g._transposed(w, steps, apart, groups, first, sizes),
                padded._weight_gradient(g, w, steps, apart, groups),
            ]

        y = y._with_gradients([x, w], back)
        return y.cast(result)._plus_bias(method, bias)

    def _deconvolve(
        self,
        method: str,
        n: int,
        weight: TensorCore,
        bias: TensorCore | None,
        stride: Any,
        padding: Any,
        output_padding: Any,
        groups: int,
        dilation: Any,
    ) -> Self:
        x, w = self._operands(method, n, weight, groups)
        if x.ndim == n + 1:
            whole = x.unsqueeze(0)
            return whole._deconvolve(
                method, n, w, bias, stride, padding, output_padding, groups, dilation
            ).squeeze(0)  # fmt: skip
        steps, apart = positive(stride, n, method, "stride"), positive(dilation, n, method, "dilation")
        cut, more = spread(padding, n, method, "padding"), spread(output_padding, n, method, "output_padding")
        kernel = w._spatial(method, n)
        if x._varies(n):
            each = zip(x.shape[2:], kernel, steps, cut, apart, more, strict=True)
            ends = [size_add(size_mul(s, t), d * (k - 1) + m + 1 - t - 2 * p) for s, k, t, p, d, m in each]
            whole = x._whole(n)._deconvolve(method, n, w, bias, steps, cut, more, groups, apart)
            return whole._cut_to([larger_size(e, 0) for e in ends])
        sizes = x._spatial(method, n)
        if not same(x.shape[1], w.shape[0]) or w.shape[0] % groups:
            raise ValueError(
                f"{method}: input {x.shape} and weight {w.shape} with groups={groups}: the weight must be (channels, "
                "outputs / groups, …), channels a multiple of groups"
            )
        if any(p < 0 for p in cut) or any(not 0 <= m < max(s, d) for m, s, d in zip(more, steps, apart, strict=True)):
            raise ValueError(
                f"{method}: padding {cut} must not be negative, and output_padding {more} must be less than "
                f"the stride {steps} or the dilation {apart}"
            )
        out = tuple(
            (s - 1) * t - 2 * p + d * (k - 1) + m + 1
            for s, t, p, d, k, m in zip(sizes, steps, cut, apart, kernel, more, strict=True)
        )
        if any(s < 1 for s in out) and 0 not in sizes:
            raise ValueError(f"{method}: input {x.shape}, kernel {kernel} and padding {cut} leave a size of {out}")
        result = promote(x.dtype, w.dtype)
        wide = dtypes.float32 if result.is_float and result.bits < 32 else result
        x, w = x.cast(wide)._padded([(0, 0)] * (n + 2), WORTH_MEMORY), w.cast(wide)
        y = x._transposed(w, steps, apart, groups, cut, out)

        def back(g: Self) -> list[Self]:
            # no window reaches what output_padding added
            around = [(p, p - m) for p, m in zip(cut, more, strict=True)]
            g = g._padded([(0, 0), (0, 0), *around], WORTH_MEMORY)
            return [g._correlate(w, steps, apart, groups), g._weight_gradient(x, w, steps, apart, groups)]

        y = y._with_gradients([x, w], back)
        return y.cast(result)._plus_bias(method, bias)

    def _operands(self, method: str, n: int, weight: TensorCore, groups: int) -> tuple[Self, Self]:
        w = self._operand(weight, method)
        if self.ndim not in (n + 1, n + 2) or w.ndim != n + 2:
            raise ValueError(
                f"{method}: input {self.shape} and weight {w.shape}: needs {n + 2} axes each "
                f"(the input may lack the first, the batch)"
            )
        if not isinstance(groups, int) or groups < 1:
            raise ValueError(f"{method}: groups must be at least 1, got {groups!r}")
        return self, w

    def _spatial(self, method: str, n: int) -> tuple[int, ...]:
        sizes = self.shape[self.ndim - n :]
        if not all(isinstance(s, int) for s in sizes):
            raise ValueError(f"{method}: the last {n} sizes of {self.shape} must be numbers")
        return tuple(s for s in sizes if isinstance(s, int))

    def _varies(self, n: int) -> bool:
        """Whether one of the last n sizes is symbolic."""
        return not all(isinstance(s, int) for s in self.shape[self.ndim - n :])

    def _whole(self, n: int, value: float = 0.0) -> Self:
        """With a value behind the elements along the last n axes, up to their largest sizes: numbers."""
        last = self.shape[self.ndim - n :]
        behind = [(0, size_sub(size_max(s), s)) for s in last]
        return self.pad([*((0, 0),) * (self.ndim - n), *behind], value=value)

    def _plus_bias(self, method: str, bias: TensorCore | None) -> Self:
        if bias is None:
            return self
        b = self._operand(bias, method)
        if b.shape != (self.shape[1],):
            raise ValueError(f"{method}: bias {b.shape} needs one element per output channel of {self.shape}")
        return self.add(b._reshape((self.shape[1], *(1 for _ in self.shape[2:]))))

    # -- windows ------------------------------------------------------------------------------------------------------
    def _patches(self, sizes: Sequence[int], steps: Sequence[int], apart: Sequence[int]) -> Self:
        """Windows along the last axes: (…, windows…, elements…)."""
        t = self
        for i, arguments in enumerate(zip(sizes, steps, apart, strict=True)):
            t = t._sliding(self.ndim - len(sizes) + i, *arguments)
        return t

    def _padded(self, around: Sequence[tuple[int, int]], uses: int) -> Self:
        """Zeros around what is used so often; what it is computed from then is computed once, into memory."""
        x = self
        if uses < WORTH_MEMORY:
            return x.pad(around)
        _, base = through(x.uop, _SAME_VALUES)
        if base.op not in (Ops.BUFFER, Ops.ASSIGN, Ops.CONTIGUOUS, Ops.REDUCE, Ops.CONST, Ops.LEAF):
            x = x.contiguous()
        return x.pad(around)

    def _cut_to(self, sizes: Sequence[Size]) -> Self:
        """The first elements along the last axes."""
        lead = self.ndim - len(sizes)
        return self.shrink([*(None,) * lead, *((0, s) for s in sizes)])

    # -- the three products of windows, without gradients of their own -------------------------------------------------
    def _correlate(self, w: Self, steps: Sequence[int], apart: Sequence[int], groups: int) -> Self:
        """x (N, G·C, n…) with w (G·O, C, k…) → (N, G·O, o…)."""
        n = len(steps)
        kernel = w.shape[2:]
        t = self._patches(kernel, steps, apart)  # type: ignore[arg-type]
        out = t.shape[2 : 2 + n]
        batch, channels, outputs = self.shape[0], w.shape[1], size_prod((w.shape[0],)) // groups
        t = t._reshape((batch, groups, 1, channels, *out, *kernel))
        v = w._reshape((1, groups, outputs, channels, *(1,) * n, *kernel))
        y = t.mul(v).sum((3, *range(4 + n, 4 + 2 * n)))
        return y._reshape((batch, groups * outputs, *out))

    def _weight_gradient(self, g: Self, w: Self, steps: Sequence[int], apart: Sequence[int], groups: int) -> Self:
        """Of `_correlate`: x (N, G·C, n…), g (N, G·O, o…) → (G·O, C, k…)."""
        n = len(steps)
        kernel = w.shape[2:]
        t = self._patches(kernel, steps, apart)  # type: ignore[arg-type]
        out = t.shape[2 : 2 + n]
        batch, channels, outputs = self.shape[0], w.shape[1], size_prod((w.shape[0],)) // groups
        t = t._reshape((batch, groups, 1, channels, *out, *kernel))
        v = g._cut_to([size_max(s) for s in out])._reshape((batch, groups, outputs, 1, *out, *(1,) * n))
        y = t.mul(v).sum((0, *range(4, 4 + n)))
        return y._reshape((groups * outputs, channels, *kernel))

    def _transposed(
        self,
        w: Self,
        steps: Sequence[int],
        apart: Sequence[int],
        groups: int,
        before: Sequence[int],
        sizes: Sequence[int],
    ) -> Self:
        """The gradient of `_correlate` with respect to elements `before` … `before` + `sizes` of its input: g (N, G·O,
        o…), w (G·O, C, k…) → (N, G·C, n…).

        With a step s, elements of one remainder modulo s meet the same weights, every s-th: the remainders are
        outputs of one convolution without step. Where s does not divide the kernel, some meet one weight less, or none.
        """
        n = len(steps)
        batch, channels, outputs = self.shape[0], w.shape[1], size_prod((w.shape[0],)) // groups
        blocks, gaps, around, places, turned = [], [], [], [], list[int]()
        meets, some = list[Self](), dict[int, tuple[int, int]]()
        for i, (s, d, first, size) in enumerate(zip(steps, apart, before, sizes, strict=True)):
            axis = 2 + 2 * i
            k = w.shape[axis]
            assert isinstance(k, int)
            outer, inner = w.shape[:axis], w.shape[axis + 1 :]
            if s > 1 and d > 1:  # the kernel with its gaps
                w = w.unsqueeze(axis + 1).pad([(0, 0)] * (axis + 1) + [(0, d - 1)] + [(0, 0)] * len(inner))
                w, k = w._reshape((*outer, k * d, *inner)), k * d
            count = -(-k // s)
            w = w.pad([(0, 0)] * axis + [(0, count * s - k)] + [(0, 0)] * len(inner))
            w = w._reshape((*outer, count, s, *inner))
            if k < s and (-first) % s + k <= s:  # the remainders that meet a weight
                some[i] = (-first) % s, (-first) % s + k
            elif count * s > k and size_max(outputs) > 1:
                # windows are turned, not the kernel: the weight that is missing is the last one
                met = self._iota(count * s).lt(k)._reshape((count, s))
                met = met.repeat(1, 2)._along(1, first % s, first % s + s).permute(1, 0)
                of_axis = [s if j == i else count if j == 2 * n + i else 1 for j in range(3 * n)]
                meets.append(met._reshape((1, 1, 1, 1, *of_axis)))
                turned.append(2 + n + i)
            w = w if 2 + n + i in turned else w.flip(axis)
            blocks.append(count)
            gaps.append(d if s == 1 else 1)
            reach = (count - 1) * gaps[-1]
            there = self._fixed(2 + i, "convolution") + reach
            places.append(max(-(-min(size, there * s - first) // s), 1))
            around.append((reach, reach + max(-(-first // s) + places[-1] - there, 0)))
        t = self._padded([(0, 0), (0, 0), *around], WORTH_MEMORY)._patches(blocks, (1,) * n, gaps)
        t = t.flip(*turned) if turned else t
        w = w if meets or some else w._padded([(0, 0)] * w.ndim, WORTH_MEMORY)  # in memory, if it was padded
        for i, (s, first, count) in enumerate(zip(steps, before, places, strict=True)):
            # element place · step + remainder is at `first` more than that, from where windows and weights are taken
            axis = 2 + 2 * i
            t = t.unsqueeze(axis + 1)._broadcast_to((*t.shape[: axis + 1], s, *t.shape[axis + 1 :]))
            t = t._reshape((*t.shape[:axis], size_prod(t.shape[axis : axis + 2]), *t.shape[axis + 2 :]))
            t = t._along(axis, first, first + count * s)
            t = t._reshape((*t.shape[:axis], count, s, *t.shape[axis + 1 :]))
            if first % s:
                w = w.repeat(*(2 if a == 3 + 2 * i else 1 for a in range(w.ndim)))
                w = w._along(3 + 2 * i, first % s, first % s + s)
            if i in some:
                t, w = t._along(axis + 1, *some[i]), w._along(3 + 2 * i, *some[i])
        # remainders before places: what is computed one after the other lies side by side
        t = t._reshape((batch, groups, outputs, 1, *t.shape[2:]))
        t = t.permute(*range(4), *range(5, 5 + 2 * n, 2), *range(4, 4 + 2 * n, 2), *range(4 + 2 * n, 4 + 3 * n))
        # (G·O, C, blocks and steps in turn) → (1, G, O, C, steps…, 1…, blocks…)
        v = w.permute(0, 1, *range(3, 3 + 2 * n, 2), *range(2, 2 + 2 * n, 2))
        ends = [some.get(i, (0, s)) for i, s in enumerate(steps)]
        v = v._reshape((1, groups, outputs, channels, *(end - start for start, end in ends), *(1,) * n, *blocks))
        y = t.mul(v)
        for met in meets:
            y = met.where(y, 0)
        y = y.sum((2, *range(4 + 2 * n, 4 + 3 * n)))  # (N, G, C, steps…, places…)
        rest = [(start, s - end) for s, (start, end) in zip(steps, ends, strict=True)]
        y = y.pad([(0, 0)] * 3 + rest + [(0, 0)] * n)._dealt_out(steps, sizes)
        return y._reshape((batch, groups * channels, *y.shape[3:]))

    def _dealt_out(self, steps: Sequence[int], sizes: Sequence[Any]) -> Self:
        """(…, steps…, places…) → (…, sizes…): element place · step + remainder of each of the last axes, cut or padded
        to `sizes`."""
        n, lead = len(steps), self.ndim - 2 * len(steps)
        y = self.contiguous() if any(s > 1 for s in steps) else self
        y = y.permute(*range(lead), *(lead + j for i in range(n) for j in (n + i, i)))
        here = [size_max(q) * s for q, s in zip(self.shape[lead + n :], steps, strict=True)]
        y = y._reshape((*self.shape[:lead], *here))._cut_to([min(a, b) for a, b in zip(here, sizes, strict=True)])
        return y.pad([*((0, 0),) * lead, *((0, max(b - a, 0)) for a, b in zip(here, sizes, strict=True))])


def _padding(method: str, padding: Any, steps: Sequence[int], reach: Sequence[int]) -> list[tuple[int, int]]:
    """(before, after) for each axis; `reach` is the size of the dilated kernel, less 1."""
    if isinstance(padding, str):
        if padding == "valid":
            return [(0, 0)] * len(reach)
        if padding != "same" or any(s != 1 for s in steps):
            raise ValueError(
                f'{method}: padding must be numbers, "valid", or, with stride 1, "same"; got {padding!r} with stride '
                f"{tuple(steps)}"
            )
        return [(r // 2, r - r // 2) for r in reach]
    pairs = list(padding) if isinstance(padding, Sequence) else [padding]
    if len(pairs) == 1:
        pairs *= len(reach)
    around = [tuple(p) if isinstance(p, Sequence) else (p, p) for p in pairs]
    if len(around) != len(reach) or not all(len(p) == 2 and all(map(_is_size, p)) for p in around):
        raise ValueError(
            f"{method}: padding must be at least 0, a number or a pair for each of {len(reach)} axes, got {padding!r}"
        )
    return [(operator.index(before), operator.index(after)) for before, after in around]


def _is_size(x: Any) -> bool:
    return hasattr(x, "__index__") and not isinstance(x, bool) and operator.index(x) >= 0
