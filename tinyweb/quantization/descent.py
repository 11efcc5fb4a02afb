"""What is left to gain after error feedback: it rounds each column once, before those behind it are known.

Coordinate descent (QuantEase, Behdin et al. 2023, arXiv 2309.01885): one column after the other gets the integers of
least error of the outputs, all others being as they are. Between two such passes scales become those of least squares
for the integers that there are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tinyweb.quantization.methods import BLOCK, DAMPING, Floats, Rounded

SYSTEMS = 1 << 22  # coefficients of equations that are solved at a time
FARTHEST = 2.0  # that a scale becomes larger or smaller by: what lies beyond comes of equations that say little


def refine(weight: Floats, rounded: Rounded, moments: Floats) -> Rounded:
    """A rounded matrix with less error of the outputs E H Eᵀ, H the `moments` (in, in) of its inputs; of the same bits
    and groups."""
    damped = moments + DAMPING * np.diagonal(moments).mean() * np.eye(len(moments), dtype=np.float32)
    if not damped.any():  # inputs that are always 0 say nothing
        return rounded
    passed = _descend(weight, rounded, damped)
    return _descend(weight, replace(passed, scales=_least_squares(weight, passed, damped)), damped)


def _descend(weight: Floats, rounded: Rounded, moments: Floats) -> Rounded:
    low, high = rounded.range
    values, group = rounded.values.reshape(weight.shape).astype(np.float32), rounded.values.shape[2]
    scales, diagonal = rounded.scales.astype(np.float32), np.diagonal(moments)
    slope = (rounded.dense() - weight) @ moments  # of half the error, by each weight
    order = np.argsort(-diagonal, kind="stable")
    for start in range(0, len(order), BLOCK):
        columns = order[start : start + BLOCK]
        near, inner = slope[:, columns], moments[np.ix_(columns, columns)]
        moved = np.empty_like(near)
        for i, column in enumerate(columns):
            scale, before = scales[:, column // group], values[:, column].copy()
            values[:, column] = np.clip(np.round(before - near[:, i] / (diagonal[column] * scale)), low, high)
            moved[:, i] = (values[:, column] - before) * scale
            near += moved[:, i, None] * inner[i]
        slope += moved @ moments[columns]
    return replace(rounded, values=values.astype(np.int8).reshape(rounded.values.shape))


def _least_squares(weight: Floats, rounded: Rounded, moments: Floats) -> npt.NDArray[np.float16]:
    """Scales (rows, groups) of least error for integers: of each row the solution of one equation for each group."""
    multiples = rounded.multiples()
    rows, groups, group = multiples.shape
    found = rounded.scales.astype(np.float32)
    step = max(SYSTEMS // groups**2, 1)
    for start in range(0, rows, step):
        part = multiples[start : start + step]
        left = np.empty((len(part), groups, groups))
        for i in range(groups):
            reached = part[:, i] @ moments[i * group : (i + 1) * group]
            left[:, i] = (reached.reshape(part.shape) * part).sum(-1)
        right = ((weight[start : start + step] @ moments).reshape(part.shape) * part).sum(-1)
        trace = np.trace(left, axis1=1, axis2=2)[:, None, None] / groups
        left += (1e-6 * trace + 1e-30) * np.eye(groups)
        solved = np.linalg.solve(left, right[..., None].astype(np.float64))[..., 0]
        before = found[start : start + step]
        part_of = solved / before
        found[start : start + step] = np.where((part_of < FARTHEST) & (part_of > 1 / FARTHEST), solved, before)
    half = found.astype(np.float16)
    return np.where((half == 0) | np.isinf(half), rounded.scales, half)
