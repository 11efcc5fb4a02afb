"""Attention with linear biases: scores lose by distance (ALiBi; Press et al. 2022, arXiv 2108.12409)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def slopes(heads: int, most: float = 8.0) -> npt.NDArray[Any]:
    """What scores of each head lose for each position between query and key, (heads,) float32: powers of 2^(−most/n)
    for n heads; where n is no power of two, those of the next lower one and then every other one of the next higher
    one.
    """
    lower = 1 << (heads.bit_length() - 1)
    first = 2.0 ** (-most / lower * np.arange(1, lower + 1))
    between = 2.0 ** (-most / 2 / lower * np.arange(1, 2 * lower + 1, 2))
    return np.concatenate([first, between])[:heads].astype(np.float32)
