"""What a chat's weights and cache may be kept as, what each takes, and which is best: the same before an export
(`estimate.py`, from the shapes of a checkpoint) as after it (`profiles.py`, from a manifest).

The most exact comes first. What is stored already loses nothing; else what has the fewest bits of weights and cache
counts first, as it loses most, then the bits of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Self, TypeVar

from tinyweb.formats.huggingface import Checkpoint, TensorEntry
from tinyweb.kinds import BITS, CACHES, FLOATS, STORED
from tinyweb.models.decoder.cache import ELEMENT_BITS
from tinyweb.nn.quantize import GROUP

SCALE_BITS = 16  # of a group
EXACT = 32.0  # bits that count for what loses nothing
SHORTEST, GOOD = 256, 2048  # tokens of a context that is worth proposing, and for which weights are rounded more
T = TypeVar("T")


@dataclass(frozen=True)
class Weights:
    """How many numbers a model has. `tables`: in the embedding and the head, `matrices`: in all others that are
    quantised, `others`: in vectors. `stored`: bytes of tables and matrices as they are; `kept`: whether these are of
    quantised types that run as they are stored."""

    tables: int
    matrices: int
    others: int
    stored: int
    kept: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint, vocabulary: int) -> Self:
        """From the shapes of all tensors: those with a row for each word of the vocabulary are tables."""
        entries = [checkpoint.entry(name) for name in checkpoint]
        stored = sum(prod(e.shape) * _stored_bits(e) for e in entries if len(e.shape) > 1)
        kept = any(getattr(e, "quantised", None) for e in entries)
        return cls(*_counted((e.shape for e in entries), vocabulary), int(stored / 8), kept)

    @classmethod
    def of_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Of a bundle (docs/bundle.md); what is stored is what it has."""
        weights = [b for b in manifest["buffers"] if b["kind"] == "weight"]
        numbers = [b["shape"] for b in weights if str(b["name"]).rpartition(".")[2].startswith("weight")]
        stored = sum(b["bytes"] for b in weights if len(b["shape"]) > 1)
        return cls(*_counted(numbers, manifest["model"]["vocab_size"]), stored)

    def bytes(self, quant: str) -> int:
        """Bytes as `quant`. With fewer than 8 bits tables keep 8 (`nn.precision`)."""
        if quant == STORED:
            return self.stored + 4 * self.others
        table = max(bits(quant), bits("q8"))
        return int((self.tables * table + self.matrices * bits(quant)) / 8) + 4 * self.others

    def quants(self) -> list[str]:
        """Those worth choosing among, the most exact first: what is stored, if it is kept, and integers that take
        less."""
        if not self.kept:
            return quants()
        return [STORED, *(q for q in quants() if self.bytes(q) < self.bytes(STORED))]


def _counted(shapes: Iterable[tuple[int, ...]], vocabulary: int) -> tuple[int, int, int]:
    """Numbers in tables, in matrices, and in vectors."""
    tables = matrices = others = 0
    for shape in shapes:
        if len(shape) < 2:
            others += prod(shape)
        elif shape[0] == vocabulary:
            tables += prod(shape)
        else:
            matrices += prod(shape)
    return tables, matrices, others


def _stored_bits(entry: TensorEntry) -> float:
    """Of a number, as it is kept; of a quantised type that cannot be, as the nearest."""
    kind = getattr(entry, "quantised", None)
    if kind is None:
        return min(entry.dtype.bits, 32)
    from tinyweb.models.stored import kept_bits  # most models do without

    return kept_bits(kind, getattr(entry, "rows", None) is not None)


def bits(quant: str) -> float:
    """Bits of one weight, its part of a group's scale included."""
    return BITS[quant] + SCALE_BITS / GROUP if quant in BITS else float(quant.removeprefix("f"))


def quants() -> list[str]:
    """Those of integers, the most exact first."""
    return sorted(BITS, key=bits, reverse=True)


def less_exact(quant: str) -> list[str]:
    """Kinds of weights that are less exact than this one, the most exact first; of one that is none of ours, as of
    blocks of a file, all of integers."""
    order = [*FLOATS, *quants()]
    return order[order.index(quant) + 1 :] if quant in order else quants()


def smaller_caches(kind: str) -> list[str]:
    """Kinds of caches from this one on, the most exact first."""
    kinds = (c for c in CACHES if ELEMENT_BITS[c] <= ELEMENT_BITS[kind])
    return sorted(kinds, key=lambda c: ELEMENT_BITS[c], reverse=True)


def by_exactness(weights: Iterable[str], caches: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of a kind of weights and one of a cache, the most exact first."""

    def exactness(pair: tuple[str, str]) -> tuple[float, float]:
        of = EXACT if pair[0] == STORED else bits(pair[0]), ELEMENT_BITS[pair[1]]
        return min(of), sum(of)

    return sorted(product(weights, caches), key=exactness, reverse=True)


def preferred(found: Iterable[tuple[T, int]], most: int) -> Iterator[tuple[T, int]]:
    """What leaves a good context, in its order, then what leaves any worth having; each comes with the tokens that it
    leaves, of which `most` are wanted."""
    every = list(found)
    yield from (f for f in every if f[1] >= min(GOOD, most))
    yield from (f for f in every if min(SHORTEST, most) <= f[1] < min(GOOD, most))
