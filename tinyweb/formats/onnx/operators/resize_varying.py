"""Resizing along an axis whose size varies: places of elements are fractions of whole numbers, computed exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.movement import steps
from tinyweb.formats.onnx.sizes import fixed_hint, size_low
from tinyweb.graph.ir import Size, as_index, size_max, size_mul, size_sub
from tinyweb.graph.ir.bounds import fold_size
from tinyweb.tensor import Tensor

MOST = 2**31 - 1  # what the int32 numerators hold
FINE = 1 << 12  # the largest denominator of places
MANY = 1 << 20  # sizes that are tried one by one


@dataclass(frozen=True)
class Axis:
    """How one axis is resized: `n` elements to `out`, `scale` times as many, from `begin` to `end` of it. `scale` is a
    fraction, or None for out / n, where sizes vary."""

    axis: int
    n: Any
    out: Any
    scale: Any
    begin: float = 0.0
    end: float = 1.0

    @property
    def varies(self) -> bool:
        return not (isinstance(self.n, int) and isinstance(self.out, int))


def fraction_of(scale: float, n: Size) -> Fraction:
    """The fraction that a scale stands for: as many elements of n come of it as of the float. NotImplementedError where
    no simple one does."""
    each = range(size_low(n), size_max(n) + 1)
    for most in (1 << 6, 1 << 12, 1 << 24) if len(each) <= MANY else ():
        found = Fraction(scale).limit_denominator(most)
        p, q = found.numerator, found.denominator
        if each[-1] * p <= MOST and all(k * p // q == math.floor(k * scale) for k in each):
            return found
    raise NotImplementedError(f"a size that varies is made {scale} times as large, which is no simple fraction")


def _places(a: Axis, mode: str, x: Tensor) -> tuple[Tensor, Size]:
    """(numerators, denominator) of the places of the new elements among the old ones; `x`: their numbers."""
    scale = None if a.scale is None else a.scale.limit_denominator(FINE)
    p, q = (a.out, a.n) if scale is None else (scale.numerator, scale.denominator)
    if mode == "align_corners":  # x (n - 1) / (n s - 1)
        ends = size_sub(size_mul(p, a.n) if a.scale is not None else p, q if a.scale is not None else 1)
        times = size_mul(size_sub(a.n, 1), 1 if scale is None else q)
        return x * times, fold_size(as_index(ends).maximum(1))
    if mode == "asymmetric":
        return x * q, p
    if mode == "tf_half_pixel_for_nn":
        return (x * 2 + 1) * q, size_mul(p, 2)
    at = (x * 2 + 1) * q - p  # (x + 1/2) q / p - 1/2
    if mode == "half_pixel_symmetric" and a.scale is not None:
        at = at + size_sub(size_mul(a.n, p), size_mul(a.out, q))
    if mode == "pytorch_half_pixel":
        at = at * _truth(a.out)
    return at, size_mul(p, 2)


def _truth(out: Size) -> Size:
    """0 where there is one element, else 1."""
    return fold_size(as_index(size_sub(out, 1)).maximum(0).minimum(1))


def resize_varying(call: Call, x: Tensor, a: Axis, mode: str, coordinates: str, how: str) -> Tensor:
    """x with the elements of one axis taken, or summed with weights, at their places."""
    smooth = bool(call.integer("antialias", 0)) and mode != "nearest"
    if coordinates == "tf_crop_and_resize" or (smooth and a.scale is None):
        raise call.unsupported(f"antialias, or cutting parts out, along a size that varies: {fixed_hint([a.n, a.out])}")
    factor = size_max(a.n) * (1 if a.scale is None or coordinates != "align_corners" else FINE)
    if 4 * (size_max(a.out) + 1) * max(factor, FINE) > MOST:
        raise call.unsupported(f"resizing along a size that varies up to {size_max(a.out)}")
    numbers = steps(call, a.out)
    numbers = numbers if isinstance(numbers, Tensor) else Tensor(numbers.astype(np.int32), device=x.device)
    at, below = _places(a, coordinates, numbers)
    last = size_sub(a.n, 1)

    def floor(numerator: Tensor, denominator: Size) -> Tensor:
        return numerator.div(denominator, rounding_mode="floor")

    def taken(place: Tensor) -> Tensor:
        return x.take(place.maximum(0).minimum(last), a.axis)

    if mode == "nearest":
        if how == "floor":
            return taken(floor(at, below))
        if how == "ceil":
            return taken(-floor(-at, below))
        twice = size_mul(below, 2)
        return taken(floor(at * 2 + below, twice) if how == "round_prefer_ceil" else -floor(-at * 2 + below, twice))
    first = floor(at, below)
    part = (at - first * below).cast(dtypes.float32) / below
    stretch = max(1.0, 1 / a.scale) if smooth else 1.0
    reach = math.ceil((2 if mode == "cubic" else 1) * stretch)
    taps = [(first + k, _weight(call, mode, (k - part).abs() / float(stretch))) for k in range(1 - reach, reach + 1)]
    outside = bool(call.integer("exclude_outside", 0))
    if outside or stretch > 1:
        inside = [((place >= 0) & (place <= last)).where(w, 0.0) if outside else w for place, w in taps]
        total = sum(inside[1:], inside[0])
        taps = [(place, w / total) for (place, _), w in zip(taps, inside)]
    parts = [taken(place) * w.reshape(-1, *(1,) * (x.ndim - a.axis - 1)) for place, w in taps]
    return sum(parts[1:], parts[0])


def _weight(call: Call, mode: str, d: Tensor) -> Tensor:
    """Of a neighbour at this distance: a triangle, or Keys' cubic convolution (1981)."""
    if mode != "cubic":
        return (1 - d).maximum(0.0)
    a = call.real("cubic_coeff_a", -0.75)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return (d <= 1).where(near, (d < 2).where(far, 0.0))
