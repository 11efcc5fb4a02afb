"""Quantised matrices as a file stores them, and what becomes of types that are not held as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.formats.gguf.blocks import BlockFormat
from tinyweb.formats.gguf.stored import HELD, held, parts, rows_of
from tinyweb.formats.gguf.types import BY_NAME
from tinyweb.nn.quantize import quantize_groups
from tinyweb.nn.quantized_weight import QuantizedWeight, of_codes

Array = npt.NDArray[Any]
FEW = 5.0  # bits of an element, up to which types that are not held become Q4_0, others Q8_0
GROUP = 32


def weight_of(rows: Array, device: str | None, name: str = "") -> QuantizedWeight:
    """A matrix of rows of blocks (out,). ModelFormatError, which says its `name`, where a value is infinite or none."""
    how = held(rows)
    return of_codes(parts(rows, name), how.bits, device, how.codebook, how.types)


def nearest(kind: str) -> str:
    """The type that elements of one that cannot be held are quantised to."""
    form = BY_NAME[kind]
    return "Q4_0" if 8 * form.bytes / form.elements <= FEW else "Q8_0"


def kept_bits(kind: str, whole: bool = True) -> float:
    """Bits of an element of a type as it is held, scales included; where that cannot be, or not as `whole` blocks, of
    the nearest type."""
    name = kind if kind in HELD and whole else nearest(kind)
    form = BY_NAME[name]
    assert isinstance(form, BlockFormat)
    (found,) = parts(rows_of(form, np.zeros(form.bytes, np.uint8), (1, form.elements)))
    codes, types = HELD[name].bits * form.elements, HELD[name].types
    scales = ((types[n].bits if n in types else 8 * v.itemsize) * v.size for n, v in found.items() if n != "codes")
    return (codes + sum(scales)) / form.elements


def requantised(values: Array, kind: str) -> Array:
    """Numbers (…, width) as rows of blocks of Q4_0 or Q8_0, by our own search for scales; `width` is a multiple of
    32."""
    form = BY_NAME[kind]
    assert isinstance(form, BlockFormat) and kind in HELD
    codes, scales = quantize_groups(values.reshape(-1, GROUP), HELD[kind].bits)
    if HELD[kind].bits == 4:
        half = (codes + 8).astype(np.uint8)
        packed = half[:, : GROUP // 2] | half[:, GROUP // 2 :] << 4
    else:
        packed = codes.view(np.uint8)
    raw = np.concatenate([scales.astype("<f2").view(np.uint8).reshape(-1, 2), packed], axis=1)
    return rows_of(form, np.ascontiguousarray(raw).reshape(-1), values.shape)
