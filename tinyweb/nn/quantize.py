"""Weights in 8 or 4 bits: integers with one half-float scale for every group along the input.

A value is integer · scale. For 8 bits the scale puts a group's largest magnitude at ±127. For 4 bits it is searched:
the largest magnitude is tried at several places near −8, where the integers reach farthest, each time followed by the
least-squares scale for the rounded integers; the scale of least squared error stays. Neither needs data to calibrate
on.

The weight is never expanded in memory: `product` and `rows` are expressions that a kernel evaluates as it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes
from tinyweb.graph.target import Target
from tinyweb.tensor import Tensor

BITS = {"q8": 8, "q4": 4}
ACTIVATIONS = ("float", "int8")
GROUP = 32
SMALLEST_GROUP = 8  # below, the scales outweigh what the integers save
CHUNK = 1 << 22  # weights quantised at a time, to bound the memory of the search
HALF_MAX = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class QuantizedWeight:
    """A matrix (out, in = groups · group). `values`: int8 or int4 (out, groups, group); `scales`: f16 (out, groups)."""

    values: Tensor
    scales: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        rows, groups, group = (int(s) for s in self.values.shape if isinstance(s, int))
        return rows, groups * group

    def product(self, x: Tensor, activations: str = "float") -> Tensor:
        """x (…, in) → x Wᵀ (…, out), float32.

        `activations` "int8": x is rounded to 8 bits first, in the groups of the weights, so that the products inside a
        group are integers: their int32 sum is exact, and is multiplied by both scales in float32.
        """
        if activations not in ACTIVATIONS:
            raise ValueError(f"activations can be {' or '.join(ACTIVATIONS)}, not {activations!r}")
        _, groups, group = self.values.shape
        grouped = x.float().reshape(*x.shape[:-1], groups, group)
        if activations == "float":
            return (grouped.unsqueeze(-3) * self._dense()).sum((-2, -1))
        integers, scales = quantize_activations(grouped)
        sums = (integers.unsqueeze(-3).int() * self.values.int()).sum(-1)
        return (sums.float() * (scales.unsqueeze(-2) * self.scales.float())).sum(-1)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows by integer id: ids.shape + (in,), float32."""
        picked = self.values[ids].float() * self.scales[ids].float().unsqueeze(-1)
        return picked.reshape(*ids.shape, self.shape[1])

    def dense(self) -> Tensor:
        """The matrix (out, in), float32."""
        return self._dense().reshape(*self.shape)

    def _dense(self) -> Tensor:
        return self.values.float() * self.scales.float().unsqueeze(-1)

    def tensors(self) -> dict[str, Tensor]:
        return {"weight": self.values, "scales": self.scales}


def activations_for(target: Target) -> str:
    """What quantised weights are best multiplied with on a target."""
    return "int8" if target.dot_lanes else "float"


def quantize_activations(grouped: Tensor) -> tuple[Tensor, Tensor]:
    """(…, groups, group) float32 → int8 of that shape and scales (…, groups) float32, both in memory of their own.

    Symmetric: a group's largest magnitude becomes ±127, halves round to even. A group of zeros has scale 0.
    """
    scales = (grouped.abs().max(-1) * (1 / 127)).contiguous()
    steps = (scales == 0).where(0.0, 1 / scales).unsqueeze(-1)
    return (grouped * steps).round().cast(dtypes.int8).contiguous(), scales


def group_size(width: int) -> int | None:
    """Weights per scale for rows of `width`: 32, or the largest smaller power of two that fits; None below 8."""
    group = GROUP
    while group >= SMALLEST_GROUP:
        if width % group == 0:
            return group
        group //= 2
    return None


def quantize(weight: npt.NDArray[Any], bits: int, device: str | None = None) -> QuantizedWeight | None:
    """A matrix (out, in) in 8 or 4 bits; None where its rows do not divide into groups: keep half floats then."""
    group = group_size(weight.shape[1])
    if group is None:
        return None
    values, scales = quantize_groups(weight.reshape(-1, group), bits)
    rows = weight.shape[0]
    return QuantizedWeight(
        Tensor(values.reshape(rows, -1, group), dtype=dtypes.int8 if bits == 8 else dtypes.int4, device=device),
        Tensor(scales.reshape(rows, -1), device=device),
    )


def quantize_groups(groups: npt.NDArray[Any], bits: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """Integers (n, group) and scales (n,) for groups of weights (n, group)."""
    if bits not in (8, 4):
        raise ValueError(f"weights can be quantised to 8 or 4 bits, not {bits}")
    one = _eight_bits if bits == 8 else _four_bits
    values = np.empty(groups.shape, np.int8)
    scales = np.empty(len(groups), np.float16)
    step = max(CHUNK // groups.shape[1], 1)
    for at in range(0, len(groups), step):
        values[at : at + step], scales[at : at + step] = one(groups[at : at + step].astype(np.float32))
    return values, scales


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
