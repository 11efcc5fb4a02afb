"""Resizing: each axis by itself, as weighted sums of neighbours whose places and weights are known."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.operators.common import cast, whole_axes, wide
from tinyweb.formats.onnx.operators.resize_varying import Axis, fraction_of, resize_varying
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.sizes import fixed_hint
from tinyweb.graph.ir import Ops, as_index, size_div, size_max, size_mul
from tinyweb.graph.schedule.indexing import same
from tinyweb.graph.symbolic.linear import exact_quotient
from tinyweb.tensor import Tensor

MANY = 16  # neighbours: from there on a product with a matrix takes their place
ANYWHERE = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn")  # the same for all sizes
COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
               "tf_crop_and_resize", "tf_half_pixel_for_nn")  # fmt: skip


def _origin(call: Call, a: Axis, mode: str) -> Host:
    """The places of the new elements among the old ones."""
    x: Host = np.arange(a.out, dtype=np.float64)
    n, out, s = int(a.n), int(a.out), float(a.scale)
    if mode == "align_corners":
        return x * (n - 1) / (n * s - 1) if out > 1 else x * 0
    if mode == "asymmetric":
        return x / s
    if mode == "tf_crop_and_resize":
        if out > 1:
            return a.begin * (n - 1) + x * (a.end - a.begin) * (n - 1) / (out - 1)
        return np.full(out, 0.5 * (a.begin + a.end) * (n - 1))
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / s
    if mode == "pytorch_half_pixel" and out <= 1:
        return x * 0 - 0.0
    half = (x + 0.5) / s - 0.5
    if mode == "half_pixel_symmetric":
        half = half + n / 2 * (1 - out / (n * s))
    return half


def _nearest(at: Host, how: str) -> Host:
    if how == "floor":
        return np.floor(at)
    if how == "ceil":
        return np.ceil(at)
    return np.ceil(at - 0.5) if how == "round_prefer_floor" else np.floor(at + 0.5)


def _nearest_mode(call: Call, coordinates: str) -> str:
    how = call.choice("nearest_mode", "round_prefer_floor",
                      ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))  # fmt: skip
    return "floor" if call.version < 11 or coordinates == "tf_half_pixel_for_nn" else how


def _nearest_places(call: Call, a: Axis, coordinates: str) -> Host:
    places = _nearest(_origin(call, a, coordinates), _nearest_mode(call, coordinates))
    return places.clip(0, a.n - 1).astype(np.int32)


def _repeats(places: Host, a: Axis) -> bool:
    """Whether each element is there again and again, and nothing else."""
    times = a.out // a.n
    return bool(times * a.n == a.out and (places == np.arange(a.out) // max(times, 1)).all())


def _again(x: Tensor, axis: int, times: int) -> Tensor:
    shape = x.shape
    y = x.unsqueeze(axis + 1).expand(*shape[: axis + 1], times, *shape[axis + 1 :])
    return y.reshape(*shape[:axis], size_mul(shape[axis], times), *shape[axis + 1 :])


def _kernel(mode: str, a: float) -> Any:
    """The weight of a neighbour by its distance: a triangle, or Keys' cubic convolution (1981)."""

    def cubic(d: Host) -> Host:
        d = np.abs(d)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((d - 5) * d + 8) * d * a - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))

    def linear(d: Host) -> Host:
        near: Host = np.maximum(1 - np.abs(d), 0)
        return near

    return cubic if mode == "cubic" else linear


