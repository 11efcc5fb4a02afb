"""Values as memory holds them: NumPy arrays to bytes and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, from_bits, to_bits


def pack(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[np.uint8]:
    """The bytes of `array` as memory holds `dtype`: 4-bit types two to a byte, low nibble first; narrow floats rounded
    to even.

    Floats become integers as a cast makes them: truncated, held within the type's range, 0 for NaN.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.is_float:
        if dtype.held_wider:
            return to_bits(flat, dtype).view(np.uint8)
        with np.errstate(over="ignore"):
            return flat.astype(dtype.numpy).view(np.uint8)
    if flat.dtype.kind == "f" and dtype.is_int:
        flat = _saturated(flat, dtype)
    if dtype.bits == 4:
        nibbles = (flat.astype(np.int64) & 15).astype(np.uint8)
        if nibbles.size % 2:
            nibbles = np.append(nibbles, np.uint8(0))
        return np.asarray(nibbles[0::2] | (nibbles[1::2] << 4), np.uint8)
    return flat.astype(dtype.numpy).view(np.uint8)


def _saturated(values: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    low, high = int(dtype.min), int(dtype.max)
    exact = values.astype(np.float64)
    inside = (exact > low - 1) & (exact < float(high + 1))
    whole = np.where(inside, exact, 0.0).astype(dtype.numpy)
    return np.where(inside | np.isnan(exact), whole, np.where(exact < 0, low, high).astype(dtype.numpy))


def unpack(data: bytes, dtype: DType, count: int) -> npt.NDArray[Any]:
    """The values of `count` elements held in memory as `dtype`; narrow floats that NumPy lacks come back as float32,
    4-bit types as 8-bit."""
    raw = np.frombuffer(data, np.uint8)
    if dtype.bits == 4:
        nibbles = np.stack([raw & 15, raw >> 4], axis=1).reshape(-1)[:count]
        return nibbles if dtype.kind == "uint" else ((nibbles.astype(np.int8) ^ 8) - 8).astype(np.int8)
    if dtype.held_wider:
        return from_bits(raw[: dtype.nbytes(count)].view(f"uint{dtype.bits}"), dtype)
    return raw[: dtype.nbytes(count)].view(dtype.numpy).copy()
