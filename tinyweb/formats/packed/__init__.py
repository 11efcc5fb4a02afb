"""Checkpoints whose weights others have quantised, as ordinary tensors.

    checkpoint = unpacked(checkpoint, config)     # `weight` of every matrix is there, float32

A scheme is a function from the names of a checkpoint's tensors to the matrices they make: each a name, a shape and
a function that decodes it when it is read, so that no more than one is ever held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Checkpoint, Config, TensorEntry
from tinyweb.formats.packed import bitsandbytes, columns, compressed, floats, mlx
from tinyweb.formats.packed.tensors import Stored, Weight

Scheme = Callable[[Stored, Config], Iterable[Weight]]

SCHEMES: dict[str, Scheme] = {
    "gptq": columns.gptq,
    "awq": columns.awq,
    "compressed-tensors": compressed.compressed_tensors,
    "fp8": floats.fp8,
    "fbgemm_fp8": floats.fp8,
    "mxfp4": floats.mxfp4,
    "bitsandbytes": bitsandbytes.bitsandbytes,
    "mlx": mlx.mlx,
}
"""By `quant_method` of a config's `quantization_config`."""


def method_of(config: Config) -> str | None:
    """What quantised a model's weights; None: nothing. ModelFormatError for what is not supported."""
    section = config.section("quantization_config") or config.section("quantization")
    if section is None:
        return None
    # MLX names no method
    named = section.word("quant_method", "mlx" if "group_size" in section.values and "bits" in section.values else "")
    if named not in SCHEMES:
        raise ModelFormatError(
            f"{config.where}: the weights are quantised by {named[:40] or 'an unknown method'}, which is not supported "
            f"({', '.join(SCHEMES)} are): use the model that was not quantised, and --quant"
        )
    return named


def unpacked(checkpoint: Checkpoint, config: Config) -> Checkpoint:
    """A checkpoint with float32 weights in the place of what `config` (config.json) says they are stored as.

    Raises ModelFormatError for a method that is not supported, or settings or tensors that do not fit each other.
    """
    named = method_of(config)
    if named is None:
        return checkpoint
    section = config.section("quantization_config") or config.section("quantization")
    assert section is not None
    return Checkpoint.of(_Unpacked(checkpoint, SCHEMES[named](Stored(checkpoint), section)))


class _Unpacked:
    """What `Checkpoint` reads from: weights that are made, and the tensors that none of them is made of."""

    def __init__(self, checkpoint: Checkpoint, weights: Iterable[Weight]):
        self._checkpoint = checkpoint
        self._made = {w.name: w for w in weights}
        used = {part for w in self._made.values() for part in w.parts}
        self.path = checkpoint.path
        self.entries: Mapping[str, TensorEntry] = dict(self._entries(used))

    def _entries(self, used: set[str]) -> Iterator[tuple[str, TensorEntry]]:
        for name in self._checkpoint:
            if name not in used:
                yield name, self._checkpoint.entry(name)
        yield from self._made.items()

    def read(self, name: str) -> npt.NDArray[Any]:
        """The values of one of `entries`."""
        made = self._made.get(name)
        if made is None:
            return self._checkpoint.stored(name)
        values = made.make()
        assert values.shape == made.shape, (name, values.shape, made.shape)
        return np.ascontiguousarray(values)
