"""Rotary positions, as language models use them, and the scaling that reaches beyond the positions of training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.graph.ir import Size
from tinyweb.tensor import Tensor

Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class RotaryScaling:
    """How positions beyond the `original` ones of training are mapped to angles.

    `linear` divides all frequencies by `factor`. `llama3` divides those with fewer than `low` turns in `original`
    positions, keeps those with more than `high`, and blends in between. `yarn` (Peng et al. 2023) does so along the
    pairs, from the one with `high` turns to that with `low`; `whole_pairs`: both rounded outwards. `dynamic` raises the
    base once the context is longer than `original`. `longrope` (Ding et al. 2024) divides each frequency by its own of
    the `short` factors, or of the `long` ones once the context is longer than `original`.

    `magnitude` is what turned pairs are multiplied with.
    """

    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192
    whole_pairs: bool = True
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    magnitude: float = 1.0


class Rotary:
    """Rotary position embedding (Su et al. 2021): pairs (x[i], x[i + width/2]) are turned by position · frequency[i].

    `table` is (2, positions, width/2), float32: cosines and sines. `turned`: how many of the `width` elements are
    turned, those of the first turned/2 pairs; None: all. `context`: the longest text, for which scalings that depend
    on a text's length are chosen; None: all positions.
    """

    def __init__(
        self, width: int, positions: int, theta: float, scaling: RotaryScaling, device: str | None = None,
        turned: int | None = None, context: int | None = None,
    ):  # fmt: skip
        self.width, self.positions, self.theta, self.scaling = width, positions, theta, scaling
        self.device, self.turned = device, width if turned is None else turned
        self.context = positions if context is None else context
        self.table = self._now = self._for(self.context)
        self._made = (self._depends(self.context), self.table)  # the last one

    def suit(self, length: int | None) -> None:
        """From now on turns as a text of `length` tokens needs it, where the scaling depends on that (`dynamic`,
        `longrope`); None: as the context does."""
        if self.scaling.kind not in ADAPTIVE:
            return
        wanted = self._depends(self.context if length is None else length)
        if wanted == self._depends(self.context):
            self._now = self.table
            return
        if self._made[0] != wanted:
            self._made = (wanted, self._for(self.context if length is None else length))
        self._now = self._made[1]

    def _depends(self, length: int) -> int:
        """What a table for texts of so many tokens depends on."""
        original = self.scaling.original
        return max(length, original) if self.scaling.kind == "dynamic" else int(length > original)

    def _for(self, length: int) -> Tensor:
        each = frequencies(self.turned, self.theta, self.scaling, length)
        angles = np.arange(self.positions, dtype=np.float32)[:, None] * each
        table = np.stack([np.cos(angles), np.sin(angles)]) * np.float32(self.scaling.magnitude)
        still = np.zeros((2, self.positions, (self.width - self.turned) // 2), np.float32)
        still[0] = 1
        return Tensor(np.concatenate([table, still], axis=2), device=self.device)

    def __call__(self, x: Tensor, start: Size | Tensor) -> Tensor:
        """x (…, tokens, heads, width), tokens at positions start, start + 1, …, or each at its own, int32 (…, tokens);
        the same shape."""
        *outer, tokens, heads, width = x.shape
        now = self._now[:, start if isinstance(start, Tensor) else slice(start, start + tokens)]
        now = now.reshape(*now.shape[:-1], 1, 1, width // 2)
        cosine, sine = now[0], now[1]
        pairs = x.reshape(*outer, tokens, heads, 2, width // 2)
        # (a, b) → (a cos − b sin, b cos + a sin): the partner of each half is the other one
        signed = (Tensor.arange(2, device=x.device).reshape(2, 1) == 0).where(-sine, sine)
        return (pairs * cosine + pairs.flip(-2) * signed).reshape(*x.shape)


def frequencies(width: int, theta: float, scaling: RotaryScaling, context: int = 0) -> Floats:
    """Radians per position of each pair, (width/2,); in float32 throughout, as the models were trained."""
    return _SCALED[scaling.kind](width, theta, scaling, context)


def _plain(width: int, theta: float) -> Floats:
    exponent = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    each: Floats = np.float32(1) / np.power(np.float32(theta), exponent)
    return each


def _default(width: int, theta: float, scaling: RotaryScaling, context: int) -> Floats:
    return _plain(width, theta)


def _linear(width: int, theta: float, scaling: RotaryScaling, context: int) -> Floats:
    slower: Floats = _plain(width, theta) / np.float32(scaling.factor)
    return slower


def _llama3(width: int, theta: float, scaling: RotaryScaling, context: int) -> Floats:
    plain = _plain(width, theta)
    turns = np.float32(scaling.original) / (np.float32(2 * math.pi) / plain)
    if scaling.low == scaling.high:  # a step
        kept = (turns >= np.float32(scaling.high)).astype(np.float32)
    else:
        kept = np.clip((turns - np.float32(scaling.low)) / np.float32(scaling.high - scaling.low), 0, 1)
    return _blend(plain, scaling.factor, kept)


def _yarn(width: int, theta: float, scaling: RotaryScaling, context: int) -> Floats:
    def pair(turns: float) -> float:
        """The pair that makes so many turns in the positions of training, as a real number."""
        return width * math.log(scaling.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair(scaling.high), pair(scaling.low)
    if scaling.whole_pairs:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    if first == last:
        last += 0.001  # a step
    slowed = np.clip((np.arange(width // 2, dtype=np.float32) - np.float32(first)) / np.float32(last - first), 0, 1)
    return _blend(_plain(width, theta), scaling.factor, 1 - slowed)


def _blend(plain: Floats, factor: float, kept: Floats) -> Floats:
    scaled: Floats = ((1 - kept) * plain / np.float32(factor) + kept * plain).astype(np.float32)
    return scaled


def _dynamic(width: int, theta: float, scaling: RotaryScaling, context: int) -> Floats:
    longer = max(context, scaling.original) / scaling.original
    stretch = scaling.factor * longer - (scaling.factor - 1)
    return _plain(width, theta * stretch ** (width / max(width - 2, 1)))


def _longrope(width: int, theta: float, scaling: RotaryScaling, context: int) -> Floats:
    factors = scaling.long if context > scaling.original else scaling.short
    slower: Floats = _plain(width, theta) / np.array(factors, np.float32)
    return slower


_SCALED: dict[str, Callable[[int, float, RotaryScaling, int], Floats]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "dynamic": _dynamic,
    "longrope": _longrope,
}
SCALINGS = tuple(_SCALED)
ADAPTIVE = ("dynamic", "longrope")  # those that depend on a text's length
