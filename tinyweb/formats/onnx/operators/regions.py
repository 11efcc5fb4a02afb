"""Regions of pictures, of which each becomes as many numbers (He et al., Mask R-CNN, 2017)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Array, Call, Host
from tinyweb.formats.onnx.operators.common import cast, fixed, wide
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor

MANY = 1 << 12  # known regions, of which each is computed by itself


@op("RoiAlign", stored=(1, 2))
def roi_align(call: Call, x: Tensor, rois: Array, batches: Array) -> Tensor:
    height, width = call.integer("output_height", 1), call.integer("output_width", 1)
    ratio, scale = call.integer("sampling_ratio", 0), call.real("spatial_scale", 1.0)
    mode = call.choice("mode", "avg", ("avg", "max"))
    half = call.choice("coordinate_transformation_mode", "half_pixel" if call.version >= 16 else "output_half_pixel",
                       ("half_pixel", "output_half_pixel")) == "half_pixel"  # fmt: skip
    if not isinstance(rois, np.ndarray) or not isinstance(batches, np.ndarray):
        return _computed(call, x, call.given(rois), call.given(batches), half)
    if len(rois) > MANY:
        raise call.unsupported(f"{len(rois)} regions are known, more than {MANY}: Tensors are computed at once")
    h, w = fixed(x.shape[2]), fixed(x.shape[3])
    found = []
    for roi, batch in zip(rois.astype(np.float64), batches, strict=True):
        left, top, right, bottom = roi * scale - (0.5 if half else 0.0)
        broad, high = right - left, bottom - top
        if not half:
            broad, high = max(broad, 1.0), max(high, 1.0)
        ny, nx = (ratio or max(math.ceil(v), 1) for v in (high / height, broad / width))
        call.afford(height * ny * h + width * nx * w)
        y = top + (np.arange(height * ny) + 0.5) * high / (height * ny)
        z = left + (np.arange(width * nx) + 0.5) * broad / (width * nx)
        a, b = _between(y, h), _between(z, w)
        plane = x[int(batch)]  # (C, H, W)
        if mode == "avg":
            rows = Tensor(_matrix(a, h), device=x.device)
            columns = Tensor(_matrix(b, w), device=x.device)
            values = rows.matmul(wide(plane)).matmul(columns.transpose(0, 1))
            values = values.reshape(-1, height, ny, width, nx).mean((2, 4))
        else:
            values = _largest(wide(plane), a, b).reshape(-1, height, ny, width, nx)
            values = values.permute(0, 1, 3, 2, 4).reshape(-1, height, width, ny * nx).amax(-1)
        found.append(values)
    if not found:
        return Tensor.zeros(0, x.shape[1], height, width, dtype=x.dtype, device=x.device)
    return cast(Tensor.stack(*found, axis=0), x.dtype)


def _between(at: Host, n: int) -> tuple[Host, Host, Host, Host]:
    """(lower place, upper place, weight of each) of coordinates; what lies beyond by more than 1 counts as 0."""
    beyond = (at < -1) | (at > n)
    held = np.maximum(at, 0)
    low = np.minimum(np.floor(held).astype(np.int64), n - 1)
    high = np.minimum(low + 1, n - 1)
    part = np.where(low >= n - 1, 0.0, held - low)
    return low, high, np.where(beyond, 0, 1 - part), np.where(beyond, 0, part)


def _matrix(between: tuple[Host, Host, Host, Host], n: int) -> Host:
    low, high, a, b = between
    m = np.zeros((low.size, n), np.float32)
    np.add.at(m, (np.arange(low.size), low), a)
    np.add.at(m, (np.arange(low.size), high), b)
    return m


def _largest(plane: Tensor, rows: Any, columns: Any) -> Tensor:
    """The largest of the four weighted neighbours of each place, as the operator's maximum takes them."""
    best: Tensor | None = None
    for r, wr in ((rows[0], rows[2]), (rows[1], rows[3])):
        for c, wc in ((columns[0], columns[2]), (columns[1], columns[3])):
            part = plane.take(Tensor(r.astype(np.int32), device=plane.device), 1)
            part = part.take(Tensor(c.astype(np.int32), device=plane.device), 2)
            part = part * Tensor((wr[:, None] * wc[None, :]).astype(np.float32), device=plane.device)
            best = part if best is None else best.maximum(part)
    assert best is not None
    return best


