"""GPTQ (Frantar et al. 2022) and AWQ (Lin et al. 2023): integers of 2 to 8 bits with scales and zero points for groups
of inputs, stored input by output.

GPTQ packs along the inputs, zero points along the outputs; AutoGPTQ's first format stores zero points less one. Inputs
may be in another order (`g_idx`). AWQ packs along the outputs, eight nibbles a word, even columns before odd ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.packed.tensors import Floats, Stored, Weight, fields

ZEROS_LESS = {"gptq": 1, "gptq_v2": 0}  # by how much less zero points are stored
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column, of eight, that each nibble of a word belongs to


def gptq(stored: Stored, config: Config) -> Iterator[Weight]:
    bits, group = config.integer("bits", 2, 8), _group(config)
    if bits not in (2, 3, 4, 8):
        raise ModelFormatError(f"{config.where}: 'bits' of GPTQ can be 2, 3, 4 or 8, found {bits}")
    layout = config.word("checkpoint_format", "gptq")
    if layout not in ZEROS_LESS:
        raise ModelFormatError(
            f"{config.where}: GPTQ's checkpoint_format {layout[:20]!r} is not supported; known: {', '.join(ZEROS_LESS)}"
        )
    less = ZEROS_LESS[layout]
    for stem in stored.ending(".qweight"):
        words, columns = _matrix(stored, stem + ".qweight")
        rows = words * 32 // bits
        size = group or rows
        parts = tuple(n for e in ("qweight", "qzeros", "scales", "g_idx") if (n := f"{stem}.{e}") in stored)
        make = partial(_gptq, stored, stem, bits, rows, columns, size, less)
        yield Weight(stem + ".weight", (columns, rows), parts, make)


def _gptq(stored: Stored, stem: str, bits: int, rows: int, columns: int, size: int, less: int) -> Floats:
    groups = -(-rows // size)
    words = stored.read(stem + ".qweight", kind="int").astype(np.int32)
    values = fields(words.T, bits, rows)  # (columns, rows)
    packed = stored.read(stem + ".qzeros", (groups, -(-columns * bits // 32)), kind="int").astype(np.int32)
    zeros = fields(packed, bits, columns).astype(np.int32) + less
    if less:  # what is stored less one wraps around: all ones stand for 0
        zeros %= 1 << bits
    scales = stored.floats(stem + ".scales", (groups, columns))
    of_row = np.arange(rows) // size
    if stem + ".g_idx" in stored:
        of_row = stored.read(stem + ".g_idx", (rows,), kind="int").astype(np.int64)
        if rows and (of_row.min() < 0 or of_row.max() >= groups):
            raise stored.wrong(stem + ".g_idx", f"names groups that are none of the {groups}")
    return (values.astype(np.float32) - zeros.T.astype(np.float32)[:, of_row]) * scales.T[:, of_row]


def awq(stored: Stored, config: Config) -> Iterator[Weight]:
    bits, group, kind = config.integer("bits", 2, 8), _group(config), config.word("version", "gemm").lower()
    if bits != 4 or kind != "gemm":
        raise ModelFormatError(
            f"{config.where}: AWQ of {bits} bits, version {kind[:20]}, is not supported; 4 and gemm are"
        )
    for stem in stored.ending(".qweight"):
        rows, words = _matrix(stored, stem + ".qweight")
        parts = tuple(n for e in ("qweight", "qzeros", "scales") if (n := f"{stem}.{e}") in stored)
        yield Weight(
            stem + ".weight", (words * 8, rows), parts, partial(_awq, stored, stem, rows, words * 8, group or rows)
        )


def _awq(stored: Stored, stem: str, rows: int, columns: int, size: int) -> Floats:
    groups = -(-rows // size)
    scales = stored.floats(stem + ".scales", (groups, columns))
    values = _awq_nibbles(stored, stem + ".qweight", (rows, columns))
    if stem + ".qzeros" in stored:
        zeros = _awq_nibbles(stored, stem + ".qzeros", (groups, columns))
    else:
        zeros = np.full((groups, columns), 8, np.float32)
    of_row = np.arange(rows) // size
    return ((values - zeros[of_row]) * scales[of_row]).T


def _awq_nibbles(stored: Stored, name: str, shape: tuple[int, int]) -> Floats:
    words = stored.read(name, (shape[0], shape[1] // 8), kind="int").astype(np.int32)
    nibbles = fields(words, 4, shape[1]).reshape(shape[0], -1, 8)
    return nibbles[..., np.argsort(AWQ_ORDER)].reshape(shape).astype(np.float32)


def _group(config: Config) -> int | None:
    """Inputs to a group; None: one group for all."""
    size = config.integer("group_size", -1, 1 << 20, -1)
    return size if size > 0 else None


def _matrix(stored: Stored, name: str) -> tuple[int, int]:
    shape = stored.shape(name)
    if len(shape) != 2 or not all(shape):
        raise stored.wrong(name, f"has shape {shape}, where a matrix is expected")
    return shape[0], shape[1]
