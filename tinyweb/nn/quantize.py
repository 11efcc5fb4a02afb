"""Weights in 8 to 3 bits: integers with one half-float scale, and if asked for one zero point, for every group along
the input.

A value is (integer − zero point) · scale. Integers of 8 bits have signs, those of fewer are 0 and more. The zero point
of symmetric weights is a constant: 0, of 4 bits 8. For 8 bits the scale puts a group's largest magnitude at ±127. For
fewer it is searched: the largest magnitude is tried at several places near −8 (of 4 bits), where the integers reach
farthest, each time followed by the least-squares scale for the rounded integers; the scale of least squared error
stays. With zero points the integers cover a group's range, from its least value to its largest; smaller ranges are
tried in the same way. None needs data to calibrate on; where there are, errors count as much as these say
(`importance`).

What the result holds, and how it is multiplied, is `quantized_weight.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes
from tinyweb.kinds import BITS
from tinyweb.native_runtimes.cpu.runtime import thread_count
from tinyweb.nn.quantized_weight import (
    HALF_MAX,
    QuantizedWeight,
    activations_for,
    of_codes,
    quantize_activations,
)

__all__ = [
    "QuantizedWeight", "activations_for", "group_size", "of_integers", "quantize",
    "quantize_activations", "quantize_groups", "quantize_ranges",
]  # fmt: skip
GROUP = 32
SMALLEST_GROUP = 8  # below, the scales outweigh what the integers save
CHUNK = 1 << 18  # weights a thread quantises at a time: what the search makes of them stays in the processor's cache
HALF_LEAST = np.float32(np.finfo(np.float16).smallest_subnormal)
Floats = npt.NDArray[np.float32]


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
    """A matrix (out, in) in 8, 6, 5, 4 or 3 bits, in groups of up to `group` weights; None where its rows do not divide
    into groups of at least 8: keep half floats then. Not `symmetric`: with zero points.
    """
    size = group_size(weight.shape[1], group)
    if size is None:
        return None
    groups, shape = weight.reshape(-1, size), (len(weight), weight.shape[1] // size, size)
    zeros = None
    if symmetric:
        values, scales = quantize_groups(groups, bits)
    else:
        values, scales, zeros = quantize_ranges(groups, bits)
        zeros = zeros.reshape(shape[:2])
    return of_integers(values.reshape(shape), scales.reshape(shape[:2]), zeros, bits, device)


def of_integers(
    values: npt.NDArray[np.int8], scales: npt.NDArray[np.float16], zeros: npt.NDArray[np.int8] | None, bits: int,
    device: str | None = None,
) -> QuantizedWeight:  # fmt: skip
    """The matrix of signed integers (out, groups, group) of so many bits, with scales and zero points (out, groups)."""
    parts: dict[str, npt.NDArray[Any]] = {"codes": _stored(values, bits), "scales": scales}
    if zeros is not None:
        parts["zeros"] = _stored(zeros, bits)
    return of_codes([parts], bits, device, types={"zeros": dtypes.uint4} if bits == 4 else None)


def _stored(integers: npt.NDArray[np.int8], bits: int) -> npt.NDArray[Any]:
    """As codes: those of 8 bits have signs."""
    return integers if bits == 8 else (integers + (1 << (bits - 1))).astype(np.uint8)


def quantize_groups(
    groups: npt.NDArray[Any], bits: int, importance: Floats | None = None
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """Signed integers (n, group) and scales (n,) for groups of weights (n, group). `importance` (m, group): how much
    squared errors count, again and again for each m groups."""
    _check_bits(bits)
    one = _eight_bits if bits == 8 else _few_bits
    values = np.empty(groups.shape, np.int8)
    scales = np.empty(len(groups), np.float16)

    def quantize_part(part: slice) -> None:
        values[part], scales[part] = one(groups[part].astype(np.float32), bits, _of_part(importance, part, len(groups)))

    _side_by_side(quantize_part, groups)
    return values, scales


def quantize_ranges(
    groups: npt.NDArray[Any], bits: int, importance: Floats | None = None
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16], npt.NDArray[np.int8]]:
    """Signed integers (n, group), scales (n,) and zero points (n,) for groups of weights (n, group); `importance` as of
    `quantize_groups`."""
    _check_bits(bits)
    values = np.empty(groups.shape, np.int8)
    scales, zeros = np.empty(len(groups), np.float16), np.empty(len(groups), np.int8)

    def quantize_part(part: slice) -> None:
        counts = _of_part(importance, part, len(groups))
        values[part], scales[part], zeros[part] = _range(groups[part].astype(np.float32), bits, counts)

    _side_by_side(quantize_part, groups)
    return values, scales, zeros


def _check_bits(bits: int) -> None:
    if bits not in BITS.values():
        raise ValueError(f"weights can be quantised to 8, 6, 5, 4 or 3 bits, not {bits}")


def _of_part(importance: Floats | None, part: slice, count: int) -> Floats | np.float32:
    if importance is None:
        return np.float32(1)
    counts: Floats = importance[np.arange(part.start, min(part.stop, count)) % len(importance)]
    return counts


def _side_by_side(work: Callable[[slice], None], groups: npt.NDArray[Any]) -> None:
    """Do what NumPy takes long for, and lets other threads run meanwhile, in parts."""
    step = max(CHUNK // groups.shape[1], 1)
    parts = [slice(at, at + step) for at in range(0, len(groups), step)]
    threads = min(thread_count(), len(parts))
    if threads <= 1:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, parts):  # raises what a part raised
            pass


def _half(scale: Floats) -> Floats:
    """A scale as it is stored: rounded to half precision, and no zero: the least number where it is too small for
    that, and any (1) of an all-zero group."""
    rounded = np.clip(scale, -HALF_MAX, HALF_MAX).astype(np.float16).astype(np.float32)
    return np.where(rounded == 0, np.where(scale == 0, np.float32(1), np.copysign(HALF_LEAST, scale)), rounded)


def _round(groups: Floats, scale: Floats, low: int, high: int) -> Floats:
    return np.clip(np.round(groups / scale[:, None]), low, high)


def _eight_bits(groups: Floats, bits: int, importance: Floats | np.float32) -> tuple[Floats, Floats]:
    largest = np.abs(groups).max(axis=1)
    scale = _half(largest / 127)
    # half floats are far from each other near 0: the next one, where the largest would be cut off
    short = (largest > 127.5 * scale) & (scale < HALF_MAX)
    scale[short] = np.nextafter(scale[short].astype(np.float16), np.float16(np.inf))
    return _round(groups, scale, -127, 127), scale


def _few_bits(groups: Floats, bits: int, importance: Floats | np.float32) -> tuple[Floats, Floats]:
    largest = np.take_along_axis(groups, np.abs(groups).argmax(axis=1)[:, None], axis=1)[:, 0]
    reach = 1 << (bits - 1)
    best_values, best_scale = np.zeros_like(groups), np.ones(len(groups), np.float32)
    best_error = np.full(len(groups), np.inf, np.float32)
    # weights near the end of float32 have no half-float scale: their error is infinite; that of zeros is not a number
    with np.errstate(over="ignore", invalid="ignore"):
        for place in np.linspace(-1.25 * reach, -0.75 * reach, 9, dtype=np.float32):
            scale = _half(largest / place)
            values = _round(groups, scale, -reach, reach - 1)
            weighted = values * importance
            scale = _half((weighted * groups).sum(axis=1) / (weighted * values).sum(axis=1))
            error = (importance * (values * scale[:, None] - groups) ** 2).sum(axis=1)
            better = error < best_error
            best_values[better], best_scale[better], best_error[better] = values[better], scale[better], error[better]
    return best_values, best_scale


def _range(groups: Floats, bits: int, importance: Floats | np.float32) -> tuple[Floats, Floats, Floats]:
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
            weighted = multiples * importance
            scale = _half((weighted * groups).sum(axis=1) / (weighted * multiples).sum(axis=1))
            error = (importance * (multiples * scale[:, None] - groups) ** 2).sum(axis=1)
            better = error < best_error
            for kept, found in zip((*best, best_error), (values, scale, zero, error), strict=True):
                kept[better] = found[better]
    return best[0] + least, best[1], best[2] + least