def _computed(call: Call, x: Tensor, rois: Tensor, batches: Tensor, half: bool) -> Tensor:
    """Of regions that are computed, whose number may vary, all at once. Where the samples of a bin are told by its
    size, those that a bin of the whole picture has are taken, of which smaller ones use the first."""
    (channels, h, w), ratio = (fixed(s) for s in x.shape[1:]), call.integer("sampling_ratio", 0)
    height, width = call.integer("output_height", 1), call.integer("output_width", 1)
    edges = wide(rois) * call.real("spatial_scale", 1.0) - (0.5 if half else 0.0)  # left, top, right, bottom
    for bins, n in ((height, h), (width, w)):
        call.afford(bins * (ratio or -(-n // bins)))
    first = (batches.cast(dtypes.int32) * (h * w)).reshape(-1, 1, 1)
    along = [
        _samples(edges[:, i], edges[:, i + 2] - edges[:, i], bins, n, ratio, half)
        for i, bins, n in ((1, height, h), (0, width, w))
    ]
    (rows, counts), (columns, others) = along
    table = wide(x).permute(0, 2, 3, 1).reshape(-1, channels)
    parts = []
    for y, a in rows:
        for z, b in columns:
            place = first + (y * w).unsqueeze(2) + z.unsqueeze(1)  # (regions, bins · samples down, across)
            parts.append(table.take(place, 0) * (a.unsqueeze(2) * b.unsqueeze(1)).unsqueeze(3))
    largest = call.text("mode", "avg") == "max"
    total = parts[0]
    for part in parts[1:]:
        total = total.maximum(part) if largest else total + part
    down, across = fixed(total.shape[1]) // height, fixed(total.shape[2]) // width
    split = total.reshape(total.shape[0], height, down, width, across, channels)
    if largest:
        met = counts[1].unsqueeze(2) & others[1].unsqueeze(1)
        split = met.reshape(*split.shape[:5], 1).where(split, -math.inf)
        y = split.amax((2, 4))
    else:
        y = split.sum((2, 4)) / (counts[0] * others[0]).reshape(-1, 1, 1, 1)
    found: Tensor = cast(y.permute(0, 3, 1, 2), x.dtype)
    return found


def _samples(begin: Tensor, size: Tensor, bins: int, n: int, ratio: int, half: bool) -> Any:
    """Along one axis of n elements: two neighbours of each sample, (places, weights), (regions, bins · samples); and
    (samples of a bin of each region, which samples there are)."""
    size = size if half else size.maximum(1.0)
    most = ratio or max(-(-n // bins), 1)
    count = (size * 0 + ratio) if ratio else (size / bins).ceil().clamp(1, most)
    steps = Tensor.arange(bins * most, dtype=dtypes.int32, device=begin.device)
    each, which = (steps % most).cast(dtypes.float32), steps.div(most, rounding_mode="floor").cast(dtypes.float32)
    within = size.unsqueeze(1) / bins
    at = begin.unsqueeze(1) + which * within + (each + 0.5) * (within / count.unsqueeze(1))
    there = each < count.unsqueeze(1)
    inside = there & (at >= -1) & (at <= n)
    held = at.maximum(0)
    low = held.floor().minimum(n - 1)
    part = (low >= n - 1).where(0.0, held - low)
    places = low.cast(dtypes.int32)
    near = [(places, inside.where(1 - part, 0.0)), ((places + 1).minimum(n - 1), inside.where(part, 0.0))]
    return near, (count, there)
