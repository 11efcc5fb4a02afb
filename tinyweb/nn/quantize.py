"""Weights in 8 or 4 bits: integers with one half-float scale, and if asked for one zero point, for every group along
the input.

A value is (integer − zero point) · scale. Integers of 8 bits have signs, those of 4 bits are 0 … 15. The zero point of
symmetric weights is a constant: 0, of 4 bits 8. For 8 bits the scale puts a group's largest magnitude at ±127. For 4
bits it is searched: the largest magnitude is tried at several places near −8, where the integers reach farthest, each
time followed by the least-squares scale for the rounded integers; the scale of least squared error stays. With zero
points the integers cover a group's range, from its least value to its largest; of 4 bits, smaller ranges are tried in
the same way. None needs data to calibrate on.

What the result holds, and how it is multiplied, is `quantized_weight.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes
from tinyweb.nn.quantized_weight import ACTIVATIONS, QuantizedWeight, activations_for, quantize_activations
from tinyweb.tensor import Tensor

__all__ = [
    "ACTIVATIONS", "BITS", "QuantizedWeight", "activations_for", "group_size", "quantize", "quantize_activations",
    "quantize_groups", "quantize_ranges",
]  # fmt: skip
BITS = {"q8": 8, "q4": 4}
GROUP = 32
SMALLEST_GROUP = 8  # below, the scales outweigh what the integers save
CHUNK = 1 << 22  # weights quantised at a time, to bound the memory of the search
HALF_MAX = float(np.finfo(np.float16).max)


def group_size(width: int, most: int = GROUP) -> int | None:
    """Weights per scale for rows of `width`: `most`, or the largest fitting half, quarter, … of it; None below 8."""
    group = most
    while group >= SMALLEST_GROUP:
        if width % group == 0:
            return group
        group //= 2
    return None


def quantize(
    weight: npt.NDArray[Any], bits: int, device: str | None = None, group: int = GROUP, symmetric: bool = True
) -> QuantizedWeight | None:
    """A matrix (out, in) in 8 or 4 bits, in groups of up to `group` weights; None where its rows do not divide into
    groups of at least 8: keep half floats then. Not `symmetric`: with zero points.
    """
    size = group_size(weight.shape[1], group)
    if size is None:
        return None
    groups, rows = weight.reshape(-1, size), weight.shape[0]
    dtype, middle, zeros = (dtypes.int8, 0, None) if bits == 8 else (dtypes.uint4, 8, None)
    if symmetric:
        values, scales = quantize_groups(groups, bits)
    else:
        values, scales, points = quantize_ranges(groups, bits)
        zeros = Tensor(points.reshape(rows, -1) + middle, dtype=dtype, device=device)
    return QuantizedWeight(
        Tensor(values.reshape(rows, -1, size) + middle, dtype=dtype, device=device),
        Tensor(scales.reshape(rows, -1), device=device),
        zeros,
    )


def quantize_groups(groups: npt.NDArray[Any], bits: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """Signed integers (n, group) and scales (n,) for groups of weights (n, group)."""
    _check_bits(bits)
    one = _eight_bits if bits == 8 else _four_bits
    values = np.empty(groups.shape, np.int8)
    scales = np.empty(len(groups), np.float16)
    for part in _chunks(groups):
        values[part], scales[part] = one(groups[part].astype(np.float32))
    return values, scales


def quantize_ranges(
    groups: npt.NDArray[Any], bits: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16], npt.NDArray[np.int8]]:
    """Signed integers (n, group), scales (n,) and zero points (n,) for groups of weights (n, group)."""
    _check_bits(bits)
    values = np.empty(groups.shape, np.int8)
    scales, zeros = np.empty(len(groups), np.float16), np.empty(len(groups), np.int8)
    for part in _chunks(groups):
        values[part], scales[part], zeros[part] = _range(groups[part].astype(np.float32), bits)
    return values, scales, zeros


def _check_bits(bits: int) -> None:
    if bits not in (8, 4):
        raise ValueError(f"weights can be quantised to 8 or 4 bits, not {bits}")


def _chunks(groups: npt.NDArray[Any]) -> Iterator[slice]:
    step = max(CHUNK // groups.shape[1], 1)
    return (slice(at, at + step) for at in range(0, len(groups), step))


Floats = npt.NDArray[np.float32]


def _half(scale: Floats) -> Floats:
    """A scale as it is stored: rounded to half precision, and no zero (an all-zero group has any scale)."""
    rounded = np.clip(scale, -HALF_MAX, HALF_MAX).astype(np.float16).astype(np.float32)
    return np.where(rounded == 0, np.float32(1), rounded)


def _round(groups: Floats, scale: Floats, low: int, high: int) -> Floats:
    return np.clip(np.round(groups / scale[:, None]), low, high)


def _eight_bits(groups: Floats) -> tuple[Floats, Floats]:
    scale = _half(np.abs(groups).max(axis=1) / 127)
    return _round(groups, scale, -127, 127), scale


def _four_bits(groups: Floats) -> tuple[Floats, Floats]:
    largest = np.take_along_axis(groups, np.abs(groups).argmax(axis=1)[:, None], axis=1)[:, 0]
    best_values, best_scale = np.zeros_like(groups), np.ones(len(groups), np.float32)
    best_error = np.full(len(groups), np.inf, np.float32)
    # weights near the end of float32 have no half-float scale: their error is infinite; that of zeros is not a number
    with np.errstate(over="ignore", invalid="ignore"):
        for place in np.linspace(-10, -6, 9, dtype=np.float32):
            scale = _half(largest / place)
            values = _round(groups, scale, -8, 7)
            scale = _half((values * groups).sum(axis=1) / (values * values).sum(axis=1))
            error = ((values * scale[:, None] - groups) ** 2).sum(axis=1)
            better = error < best_error
            best_values[better], best_scale[better], best_error[better] = values[better], scale[better], error[better]
    return best_values, best_scale


def _range(groups: Floats, bits: int) -> tuple[Floats, Floats, Floats]:
    most, least = 2**bits - 1, -(2 ** (bits - 1))
    low, high = np.minimum(groups.min(axis=1), 0), np.maximum(groups.max(axis=1), 0)  # 0 is a multiple of the scale
    best: list[Floats] = [np.zeros_like(groups), np.ones(len(groups), np.float32), np.zeros(len(groups), np.float32)]
    best_error = np.full(len(groups), np.inf, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # as above
        for part in (1.0,) if bits == 8 else np.linspace(0.7, 1, 7, dtype=np.float32):
            scale = _half((high * part - low * part) / most)
            zero = np.clip(np.round(-low * part / scale), 0, most)
            values = np.clip(np.round(groups / scale[:, None]) + zero[:, None], 0, most)
            multiples = values - zero[:, None]
            scale = _half((multiples * groups).sum(axis=1) / (multiples * multiples).sum(axis=1))
            error = ((multiples * scale[:, None] - groups) ** 2).sum(axis=1)
            better = error < best_error
            for kept, found in zip((*best, best_error), (values, scale, zero, error), strict=True):
                kept[better] = found[better]
    return best[0] + least, best[1], best[2] + least
