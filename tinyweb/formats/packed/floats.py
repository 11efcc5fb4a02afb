"""Weights in floats of 8 or 4 bits with scales: FP8 checkpoints (OCP 8-bit floating point; scales for a tensor, a row
or a block, as DeepSeek-V3), MXFP4 (OCP microscaling formats) and NVFP4."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.packed.tensors import Array, Floats, Stored, Weight, fields

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
MX_GROUP, NV_GROUP = 32, 16
Sizes = tuple[int, ...]


def fp8(stored: Stored, config: Config) -> Iterator[Weight]:
    """`weight` times `weight_scale` (fbgemm, per tensor) or `weight_scale_inv` (blocks, whose sizes the config has)."""
    block = block_size(config, "weight_block_size")
    for end in ("weight_scale_inv", "weight_scale"):
        for stem in stored.ending("." + end):
            if stem + ".weight" in stored:
                yield widened(stored, stem, end, "", block if end.endswith("inv") else None)


def block_size(config: Config, name: str) -> Sizes | None:
    """Rows and columns of the blocks that have a scale each, where the config says any."""
    block = config.values.get(name)
    if block is None:
        return None
    if not (isinstance(block, list) and len(block) == 2 and all(_is_size(b) for b in block)):
        raise ModelFormatError(f"{config.where}: {name!r} must be two sizes, found {str(block)[:40]}")
    return block[0], block[1]


def _is_size(value: object) -> bool:
    return type(value) is int and 0 < value <= 1 << 16


def widened(stored: Stored, stem: str, scale: str, zero: str, block: Sizes | None = None) -> Weight:
    """A matrix of small numbers, of the shape of the weight: (value − zero point) · scale."""
    name = stem + ".weight"
    shape = stored.shape(name)
    parts = tuple(
        n for e in ("weight", scale, zero, "input_scale", "activation_scale") if e and (n := f"{stem}.{e}") in stored
    )
    return Weight(name, shape, parts, partial(_widen, stored, stem, scale, zero, block))


def _widen(stored: Stored, stem: str, scale: str, zero: str, block: Sizes | None) -> Floats:
    values = stored.read(stem + ".weight").astype(np.float32)
    scales = _spread(stored, f"{stem}.{scale}", values.shape, block)
    if zero and f"{stem}.{zero}" in stored:
        values -= _spread(stored, f"{stem}.{zero}", values.shape, block)
    return values * scales


def _spread(stored: Stored, name: str, shape: tuple[int, ...], block: Sizes | None) -> Floats:
    """Scales, or zero points, each over its part of a matrix."""
    found = stored.read(name).astype(np.float32)
    if not np.isfinite(found).all():
        raise stored.wrong(name, "holds infinities or NaNs")
    if found.size == 1:
        return found.reshape((1,) * len(shape))
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim == 2 and len(shape) == 2:
        even = tuple(max(-(-n // max(f, 1)), 1) for n, f in zip(shape, found.shape, strict=True))
        for sizes in (block, even) if block else (even,):
            if tuple(-(-n // s) for n, s in zip(shape, sizes, strict=True)) == found.shape:
                for axis, (size, length) in enumerate(zip(sizes, shape, strict=True)):
                    if found.shape[axis] > 1 and size > 1:  # one is broadcast
                        found = found.take(np.arange(length) // size, axis)
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
    scales = _powers(stored.read(stem + "_scales", shape[:3], kind="int"))
    blocks = stored.read(stem + "_blocks", kind="int").astype(np.uint8)
    with np.errstate(invalid="ignore"):
        values = E2M1[fields(blocks, 4, MX_GROUP)] * scales[..., None]
    return values.reshape(shape[0], shape[1], -1).swapaxes(1, 2)


def _powers(exponents: Array) -> Floats:
    """2^(n − 127) of E8M0, of which 255 is no number."""
    exponents = exponents.astype(np.int32)
    with np.errstate(over="ignore"):
        powers = np.ldexp(np.float32(1), exponents - 127)
    return np.where(exponents == 255, np.float32(np.nan), powers)


def fp4_weight(stored: Stored, stem: str) -> Weight:
    """As compressed-tensors stores nibbles: NVFP4, E4M3 scales for 16 inputs, divided by one scale for all; or, where
    there is none for all, MXFP4, scales 2^(n − 127) for 32."""
    name, whole_name = stem + ".weight_packed", stem + ".weight_global_scale"
    shape, group = stored.shape(name), NV_GROUP if whole_name in stored else MX_GROUP
    if len(shape) != 2 or (shape[1] * 2) % group:
        raise stored.wrong(name, f"has shape {shape}, which is no matrix in groups of {group}")
    rows, columns = shape[0], shape[1] * 2

    def make() -> Floats:
        scale, few = stem + ".weight_scale", (rows, columns // group)
        if whole_name in stored:
            scales = stored.floats(scale, few) / stored.floats(whole_name, (), (1,)).reshape(1, 1)
        else:
            scales = _powers(stored.read(scale, few, kind="int"))
        nibbles = fields(stored.read(name, kind="int").astype(np.uint8), 4, columns)
        with np.errstate(invalid="ignore"):  # 0 times infinity: who reads weights refuses both
            return E2M1[nibbles] * np.repeat(scales, group, 1)

    ends = ("weight_packed", "weight_scale", "weight_global_scale", "input_global_scale")
    parts = tuple(n for e in ends if (n := f"{stem}.{e}") in stored)
    return Weight(stem + ".weight", (rows, columns), parts, make)
