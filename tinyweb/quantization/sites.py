"""The matrices of a loaded model: which layers hold them, and how each is put in the place of another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.nn.layers import Embedding, Linear
from tinyweb.nn.quantize import QuantizedWeight
from tinyweb.nn.stack import Stack
from tinyweb.tensor import Tensor

Matrix = Tensor | QuantizedWeight


@dataclass(frozen=True)
class Owner:
    """A layer with a `weight`: `parent`'s attribute, or element, of this name."""

    parent: Any
    key: str | int
    layer: Any

    def put(self, layer: Any) -> None:
        """Another layer in its place."""
        if isinstance(self.key, int):
            self.parent[self.key] = layer
        else:
            setattr(self.parent, self.key, layer)


@dataclass
class Site:
    """A matrix (out, in) of a model; of a convolution the kernels, flat. `role`: "layers", "embedding" or "head".
    `owners`: all that hold it: an embedding may be the head too."""

    name: str
    role: str
    owners: list[Owner] = field(default_factory=list)

    @property
    def weight(self) -> Matrix:
        weight: Matrix = self.owners[0].layer.weight
        return weight

    @property
    def shape(self) -> tuple[int, int]:
        rows, *rest = (int(s) for s in self.weight.shape if isinstance(s, int))
        return rows, math.prod(rest)

    @property
    def bytes(self) -> int:
        return sum(t.nbytes() for t in parts(self.weight))

    @property
    def multiplied(self) -> Owner | None:
        """What multiplies with it and nothing else, so that its inputs can be observed."""
        one = self.owners[0]
        return one if len(self.owners) == 1 and isinstance(one.layer, Linear | Stack) else None

    @property
    def is_head(self) -> bool:
        """Whether logits are products with it, be it the embedding too."""
        return self.role == "head" or (self.role == "embedding" and len(self.owners) > 1)

    def values(self) -> npt.NDArray[np.float32]:
        """The matrix as floats."""
        weight = self.weight
        values = (weight.dense() if isinstance(weight, QuantizedWeight) else weight).numpy()
        return values.astype(np.float32).reshape(self.shape)

    def put(self, weight: Matrix) -> None:
        """Another matrix in its place."""
        for owner in self.owners:
            owner.layer.weight = weight


def parts(weight: Matrix) -> list[Tensor]:
    """The memory of a matrix."""
    return list(weight.tensors().values()) if isinstance(weight, QuantizedWeight) else [weight]


def find_sites(model: Any, made: Sequence[Matrix]) -> list[Site]:
    """The matrices `made` by a model's loader, in the order of the model's attributes."""
    wanted = {id(weight) for weight in made}
    found: dict[int, Site] = {}
    for path, owner in _walk(model, "", (), None, ""):
        weight = owner.layer.weight
        if id(weight) not in wanted:
            continue
        role = "embedding" if isinstance(owner.layer, Embedding) else "head" if path == "head" else "layers"
        site = found.setdefault(id(weight), Site(path, role))
        site.owners.append(owner)
    return list(found.values())


def _walk(value: Any, path: str, above: tuple[int, ...], parent: Any, key: str | int) -> Iterator[tuple[str, Owner]]:
    if isinstance(value, Tensor) or id(value) in above:
        return
    attributes: Mapping[str, Any] = getattr(value, "__dict__", {})
    if isinstance(attributes.get("weight"), Tensor | QuantizedWeight):
        yield path, Owner(parent, key, value)
        return
    pairs: list[tuple[str | int, Any]] = []
    if isinstance(value, list | tuple):
        pairs = list(enumerate(value))
    elif type(value).__module__.startswith("tinyweb."):
        pairs = [(n, v) for n, v in attributes.items() if not n.startswith("_")]
    for name, part in pairs:
        yield from _walk(part, f"{path}.{name}" if path else str(name), (*above, id(value)), value, name)
