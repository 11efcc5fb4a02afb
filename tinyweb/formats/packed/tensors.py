"""What all schemes share: the stored tensors, the weights made of them, and fields of bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Checkpoint

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Weight:
    """A matrix that is made when it is read. `parts`: the stored tensors it stands for."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[str, ...]
    make: Callable[[], Floats]
    dtype: DType = dtypes.float16  # what is quantised counts as


class Stored:
    """The tensors of a checkpoint as they are stored."""

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint = checkpoint

    def __contains__(self, name: str) -> bool:
        return name in self.checkpoint

    def ending(self, end: str) -> Iterator[str]:
        """What stands before `end` in the names of tensors that have it."""
        return (name.removesuffix(end) for name in self.checkpoint if name.endswith(end))

    def shape(self, name: str) -> tuple[int, ...]:
        return self.checkpoint.entry(name).shape

    def read(self, name: str, *shapes: tuple[int, ...], kind: str = "") -> Array:
        """The values. `shapes`: those it may have; `kind`: "int" or "float"."""
        entry = self.checkpoint.entry(name)
        if shapes and entry.shape not in shapes:
            raise self.wrong(name, f"has shape {entry.shape}, where {' or '.join(map(str, shapes))} would fit")
        if kind and entry.dtype.is_float != (kind == "float"):
            raise self.wrong(name, f"holds {entry.dtype.name}")
        return self.checkpoint.stored(name)

    def floats(self, name: str, *shapes: tuple[int, ...]) -> Floats:
        values = self.read(name, *shapes, kind="float").astype(np.float32)
        if not np.isfinite(values).all():
            raise self.wrong(name, "holds infinities or NaNs")
        return values

    def wrong(self, name: str, what: str) -> ModelFormatError:
        return ModelFormatError(
            f"the checkpoint in {self.checkpoint.folder}: tensor {name[:80]!r} {what}: the files are damaged, or of a "
            "kind of quantisation that is not supported"
        )


def fields(words: Array, bits: int, count: int) -> npt.NDArray[np.uint8]:
    """The first `count` fields of `bits` (at most 8) along the last axis of integers, which holds them in one stream
    from the lowest bit on: a field may begin in one word and end in the next."""
    stream = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return stream[..., :count]
    if 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        return ((stream[..., None] >> shifts) & np.uint8(2**bits - 1)).reshape(*stream.shape[:-1], -1)[..., :count]
    begin = np.arange(count) * bits
    low = stream[..., begin // 8].astype(np.uint16)
    high = stream[..., np.minimum((begin + bits - 1) // 8, stream.shape[-1] - 1)].astype(np.uint16)
    pair = low | (high << 8)
    return ((pair >> (begin % 8).astype(np.uint16)) & np.uint16(2**bits - 1)).astype(np.uint8)