def _taps(call: Call, a: Axis, mode: str, at: Host) -> tuple[Host, Host]:
    """(places, weights) of the neighbours: (out, neighbours) each."""
    reach = 2 if mode == "cubic" else 1
    stretch = max(1.0, 1 / a.scale) if call.integer("antialias", 0) else 1.0
    reach = math.ceil(reach * stretch)
    first = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    weights = _kernel(mode, call.real("cubic_coeff_a", -0.75))((first - at[:, None]) / stretch)
    if call.integer("exclude_outside", 0) or stretch > 1:
        outside = (first < 0) | (first >= a.n)
        weights = np.where(outside & bool(call.integer("exclude_outside", 0)), 0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return first.clip(0, a.n - 1), weights


def resize_axis(call: Call, x: Tensor, a: Axis, mode: str, coordinates: str) -> Tensor:
    if a.varies:
        if mode == "nearest" and a.scale is not None and a.scale.denominator == 1 and coordinates in ANYWHERE:
            n = size_max(a.n)
            largest = Axis(a.axis, n, n * a.scale.numerator, float(a.scale))
            if _repeats(_nearest_places(call, largest, coordinates), largest):
                return _again(x, a.axis, a.scale.numerator)
        return resize_varying(call, x, a, mode, coordinates, _nearest_mode(call, coordinates))
    at = _origin(call, a, coordinates)
    if mode == "nearest":
        places = _nearest_places(call, a, coordinates)
        if _repeats(places, a):
            return _again(x, a.axis, a.out // a.n)
        return x.take(Tensor(places, device=x.device), a.axis)
    places, weights = _taps(call, a, mode, at)
    lead, behind = (1,) * a.axis, (1,) * (x.ndim - a.axis - 1)
    if places.shape[1] > MANY:
        matrix = np.zeros((a.n, a.out), np.float64)
        np.add.at(matrix, (places, np.arange(a.out)[:, None]), weights)
        y = x.movedim(a.axis, -1).matmul(Tensor(matrix.astype(np.float32), device=x.device))
        return y.movedim(-1, a.axis)
    parts: list[Tensor] = []
    for k in range(places.shape[1]):
        if not weights[:, k].any():
            continue
        part = x.take(Tensor(np.ascontiguousarray(places[:, k], np.int32), device=x.device), a.axis)
        w = Tensor(np.ascontiguousarray(weights[:, k], np.float32), device=x.device).reshape(*lead, -1, *behind)
        parts.append(part * w)
    return sum(parts[1:], parts[0])


def _axes(call: Call, x: Tensor, roi: Host | None, scales: Host | None, sizes: Host | None) -> list[Axis]:
    along = whole_axes(call, call.integers("axes", range(x.ndim)), x.ndim)
    told = scales if sizes is None or not sizes.size else sizes
    if told is None or not told.size:
        raise call.error("neither sizes nor scales are given")
    if told.size != len(along):
        raise call.error(f"{told.size} scales or sizes are given for {len(along)} axes")
    policy = call.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    crop = roi is not None and call.text("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    # what varies may stay as it is
    moved, varying = list[tuple[int, int, int, float]](), list[Axis]()
    for i, (a, n) in enumerate(zip(along, told.tolist())):
        old = x.shape[a]
        if isinstance(old, int) and isinstance(n, int | float):
            moved.append((i, a, old, n))
        elif not same(n, old if told is sizes else 1):
            if crop or policy != "stretch":
                raise call.unsupported(f"a size varies, and {fixed_hint([n, old])}")
            times = exact_quotient(as_index(n), as_index(old)) if told is sizes else None
            scale = fraction_of(n, old) if told is not sizes else None
            if times is not None and times.op is Ops.CONST:
                scale = Fraction(int(times.arg))
            out = n if scale is None else size_div(size_mul(old, scale.numerator), scale.denominator)
            varying.append(Axis(a, old, out, scale))
    factors = [n / old if told is sizes else n for _, _, old, n in moved]
    wanted = [int(n) for *_, n in moved] if told is sizes else []
    if told is sizes and policy != "stretch":
        one = min(factors) if policy == "not_larger" else max(factors)
        factors, wanted = [one] * len(moved), [math.floor(one * old + 0.5) for _, _, old, _ in moved]
    found = []
    for k, (i, a, n, _) in enumerate(moved):
        begin, end = (float(roi[i]), float(roi[i + len(along)])) if crop and roi is not None else (0.0, 1.0)
        out = wanted[k] if wanted else math.floor(n * (end - begin) * factors[k])
        call.afford(out)
        found.append(Axis(a, n, out, factors[k], begin, end))
    return [*found, *varying]


@op("Resize", since=10, host=(1, 2, 3), sizes=True)
def resize(
    call: Call, x: Tensor, roi: Host | None = None, scales: Host | None = None, sizes: Host | None = None
) -> Tensor:
    if call.version == 10:
        roi, scales = None, roi
    default = "asymmetric" if call.version == 10 else "half_pixel"
    coordinates = call.choice("coordinate_transformation_mode", default, COORDINATES)
    mode = call.choice("mode", "nearest", ("nearest", "linear", "cubic"))
    return _resize(call, x, _axes(call, x, roi, scales, sizes), mode, coordinates)


def _resize(call: Call, x: Tensor, axes: list[Axis], mode: str, coordinates: str) -> Tensor:
    y, outside = x if mode == "nearest" else wide(x if x.dtype.is_float else x.cast(dtypes.float32)), []
    for a in axes:
        if coordinates == "tf_crop_and_resize":
            at = _origin(call, a, coordinates)
            outside.append((a, (at < 0) | (at > a.n - 1)))
        elif a.out == a.n and a.scale == 1:
            continue
        y = resize_axis(call, y, a, mode, coordinates)
    for a, beyond in outside:
        if beyond.any():
            gone = Tensor(beyond, device=x.device).reshape(*(-1 if i == a.axis else 1 for i in range(x.ndim)))
            y = gone.where(call.real("extrapolation_value", 0.0), y)
    if not x.dtype.is_float and mode != "nearest":
        y = y.round().clamp(x.dtype.min, x.dtype.max)
    return cast(y, x.dtype)


@op("Upsample", host=(1,))
def upsample(call: Call, x: Tensor, scales: Host | None = None) -> Tensor:
    factors = np.array(call.reals("scales"), np.float32) if scales is None else scales
    mode = call.choice("mode", "nearest", ("nearest", "linear", "bilinear"))
    return _resize(call, x, _axes(call, x, None, factors, None), mode.removeprefix("bi"), "asymmetric")
