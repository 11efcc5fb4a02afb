"""Rounding of matrices that knows what they are multiplied with.

Both methods take H = Σ x xᵀ over the inputs x of a calibration text: the error of an output is then E H Eᵀ for the
error E of the weights.

- `search`: scales and zero points of least error Σ h_i e_i² within each group, h the diagonal of H.
- `feed_back` (GPTQ, Frantar et al. 2022, arXiv 2210.17323): one column after the other is rounded, and what rounding it
  does to the outputs is made up for by the columns that are left, as far as H says that these can. Columns go from the
  largest to the smallest of H's diagonal; scales are searched before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.errors import TinywebError
from tinyweb.nn.precision import Precision
from tinyweb.nn.quantize import QuantizedWeight, group_size, of_integers, quantize_groups, quantize_ranges

Floats = npt.NDArray[np.float32]
BLOCK = 128  # columns whose errors are passed on together
FULL_PRECISION = 8  # bits from which on rounding to nearest is as good
DAMPING = 0.01  # of the mean of H's diagonal, added to it: H may be singular


@dataclass(frozen=True)
class Rounded:
    """Integers with signs (rows, groups, group), scales (rows, groups) as half floats hold them, and the integers that
    stand for 0 (rows, groups), or None: 0."""

    values: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float16]
    zeros: npt.NDArray[np.int8] | None
    bits: int

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest integer."""
        high = (1 << (self.bits - 1)) - 1
        return (-high if self.bits == 8 and self.zeros is None else -high - 1), high

    def multiples(self) -> Floats:
        """What scales are multiplied with (rows, groups, group)."""
        values = self.values.astype(np.float32)
        return values if self.zeros is None else values - self.zeros[..., None]

    def dense(self) -> Floats:
        """The matrix (rows, in)."""
        return (self.multiples() * self.scales[..., None].astype(np.float32)).reshape(len(self.values), -1)

    def weight(self, device: str | None) -> QuantizedWeight:
        """As a model holds it."""
        return of_integers(self.values, self.scales, self.zeros, self.bits, device)


def search(weight: Floats, precision: Precision, importance: Floats | None = None) -> Rounded | None:
    """A matrix (rows, in) rounded to nearest with the scales of least error, columns counting as `importance` (in,)
    says; None where its rows do not divide into groups of at least 8."""
    rows, width = weight.shape
    group = group_size(width, width if precision.group is None else precision.group)
    bits = precision.bits
    if bits is None or group is None:
        return None
    counts = None if importance is None else importance.reshape(-1, group)
    groups, shape = weight.reshape(-1, group), (rows, width // group, group)
    if precision.zero_points:
        values, scales, zeros = quantize_ranges(groups, bits, counts)
        return Rounded(values.reshape(shape), scales.reshape(shape[:2]), zeros.reshape(shape[:2]), bits)
    values, scales = quantize_groups(groups, bits, counts)
    return Rounded(values.reshape(shape), scales.reshape(shape[:2]), None, bits)


def feed_back(weight: Floats, precision: Precision, moments: Floats) -> Rounded | None:
    """A matrix (rows, in) rounded with error feedback, `moments` being H (in, in); None as of `search`."""
    diagonal = np.diagonal(moments).astype(np.float32)
    started = search(weight, precision, diagonal + DAMPING * diagonal.mean() + np.float32(1e-30))
    if started is None:
        return None
    low, high = started.range
    group = started.values.shape[2]
    order = np.argsort(-diagonal, kind="stable")
    factor = _feedback_factor(moments[np.ix_(order, order)])
    rest = np.ascontiguousarray(weight[:, order], np.float32)
    scales = started.scales.astype(np.float32)
    zeros = np.zeros_like(scales) if started.zeros is None else started.zeros.astype(np.float32)
    values = np.empty_like(rest)
    for start in range(0, len(order), BLOCK):
        end = min(start + BLOCK, len(order))
        errors = np.empty((len(rest), end - start), np.float32)
        for j in range(start, end):
            at = order[j] // group
            scale, zero = scales[:, at], zeros[:, at]
            values[:, j] = np.clip(np.round(rest[:, j] / scale) + zero, low, high)
            errors[:, j - start] = (rest[:, j] - (values[:, j] - zero) * scale) / factor[j, j]
            rest[:, j + 1 : end] -= errors[:, j - start, None] * factor[j, j + 1 : end]
        rest[:, end:] -= errors @ factor[start:end, end:]
    integers = np.empty(values.shape, np.int8)
    integers[:, order] = values
    return Rounded(integers.reshape(started.values.shape), started.scales, started.zeros, started.bits)


def _feedback_factor(moments: Floats) -> Floats:
    """The upper triangular factor U of H⁻¹ = Uᵀ U, of which row j says what an error of column j is made up with."""
    size = len(moments)
    mean = float(np.diagonal(moments).mean()) or 1.0
    exact: npt.NDArray[Any] = moments.astype(np.float64) if size <= 4096 else moments
    for damping in (DAMPING, 0.1, 1.0):
        try:
            inverse = np.linalg.inv(exact + damping * mean * np.eye(size, dtype=exact.dtype))
            return np.linalg.cholesky((inverse + inverse.T) / 2).T.astype(np.float32)
        except np.linalg.LinAlgError:
            continue
    raise TinywebError("the calibration text gives activations that are not finite: the weights are damaged")


def weight_error(weight: Floats, rounded: Floats) -> float:
    """The part of a matrix's norm that is error."""
    return float(np.linalg.norm(rounded - weight) / (np.linalg.norm(weight) or 1.0))


def output_error(weight: Floats, rounded: Floats, moments: Floats) -> float:
    """The part of the outputs' norm that is error, for inputs of these second moments (in, in), or (in,) of each."""
    return float(np.sqrt(output_energy(rounded - weight, moments) / (output_energy(weight, moments) or 1.0)))


def output_energy(matrix: Floats, moments: Floats) -> float:
    """The energy of a matrix's outputs, for inputs of these second moments (in, in), or (in,) of each."""
    weighted = matrix @ moments if moments.ndim == 2 else matrix * moments
    return max(float((weighted * matrix).sum(dtype=np.float64)), 0.0)
