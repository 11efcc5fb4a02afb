"""Rotary positions, as language models use them, and the scaling that reaches beyond the positions of training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.graph.ir import Size
from tinyweb.tensor import Tensor


@dataclass(frozen=True)
class RotaryScaling:
    """How positions beyond those of training are mapped to angles.

    `linear` divides all frequencies by `factor`. `llama3` divides those with fewer than `low` turns in `original`
    positions, keeps those with more than `high`, and blends in between.
    """

    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192


class Rotary:
    """Rotary position embedding (Su et al. 2021): pairs (x[i], x[i + width/2]) are turned by position · frequency[i].

    `table` is (2, positions, width/2), float32: cosines and sines.
    """

    def __init__(self, width: int, positions: int, theta: float, scaling: RotaryScaling, device: str | None = None):
        angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies(width, theta, scaling)
        self.table = Tensor(np.stack([np.cos(angles), np.sin(angles)]), device=device)

    def __call__(self, x: Tensor, start: Size) -> Tensor:
        """x (…, tokens, heads, width), tokens at positions start, start + 1, …; the same shape."""
        *outer, tokens, heads, width = x.shape
        now = self.table[:, start : start + tokens].reshape(2, tokens, 1, 1, width // 2)
        cosine, sine = now[0], now[1]
        pairs = x.reshape(*outer, tokens, heads, 2, width // 2)
        # (a, b) → (a cos − b sin, b cos + a sin): the partner of each half is the other one
        signed = (Tensor.arange(2, device=x.device).reshape(2, 1) == 0).where(-sine, sine)
        return (pairs * cosine + pairs.flip(-2) * signed).reshape(*x.shape)


def frequencies(width: int, theta: float, scaling: RotaryScaling) -> npt.NDArray[Any]:
    """Radians per position of each pair, (width/2,); in float32 throughout, as the models were trained."""
    exponent = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    plain: npt.NDArray[Any] = np.float32(1) / np.power(np.float32(theta), exponent)
    if scaling.kind == "default":
        return plain
    factor = np.float32(scaling.factor)
    if scaling.kind == "linear":
        slower: npt.NDArray[Any] = plain / factor
        return slower
    if scaling.kind != "llama3":
        raise NotImplementedError(f"rotary scaling {scaling.kind!r} is not available yet")
    turns = np.float32(scaling.original) / (np.float32(2 * math.pi) / plain)
    blend = np.clip((turns - np.float32(scaling.low)) / np.float32(scaling.high - scaling.low), 0, 1)
    scaled: npt.NDArray[Any] = ((1 - blend) * plain / factor + blend * plain).astype(np.float32)
    return scaled
