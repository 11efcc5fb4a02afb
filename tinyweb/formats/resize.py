"""Pictures scaled with a filter that is as wide as what becomes one pixel, as Pillow 13 does it: along rows and along
columns, rounded to bytes after each, with weights of BITS binary digits behind the point. Values are Pillow's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
BITS = 22
BLOCK = 16  # lines of the result that are made at a time


def _triangle(x: Floats) -> Floats:
    found: Floats = np.maximum(1 - np.abs(x), 0)
    return found


def _cubic(x: Floats) -> Floats:
    """Convolution with a cubic kernel, a = −1/2 (Keys 1981)."""
    a, x = -0.5, np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _lanczos(x: Floats) -> Floats:
    """The sinc function in a window of three of its arches (Duchon 1979)."""
    found: Floats = np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)
    return found


FILTERS: dict[str, tuple[Callable[[Floats], Floats], float]] = {
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}
"""A function of the distance, and from which distance on it is 0."""


def resize(pixels: Pixels, height: int, width: int, filter: str) -> Pixels:
    """A picture (H, W, channels) as (height, width, channels); `filter`: of FILTERS. KeyError for another."""
    high, wide = pixels.shape[:2]
    # Pillow begins with columns where that takes away many more lines
    if height < high and 2 * (wide - width) < high - height:
        return _scaled(_scaled(pixels, height, 0, filter), width, 1, filter)
    return _scaled(_scaled(pixels, width, 1, filter), height, 0, filter)


def _scaled(pixels: Pixels, count: int, axis: int, filter: str) -> Pixels:
    have = pixels.shape[axis]
    if have == count:
        return pixels
    lines = np.moveaxis(pixels, axis, 0)
    out = np.empty((count, *lines.shape[1:]), np.uint8)
    for begin in range(0, count, BLOCK):
        now = range(begin, min(begin + BLOCK, count))
        each = [_weights(i, have / count, have, filter) for i in now]
        low, high = each[0][0], max(first + len(weights) for first, weights in each)
        matrix = np.zeros((len(now), high - low))
        for row, (first, weights) in zip(matrix, each):
            row[first - low : first - low + len(weights)] = weights
        # sums of integers, exact in float64
        mixed = matrix @ lines[low:high].reshape(high - low, -1).astype(np.float64)
        out[begin : begin + len(now)] = np.clip(np.floor(mixed / (1 << BITS) + 0.5), 0, 255).reshape(-1, *out.shape[1:])
    return np.moveaxis(out, 0, axis)


def _weights(i: int, ratio: float, have: int, filter: str) -> tuple[int, Floats]:
    """The first of the lines that line i of the result is made of, and the weights of it and those that follow."""
    function, reach = FILTERS[filter]
    spread = max(ratio, 1.0)
    centre = (i + 0.5) * ratio
    first = max(math.floor(centre - reach * spread + 0.5), 0)
    last = min(math.floor(centre + reach * spread + 0.5), have)
    weights = function((np.arange(first, last, dtype=np.float64) - centre + 0.5) * (1 / spread))
    weights = weights * (1 / sum(weights)) * (1 << BITS)
    return first, np.trunc(weights + np.copysign(0.5, weights))
