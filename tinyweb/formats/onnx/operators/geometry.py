"""Values between the elements of images: sampling by grids, regions, and deformed windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.operators.common import cast, fixed, wide
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor


@op("GridSample")
@op("GridSample", domain="com.microsoft")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    mode = call.choice("mode", "linear", ("linear", "bilinear", "nearest", "cubic", "bicubic"))
    outside = call.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    if mode.endswith("cubic") and x.ndim != 4:
        raise call.unsupported("cubic sampling of other than planes")
    names = {"linear": "bilinear", "cubic": "bicubic"}
    corners = bool(call.integer("align_corners", 0))
    return cast(wide(x).grid_sample(wide(grid), names.get(mode, mode), outside, corners), x.dtype)


@op("AffineGrid", host=(1,))
def affine_grid(call: Call, theta: Tensor, size: Host) -> Tensor:
    call.afford(max(size.tolist(), default=0))
    return theta.affine_grid(size.tolist(), bool(call.integer("align_corners", 0)))


def sample(x: Tensor, at: Sequence[Tensor]) -> Tensor:
    """x (rows, n…) linearly between its elements, 0 outside: `at` has one (rows, places) for each axis."""
    sizes = [fixed(n) for n in x.shape[1:]]
    flat = x.reshape(x.shape[0], -1)
    low = [a.floor() for a in at]
    parts: list[Tensor] = []
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        weight: Any = 1
        place: Any = 0
        inside: Any = None
        for i, (a, first, step, n) in enumerate(zip(at, low, corner, sizes)):
            here = first + step
            weight = weight * ((a - first) if step else (1 - (a - first)))
            within = (here >= 0) & (here <= n - 1)
            inside = within if inside is None else inside & within
            place = place + here.clamp(0, n - 1).cast(dtypes.int32) * math.prod(sizes[i + 1 :])
        parts.append(flat.gather(1, place) * inside.where(weight, 0.0))
    return sum(parts[1:], parts[0])


@op("DeformConv")
def deform_conv(
    call: Call, x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Every element of every window at a place of its own (Dai et al. 2017, Zhu et al. 2019)."""
    n, count, channels = x.ndim - 2, fixed(x.shape[0]), fixed(x.shape[1])
    kernel, out = [fixed(k) for k in w.shape[2:]], [fixed(s) for s in offset.shape[2:]]
    step, apart = call.integers("strides", [1] * n), call.integers("dilations", [1] * n)
    pads, parts, groups = (
        call.integers("pads", [0] * (2 * n)),
        call.integer("offset_group", 1),
        call.integer("group", 1),
    )
    k, places = math.prod(kernel), math.prod(out)
    moved = wide(offset).reshape(count, parts, k, n, places)
    grid = np.stack(np.meshgrid(*(np.arange(s) for s in out), indexing="ij"), -1).reshape(1, places, n)
    inner = np.stack(np.meshgrid(*(np.arange(s) for s in kernel), indexing="ij"), -1).reshape(k, 1, n)
    base = (grid * step + inner * apart - np.array(pads[:n])).astype(np.float32)  # (k, places, n)
    at = []
    for i in range(n):
        still = Tensor(np.ascontiguousarray(base[..., i]), device=x.device).reshape(1, 1, k, places)
        place = (moved[:, :, :, i] + still).reshape(count, parts, 1, k * places)
        at.append(place.expand(count, parts, channels // parts, k * places).reshape(count * channels, k * places))
    values = sample(wide(x).reshape(count * channels, *x.shape[2:]), at)
    if mask is not None:
        m = wide(mask).reshape(count, parts, 1, k * places).expand(count, parts, channels // parts, k * places)
        values = values * m.reshape(count * channels, k * places)
    columns = values.reshape(count, groups, channels // groups * k, places)
    weights = wide(w).reshape(1, groups, fixed(w.shape[0]) // groups, channels // groups * k)
    y = weights.matmul(columns).reshape(count, w.shape[0], *out)
    return cast(y if b is None else y + b.reshape(-1, *(1,) * n), x.dtype)


@op("Col2Im", host=(1, 2))
def col2im(call: Call, x: Tensor, image: Host, block: Host) -> Tensor:
    """Columns added where they overlap: each element of the blocks is a picture of its own."""
    n, sizes, kernel = image.size, [int(s) for s in image], [int(s) for s in block]
    step, apart = call.integers("strides", [1] * n), call.integers("dilations", [1] * n)
    pads = call.integers("pads", [0] * (2 * n))
    counts = [(s + pads[i] + pads[i + n] - (k - 1) * d - 1) // t + 1
              for i, (s, k, d, t) in enumerate(zip(sizes, kernel, apart, step))]  # fmt: skip
    batch, k = fixed(x.shape[0]), math.prod(kernel)
    y = x.reshape(batch, -1, k, *counts)
    total: Tensor | None = None
    for j, place in enumerate(itertools.product(*(range(s) for s in kernel))):
        part = y[:, :, j]
        for i in range(n):
            axis = 2 + i
            part = part.unsqueeze(axis + 1).pad([(0, 0)] * (axis + 1) + [(0, step[i] - 1)] + [(0, 0)] * (n - 1 - i))
            part = part.reshape(*part.shape[:axis], counts[i] * step[i], *part.shape[axis + 2 :])
            before = place[i] * apart[i] - pads[i]
            around = [(0, 0)] * part.ndim
            around[axis] = (before, sizes[i] - before - counts[i] * step[i])
            part = part.pad(around)
        total = part if total is None else total + part
    assert total is not None
    return cast(total, x.dtype)
