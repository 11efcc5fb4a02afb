"""Convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.common import cast, fixed
from tinyweb.formats.onnx.operators.integer import channels_first, convolution, factor, how_many
from tinyweb.formats.onnx.operators.windows import border, windows
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.stored import Scaled
from tinyweb.graph.ir import Size, size_add, size_mul, size_sub
from tinyweb.tensor import Tensor


def of_axes(call: Call, name: str, n: int) -> Any:
    """The method of Tensor for so many axes."""
    if not 1 <= n <= 3:
        raise call.unsupported(f"{n} axes beside batch and channels; one to three are supported")
    return getattr(Tensor, f"{name}{n}d")


def convolve(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    n = x.ndim - 2
    if w.ndim != x.ndim:
        raise call.error(f"weights have {w.ndim} axes, the input {x.ndim}")
    at = windows(call, x.shape[2:], [fixed(s) for s in w.shape[2:]])
    compute = of_axes(call, "conv", n)
    around: Any = at.padding
    if not all(isinstance(p, int) for pair in around for p in pair):
        x, around = border(x, at), 0
    y: Tensor = compute(x, w, b, stride=at.step, padding=around, dilation=at.apart, groups=call.integer("group", 1))
    return y


@op("Conv", stored=(0, 1))
def conv(call: Call, x: Any, w: Any, b: Tensor | None = None) -> Tensor:
    scaled = isinstance(x, Scaled) and isinstance(w, Scaled) and how_many(x.scale) == 1
    if scaled and (how_many(w.scale) == 1 or w.axis == 0):
        sums = convolution(call, x.integers, x.zero, 1, w.integers, w.zero)
        if sums is not None:
            y = sums.cast(dtypes.float32) * factor(call, x.scale, w.scale)
            return channels_first(y if b is None else y + b)
    x, w = call.given(x), call.given(w)
    return cast(convolve(call, x, w, b), x.dtype)


@op("ConvInteger", stored=(0, 1, 2, 3))
def conv_integer(call: Call, x: Any, w: Any, zero_x: Any = None, zero_w: Any = None) -> Tensor:
    sums = convolution(call, x, zero_x, 1, w, zero_w)
    if sums is not None:
        return channels_first(sums)
    x, w, zero_x, zero_w = (call.given(v) for v in (x, w, zero_x, zero_w))
    return cast(convolve(call, centred(x, zero_x), centred(w, zero_w, 0)), dtypes.int32)


def centred(x: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """Integers less their zero point, one for all or for each place along an axis, as int32."""
    y = x.cast(dtypes.int32)
    if zero is None:
        return y
    z = zero.cast(dtypes.int32)
    return y - (z.reshape(()) if z.numel() == 1 else z.reshape(*(-1 if i == axis else 1 for i in range(x.ndim))))


@op("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    n, sizes = x.ndim - 2, x.shape[2:]
    kernel = [fixed(s) for s in w.shape[2:]]
    step, apart = call.integers("strides", [1] * n), call.integers("dilations", [1] * n)
    more = call.integers("output_padding", [0] * n)
    full = [size_add(size_mul(size, s), d * (k - 1) + 1 - s) for size, s, d, k in zip(sizes, step, apart, kernel)]
    around = _borders(call, sizes, full, step, more)
    compute = of_axes(call, "conv_transpose", n)
    options: dict[str, Any] = {"stride": step, "dilation": apart, "groups": call.integer("group", 1)}
    if all(before == after >= 0 for before, after in around) and all(m < s for m, s in zip(more, step)):
        y: Tensor = compute(x, w, b, padding=[p for p, _ in around], output_padding=more, **options)
        return cast(y, x.dtype)
    y = compute(x, w, None, **options)
    y = y.pad([(0, 0), (0, 0), *((-before, m - after) for (before, after), m in zip(around, more))])
    return cast(y if b is None else y + b.reshape(-1, *(1,) * n), x.dtype)


def _borders(
    call: Call, sizes: Sequence[Size], full: Sequence[Size], step: Sequence[int], more: Sequence[int]
) -> list[tuple[int, int]]:
    """What is cut off in front and behind along each axis."""
    n = len(sizes)
    pads, how = call.integers("pads", [0] * (2 * n)), call.text("auto_pad", "")
    wanted: Sequence[Size] | None = call.integers("output_shape", None)
    if wanted is None and how.startswith("SAME"):
        wanted = [size_mul(size, s) for size, s in zip(sizes, step)]
    if wanted is None:
        return [(pads[i], pads[i + n]) for i in range(n)]
    totals = [fixed(size_sub(size_add(f, m), w)) for f, m, w in zip(full, more, wanted[-n:])]
    lower = how != "SAME_UPPER"  # which end the odd one is cut from
    return [(t - t // 2, t // 2) if lower else (t // 2, t - t // 2) for t in totals]
