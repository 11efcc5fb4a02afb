"""compressed-tensors, what LLM Compressor writes: integers or 8-bit floats with scales for each tensor, output channel,
group of inputs or block, symmetric or with zero points.

Packed integers (`pack-quantized`) have 2^(bits−1) added, so that they are unsigned, and lie along the inputs from the
lowest bit of 32-bit words on; zero points likewise along the outputs. Where bits do not divide a word, a field may end
in the next one, but not in files of earlier versions: these leave a word's upper bits unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.packed.floats import block_size, fp4_weight, widened
from tinyweb.formats.packed.tensors import Array, Floats, Stored, Weight, fields

FORMATS = (
    "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
    "mxfp4-pack-quantized", "mixed-precision", "dense",
)  # fmt: skip


def compressed_tensors(stored: Stored, config: Config) -> Iterator[Weight]:
    schemes = list(_schemes(config))
    for one in (config, *schemes):
        named = one.word("format", "dense") if one.values.get("format") is not None else "dense"
        if named not in FORMATS:
            raise ModelFormatError(
                f"{one.where}: compressed-tensors' format {named[:40]!r} is not supported; known: {', '.join(FORMATS)}"
            )
    weights = [w for one in schemes if (w := one.section("weights")) is not None]
    bits = sorted({w.integer("num_bits", 1, 16) for w in weights}) or [4]
    block = next((size for w in weights if (size := block_size(w, "block_structure"))), None)
    for stem in stored.ending(".weight_packed"):
        if stored.checkpoint.dtype(stem + ".weight_packed").itemsize == 1:
            yield fp4_weight(stored, stem)
        else:
            yield _packed(stored, stem, bits)
    for stem in stored.ending(".weight_scale"):
        if stem + ".weight_packed" not in stored and stem + ".weight" in stored:
            yield widened(stored, stem, "weight_scale", "weight_zero_point", block)


def _schemes(config: Config) -> Iterator[Config]:
    """What the config says of each group of layers."""
    groups = config.section("config_groups")
    if groups is not None:
        for name in groups.values:
            one = groups.section(name)
            if one is not None:
                yield one


def _words(bits: int, count: int) -> tuple[int, int]:
    """How many words so many fields take: one after the other, and with none in two words."""
    return -(-count * bits // 32), -(-count // (32 // bits))


def _packed(stored: Stored, stem: str, known: list[int]) -> Weight:
    """`known`: the bits that the model's layers have; which of them a matrix has, its shape says."""
    rows, columns = (int(n) for n in stored.read(stem + ".weight_shape", (2,), kind="int"))
    words = stored.shape(stem + ".weight_packed")
    fits = [b for b in known if b <= 8 and len(words) == 2 and words[1] in _words(b, columns)]
    if rows < 1 or columns < 1 or words[:1] != (rows,) or not fits:
        of = f"{[rows, columns]} of {' or '.join(map(str, known))} bits"
        raise stored.wrong(stem + ".weight_packed", f"has shape {words}, which does not hold {of}")
    if len(fits) > 1:
        raise stored.wrong(stem + ".weight_packed", f"has shape {words}, which may be of {fits} bits")
    ends = ("weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx", "weight_shape")
    parts = tuple(n for e in ends if (n := f"{stem}.{e}") in stored)
    whole = words[1] != _words(fits[0], columns)[0]
    make = partial(_unpack, stored, stem, fits[0], rows, columns, whole)
    return Weight(stem + ".weight", (rows, columns), parts, make)


def _fields(words: Array, bits: int, count: int, whole: bool) -> Array:
    """Fields along the last axis of 32-bit words; `whole`: none lies in two words."""
    if not whole:
        return fields(words, bits, count)
    each = words.view(np.uint32)[..., None] >> np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
    return (each & np.uint32((1 << bits) - 1)).astype(np.uint8).reshape(*words.shape[:-1], -1)[..., :count]


def _unpack(stored: Stored, stem: str, bits: int, rows: int, columns: int, whole: bool) -> Floats:
    half = 1 << (bits - 1)
    words = stored.read(stem + ".weight_packed", kind="int").astype(np.int32)
    values = _fields(words, bits, columns, whole).astype(np.float32) - half
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
        values -= _zero_points(stored, stem, bits, rows, scales, whole)[:, of_column]
    return values * scales[:, of_column]


def _zero_points(stored: Stored, stem: str, bits: int, rows: int, scales: Array, whole: bool) -> Floats:
    name, groups = stem + ".weight_zero_point", scales.shape[1]
    packed = (_words(bits, rows)[whole], groups)
    found = stored.read(name, scales.shape, packed, kind="int")
    if found.shape == scales.shape and stored.checkpoint.dtype(name).itemsize == 1:
        return found.astype(np.float32)
    if found.shape != packed:
        raise stored.wrong(name, f"has shape {found.shape}, where {packed} would fit")
    words = np.ascontiguousarray(found.astype(np.int32).T)
    return _fields(words, bits, rows, whole).T.astype(np.float32) - (1 << (bits - 1))
