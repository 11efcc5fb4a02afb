"""compressed-tensors, what LLM Compressor writes: integers or 8-bit floats with scales for each tensor, output channel,
group of inputs or block, symmetric or with zero points.

Packed integers (`pack-quantized`) have 2^(bits−1) added, so that they are unsigned, and lie along the inputs from the
lowest bit of 32-bit words on; zero points likewise along the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.packed.floats import fp4_weight, widened
from tinyweb.formats.packed.tensors import Array, Floats, Stored, Weight, fields

FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized", "dense")


def compressed_tensors(stored: Stored, config: Config) -> Iterator[Weight]:
    named = config.word("format", "dense")
    if named not in FORMATS:
        raise ModelFormatError(
            f"{config.where}: compressed-tensors' format {named[:40]!r} is not supported; known: {', '.join(FORMATS)}"
        )
    bits = _bits(config)
    for stem in stored.ending(".weight_packed"):
        if stem + ".weight_global_scale" in stored:
            yield fp4_weight(stored, stem)
        else:
            yield _packed(stored, stem, bits)
    for stem in stored.ending(".weight_scale"):
        if stem + ".weight_packed" not in stored and stem + ".weight" in stored:
            yield widened(stored, stem, "weight_scale", "weight_zero_point")


def _bits(config: Config) -> int:
    """Of packed integers: all groups of layers must agree, for a tensor does not say how many it has."""
    groups = config.section("config_groups")
    found = set()
    for name in groups.values if groups else ():
        assert groups is not None
        one = groups.section(name)
        weights = one.section("weights") if one else None
        if weights is not None:
            found.add(weights.integer("num_bits", 1, 16))
    if len(found) > 1:
        raise ModelFormatError(f"{config.where}: layers of {sorted(found)} bits in one model are not supported")
    return found.pop() if found else 4


def _packed(stored: Stored, stem: str, bits: int) -> Weight:
    name = stem + ".weight_shape"
    shape = [int(n) for n in stored.read(name, (2,), kind="int")]
    words = stored.shape(stem + ".weight_packed")
    if not 1 <= bits <= 8 or shape[0] < 1 or words != (shape[0], -(-shape[1] * bits // 32)):
        raise stored.wrong(stem + ".weight_packed", f"has shape {words}, which does not hold {shape} of {bits} bits")
    ends = ("weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx", "weight_shape")
    parts = tuple(n for e in ends if (n := f"{stem}.{e}") in stored)
    rows, columns = shape
    return Weight(stem + ".weight", (rows, columns), parts, partial(_unpack, stored, stem, bits, rows, columns))


def _unpack(stored: Stored, stem: str, bits: int, rows: int, columns: int) -> Floats:
    half = 1 << (bits - 1)
    words = stored.read(stem + ".weight_packed", kind="int").astype(np.int32)
    values = fields(words, bits, columns).astype(np.float32) - half
    scales = stored.floats(stem + ".weight_scale")
    if scales.ndim != 2 or scales.shape[0] not in (1, rows) or not scales.shape[1] or columns % scales.shape[1]:
        raise stored.wrong(stem + ".weight_scale", f"has shape {scales.shape}, which does not fit {(rows, columns)}")
    of_column = np.arange(columns) // (columns // scales.shape[1])
    if stem + ".weight_g_idx" in stored:
        given = stored.read(stem + ".weight_g_idx", (columns,), kind="int").astype(np.int64)
        if (given >= 0).all():  # −1 everywhere: the usual order
            if given.max(initial=0) >= scales.shape[1]:
                raise stored.wrong(stem + ".weight_g_idx", f"names groups that are none of the {scales.shape[1]}")
            of_column = given
    if stem + ".weight_zero_point" in stored:
        values -= _zero_points(stored, stem, bits, rows, scales)[:, of_column]
    return values * scales[:, of_column]


def _zero_points(stored: Stored, stem: str, bits: int, rows: int, scales: Array) -> Floats:
    name, groups = stem + ".weight_zero_point", scales.shape[1]
    packed = (-(-rows * bits // 32), groups)
    found = stored.read(name, scales.shape, packed, kind="int")
    if found.shape == scales.shape and stored.checkpoint.dtype(name).itemsize == 1:
        return found.astype(np.float32)
    if found.shape != packed:
        raise stored.wrong(name, f"has shape {found.shape}, where {packed} would fit")
    return fields(found.astype(np.int32).T, bits, rows).T.astype(np.float32) - (1 << (bits - 1))
