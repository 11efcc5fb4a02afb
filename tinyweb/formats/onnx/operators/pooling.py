"""Poolings over windows and over whole planes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.operators.common import cast, fixed, wide
from tinyweb.formats.onnx.operators.convolution import of_axes
from tinyweb.formats.onnx.operators.windows import Windows, border, cut, windows
from tinyweb.formats.onnx.registry import op
from tinyweb.graph.ir import Size, size_add, size_max, size_mul, size_prod
from tinyweb.tensor import Tensor

MANY_BINS = 1 << 14  # of regions: each is a maximum of its own


@op("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
    sizes = x.shape[2:]
    at = windows(call, sizes)
    compute = of_axes(call, "max_pool", len(sizes))
    least = x.dtype.min if x.dtype.is_int else -math.inf
    t = border(x, at, float(least))
    found = compute(t, at.kernel, at.step, 0, at.apart, return_indices=len(call.node.outputs) > 1)
    if len(call.node.outputs) < 2:
        return found
    y, place = found
    return y, _places(call, place, x, at)


def _places(call: Call, place: Tensor, x: Tensor, at: Windows) -> Tensor:
    """Places in a plane with its borders as places in the whole flattened tensor."""
    sizes = x.shape[2:]
    wide_sizes = [size_add(n, size_add(*p)) for n, p in zip(sizes, at.padding)]
    rest, coordinates = place.cast(dtypes.int64), list[Tensor]()
    for n, (before, _) in reversed(list(zip(wide_sizes, at.padding))):
        coordinates.insert(0, rest.remainder(n) - before)
        rest = rest.div(n, rounding_mode="floor")
    column_first = call.integer("storage_order", 0)
    flat: Any = 0
    for i in range(len(sizes)):
        step = size_prod(sizes[:i] if column_first else sizes[i + 1 :])
        flat = flat + coordinates[i] * step
    count = size_mul(x.shape[0], x.shape[1])
    planes = Tensor.arange(size_max(count), dtype=dtypes.int64, device=x.device)
    planes = call.part(planes, [count]) * size_prod(sizes)
    found_at: Tensor = flat + planes.reshape(x.shape[0], x.shape[1], *(1,) * len(sizes))
    return cast(found_at, dtypes.int64)


@op("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    sizes = x.shape[2:]
    at = windows(call, sizes)
    y, bare = wide(x), all(n == 0 for pair in at.around for n in pair)
    counts_all = not any(n != 0 for n in at.beyond) and (call.integer("count_include_pad", 0) or bare)
    if counts_all and all(d == 1 for d in at.apart) and 1 <= len(sizes) <= 3:
        mean: Tensor = of_axes(call, "avg_pool", len(sizes))(border(y, at), at.kernel, at.step)
        return cast(mean, x.dtype)
    last = tuple(range(x.ndim, x.ndim + len(sizes)))
    return cast(cut(border(y, at), at).sum(last) / _elements(call, x, at), x.dtype)


def _elements(call: Call, x: Tensor, at: Windows) -> Tensor:
    """How many elements of each window count."""
    sizes, n = x.shape[2:], x.ndim - 2
    inner: Sequence[tuple[Size, Size]] = [(0, 0)] * n
    outer: Sequence[tuple[Size, Size]] = at.padding
    if call.integer("count_include_pad", 0):
        inner, outer = at.around, [(0, m) for m in at.beyond]
    if not all(isinstance(s, int) for s in sizes):
        ones = call.part(Tensor.ones(*map(size_max, sizes), dtype=dtypes.float32, device=x.device), sizes)
        counted = ones.pad(inner, value=1.0).pad(outer)
        return cut(counted.reshape(1, 1, *counted.shape), at).sum(tuple(range(2 + n, 2 + 2 * n)))
    call.afford(size_prod(size_add(s, size_add(*p)) for s, p in zip(sizes, at.padding)))
    inside: Host = np.ones([fixed(s) for s in sizes], np.float32)
    for around, value in ((inner, 1), (outer, 0)):
        inside = np.pad(inside, [(fixed(b), fixed(a)) for b, a in around], constant_values=value)
    for i, (k, s, d) in enumerate(zip(at.kernel, at.step, at.apart)):
        views = np.lib.stride_tricks.sliding_window_view(inside, (k - 1) * d + 1, i)
        inside = np.take(views, np.arange(0, views.shape[i], s), i)[..., ::d].sum(-1)
    return Tensor(inside.astype(np.float32), device=x.device)


@op("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
    sizes = x.shape[2:]
    at = windows(call, sizes)
    p = call.integer("p", 2) if call.version > 1 else call.real("p", 2.0)
    last = tuple(range(x.ndim, x.ndim + len(sizes)))
    return cast(cut(border(wide(x).abs().pow(p), at), at).sum(last).pow(1 / p), x.dtype)


@op("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
    return cast(wide(x).mean(tuple(range(2, x.ndim)), True), x.dtype)


@op("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
    flat = x.reshape(x.shape[0], x.shape[1], -1)
    found: Any = flat.max(2)
    y = found if isinstance(found, Tensor) else found[0]
    return y.reshape(x.shape[0], x.shape[1], *(1,) * (x.ndim - 2))


@op("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Tensor:
    p = call.integer("p", 2)
    return cast(wide(x).abs().pow(p).sum(tuple(range(2, x.ndim)), True).pow(1 / p), x.dtype)


@op("MaxUnpool", host=(2,))
def max_unpool(call: Call, x: Tensor, places: Tensor, shape: Host | None = None) -> Tensor:
    sizes = [fixed(s) for s in x.shape[2:]]
    n = len(sizes)
    kernel, step, pads = (
        call.integers("kernel_shape"),
        call.integers("strides", [1] * n),
        call.integers("pads", [0] * (2 * n)),
    )
    made = [(size - 1) * s - pads[i] - pads[i + n] + k for i, (size, s, k) in enumerate(zip(sizes, step, kernel))]
    lead = [fixed(s) for s in x.shape[:2]]
    whole = [*lead, *made]
    flat = Tensor.zeros(math.prod(whole), dtype=x.dtype, device=x.device)
    y = flat.scatter(0, places.reshape(-1).cast(dtypes.int32), x.reshape(-1)).reshape(*whole)
    if shape is None:
        return y
    return y.pad([(0, int(w) - n) for w, n in zip(shape.tolist(), whole)])


@op("MaxRoiPool", host=(1,))
def max_roi_pool(call: Call, x: Tensor, rois: Host) -> Tensor:
    """One maximum for each bin of each region (Girshick 2015)."""
    height, width = call.integers("pooled_shape")
    scale, (h, w) = call.real("spatial_scale", 1.0), (fixed(x.shape[2]), fixed(x.shape[3]))
    found = []
    if rois.size // 5 * height * width > MANY_BINS:
        raise call.unsupported(f"{rois.size // 5 * height * width} maxima, more than {MANY_BINS}")
    for roi in rois.reshape(-1, 5):
        left, top, right, bottom = (int(np.floor(v * scale + 0.5)) for v in roi[1:])
        high, broad = max(bottom - top + 1, 1), max(right - left + 1, 1)
        for i in range(height):
            for j in range(width):
                a, b = top + i * high // height, top - (-(i + 1) * high // height)
                c, d = left + j * broad // width, left - (-(j + 1) * broad // width)
                part = x[int(roi[0]), :, max(a, 0) : min(b, h), max(c, 0) : min(d, w)]
                found.append(part.reshape(x.shape[1], -1).max(1) if part.numel() else part.sum((1, 2)))
    values = [v if isinstance(v, Tensor) else v[0] for v in found]
    return Tensor.stack(*values, axis=1).reshape(x.shape[1], -1, height, width).permute(1, 0, 2, 3)
