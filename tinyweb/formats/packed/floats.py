"""Weights in floats of 8 or 4 bits with scales: FP8 checkpoints (OCP 8-bit floating point; scales for a tensor, a row
or a block, as DeepSeek-V3), MXFP4 (OCP microscaling formats) and NVFP4."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.packed.tensors import Floats, Stored, Weight, fields

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
MX_GROUP, NV_GROUP = 32, 16


def fp8(stored: Stored, config: Config) -> Iterator[Weight]:
    """`weight` times `weight_scale` (fbgemm, per tensor) or `weight_scale_inv` (blocks, whose sizes the config has)."""
    block = config.values.get("weight_block_size")
    if block is not None and not (isinstance(block, list) and len(block) == 2 and all(_is_size(b) for b in block)):
        raise ModelFormatError(f"{config.where}: 'weight_block_size' must be two sizes, found {str(block)[:40]}")
    for end in ("weight_scale_inv", "weight_scale"):
        for stem in stored.ending("." + end):
            if stem + ".weight" in stored:
                yield widened(stored, stem, end, "", tuple(block) if block and end.endswith("inv") else None)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 < value <= 1 << 16


def widened(stored: Stored, stem: str, scale: str, zero: str, block: tuple[int, int] | None = None) -> Weight:
    """A matrix of small numbers, of the shape of the weight: (value − zero point) · scale."""
    name = stem + ".weight"
    shape = stored.shape(name)
    parts = tuple(
        n for e in ("weight", scale, zero, "input_scale", "activation_scale") if e and (n := f"{stem}.{e}") in stored
    )
    return Weight(name, shape, parts, partial(_widen, stored, stem, scale, zero, block))


def _widen(stored: Stored, stem: str, scale: str, zero: str, block: tuple[int, int] | None) -> Floats:
    values = stored.read(stem + ".weight").astype(np.float32)
    scales = _spread(stored, f"{stem}.{scale}", values.shape, block)
    if zero and f"{stem}.{zero}" in stored:
        values -= _spread(stored, f"{stem}.{zero}", values.shape, block)
    return values * scales


def _spread(stored: Stored, name: str, shape: tuple[int, ...], block: tuple[int, int] | None) -> Floats:
    """Scales, or zero points, each over its part of a matrix."""
    found = stored.read(name).astype(np.float32)
    if not np.isfinite(found).all():
        raise stored.wrong(name, "holds infinities or NaNs")
    if found.size == 1:
        return found.reshape(1, 1)
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim == 2 and len(shape) == 2:
        sizes = block or tuple(-(-n // max(f, 1)) for n, f in zip(shape, found.shape, strict=True))
        if tuple(-(-n // s) for n, s in zip(shape, sizes, strict=True)) == found.shape:
            for axis, (size, length) in enumerate(zip(sizes, shape, strict=True)):
                found = np.repeat(found, size, axis).take(range(length), axis) if size > 1 else found
            return found
    raise stored.wrong(name, f"has shape {found.shape}, which does not fit a weight of {shape}")


def mxfp4(stored: Stored, config: Config) -> Iterator[Weight]:
    """Experts of gpt-oss: (experts, outputs, groups, 16 bytes) and scales 2^(n − 127); the weight is stored input by
    output."""
    for stem in stored.ending("_blocks"):
        shape = stored.shape(stem + "_blocks")
        if len(shape) != 4 or shape[3] != MX_GROUP // 2:
            raise stored.wrong(stem + "_blocks", f"has shape {shape}, where (experts, outputs, groups, 16) would fit")
        made = (shape[0], shape[2] * MX_GROUP, shape[1])
        yield Weight(stem, made, (stem + "_blocks", stem + "_scales"), partial(_mxfp4, stored, stem, shape))


def _mxfp4(stored: Stored, stem: str, shape: tuple[int, ...]) -> Floats:
    scales = stored.read(stem + "_scales", shape[:3], kind="int").astype(np.int32) - 127
    blocks = stored.read(stem + "_blocks", kind="int").astype(np.uint8)
    values = np.ldexp(E2M1[fields(blocks, 4, MX_GROUP)], scales[..., None])
    return values.reshape(shape[0], shape[1], -1).swapaxes(1, 2)


def fp4_weight(stored: Stored, stem: str) -> Weight:
    """NVFP4 as compressed-tensors stores it: nibbles, E4M3 scales for 16 inputs, divided by one scale for all."""
    name = stem + ".weight_packed"
    shape = stored.shape(name)
    if len(shape) != 2 or (shape[1] * 2) % NV_GROUP:
        raise stored.wrong(name, f"has shape {shape}, which is no matrix in groups of {NV_GROUP}")
    rows, columns = shape[0], shape[1] * 2

    def make() -> Floats:
        scales = stored.floats(stem + ".weight_scale", (rows, columns // NV_GROUP))
        whole = stored.floats(stem + ".weight_global_scale", (), (1,)).reshape(1, 1)
        nibbles = fields(stored.read(name, kind="int").astype(np.uint8), 4, columns)
        return E2M1[nibbles] * np.repeat(scales / whole, NV_GROUP, 1)

    ends = ("weight_packed", "weight_scale", "weight_global_scale", "input_global_scale")
    parts = tuple(n for e in ends if (n := f"{stem}.{e}") in stored)
    return Weight(stem + ".weight", (rows, columns), parts, make)
