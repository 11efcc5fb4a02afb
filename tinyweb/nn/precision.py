"""How the matrices of a model are stored: floats, or integers in groups; the embedding and the head by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.errors import TinywebError
from tinyweb.kinds import BITS, KINDS, STORED
from tinyweb.nn.quantize import GROUP, QuantizedWeight, quantize
from tinyweb.tensor import Tensor

GROUPS = (32, 64, 128)
NO_SMALLER_TABLE = 8  # bits of an embedding that nobody chose: every token passes it twice


@dataclass(frozen=True)
class Precision:
    """How one matrix is stored. `kind`: "f32", "f16", "stored" (as the checkpoint has it), or integers of so many bits,
    "q8" and so on. `group`: weights along a row that share a scale, None: all of a row (per channel). `zero_points`:
    whether each group has an integer that stands for 0.

    Raises TinywebError for a kind or a group that there is not.
    """

    kind: str
    group: int | None = GROUP
    zero_points: bool = False

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS, STORED):
            raise TinywebError(f"unknown quantisation {self.kind!r}: choose one of {', '.join(KINDS)}")
        if self.group is not None and not 8 <= self.group <= 1 << 20:
            raise TinywebError(f"groups of {self.group} weights cannot be: choose {', '.join(map(str, GROUPS))}")

    @property
    def bits(self) -> int | None:
        """Bits of the integers; None for floats."""
        return BITS.get(self.kind)

    def convert(self, values: npt.NDArray[Any], device: str | None = None) -> QuantizedWeight | None:
        """A matrix (out, in) as integers; None where this is no quantisation, or rows do not divide into groups of at
        least 8."""
        if self.bits is None:
            return None
        group = values.shape[1] if self.group is None else self.group
        return quantize(values, self.bits, device, group, not self.zero_points)


Watch = Callable[[Tensor | QuantizedWeight, npt.NDArray[Any]], None]
"""Told of each matrix as it is made: what it became, and its values."""


@dataclass(frozen=True)
class Recipe:
    """How the matrices of a model are stored: those of its layers, the embedding, and the head, None: as the embedding.
    `watch`: is told of each."""

    layers: Precision
    embedding: Precision
    head: Precision | None = None
    watch: Watch | None = field(default=None, compare=False)

    @classmethod
    def of(cls, quant: str | Recipe | None) -> Recipe:
        """What a name stands for: with fewer than 8 bits, an embedding keeps 8. None: all as stored."""
        if isinstance(quant, Recipe):
            return quant
        return cls.made(Precision(quant or STORED))

    @classmethod
    def made(cls, layers: Precision, embedding: str | None = None, head: str | None = None) -> Self:
        """With embedding and head of a kind of their own; groups and zero points are those of the layers."""
        bits = layers.bits
        usual = f"q{NO_SMALLER_TABLE}" if bits is not None and bits < NO_SMALLER_TABLE else layers.kind
        return cls(
            layers,
            replace(layers, kind=embedding or usual),
            None if head is None else replace(layers, kind=head),
        )

    def watched(self, watch: Watch) -> Recipe:
        """The same, with somebody who is told."""
        return replace(self, watch=watch)

    @property
    def integers(self) -> bool:
        """Whether any matrix is stored as integers."""
        return any(p is not None and p.bits is not None for p in (self.layers, self.embedding, self.head))


def as_floats(values: npt.NDArray[Any], kind: str, device: str | None) -> Tensor:
    """A matrix of floats: float32 where that is the kind, else half floats where these reach far enough."""
    if kind == "f32":
        return Tensor(values.astype(np.float32), device=device)
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if np.isinf(half).any():  # bfloat16 and float32 reach farther than float16
        return Tensor(values.astype(np.float32), device=device)
    return Tensor(half, device=device)
