"""MLX's groups: integers of 2 to 8 bits along the inputs, from the lowest bit of 32-bit words on, times a scale, plus a
bias."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.packed.tensors import Floats, Stored, Weight, fields

BITS = (2, 3, 4, 5, 6, 8)


def mlx(stored: Stored, config: Config) -> Iterator[Weight]:
    """Layers may have sizes of their own, by their names."""
    for stem in stored.ending(".scales"):
        own = config.section(stem) if isinstance(config.values.get(stem), dict) else None
        c = own or config
        if c.word("mode", "affine") != "affine":
            raise ModelFormatError(f"{c.where}: MLX's mode {c.word('mode')[:20]!r} is not supported; affine is")
        bits, group = c.integer("bits", 2, 8), c.integer("group_size", 8, 1024)
        name = stem + ".weight"
        shape = stored.shape(name)
        columns = shape[-1] * 32 // bits if shape else 0
        if bits not in BITS or not 2 <= len(shape) <= 3 or not columns or columns % group:
            raise stored.wrong(name, f"has shape {shape}, which is no matrix of {bits} bits in groups of {group}")
        made = (*shape[:-1], columns)
        parts = (name, stem + ".scales", stem + ".biases")
        yield Weight(name, made, parts, partial(_mlx, stored, stem, bits, group, made))


def _mlx(stored: Stored, stem: str, bits: int, group: int, shape: tuple[int, ...]) -> Floats:
    words = stored.read(stem + ".weight", kind="int").astype(np.uint32)
    values = fields(words, bits, shape[-1]).astype(np.float32).reshape(*shape[:-1], -1, group)
    few = (*shape[:-1], shape[-1] // group)
    scales, biases = stored.floats(stem + ".scales", few), stored.floats(stem + ".biases", few)
    return (values * scales[..., None] + biases[..., None]).reshape(shape)
