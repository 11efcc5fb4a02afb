"""Values as memory holds them: NumPy arrays to bytes and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, from_bits, to_bits


def pack(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[np.uint8]:
    """The bytes of `array` as memory holds `dtype`: types below 8 bits several to a byte, the first lowest; narrow
    floats rounded to even.

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
    if dtype.bits < 8:
        each = 8 // dtype.bits
        fields = np.zeros((dtype.nbytes(flat.size), each), np.uint8)
        fields.reshape(-1)[: flat.size] = flat.astype(np.uint8) & ((1 << dtype.bits) - 1)
        packed = fields[:, 0].copy()
        for i in range(1, each):
            packed |= fields[:, i] << np.uint8(i * dtype.bits)
        return packed
    return flat.astype(dtype.numpy).view(np.uint8)


def check_fits(values: int | float | npt.NDArray[Any], dtype: DType) -> None:
    """ValueError where an integer `dtype` cannot hold one of `values` without its fraction: numbers that stand in a
    program are meant as they are, and a cast would make others of them."""
    if not dtype.is_int or (isinstance(values, int) and dtype.min <= values <= dtype.max):
        return
    array = np.asarray(values)
    if array.dtype.kind == "b":
        return
    if array.dtype.kind == "f":
        whole = np.trunc(array.astype(np.float64))
        inside = (whole >= dtype.min) & (whole < dtype.max + 1)  # a power of two: exact, as the largest one may not be
    else:
        inside = (array >= dtype.min) & (array <= dtype.max)
    if not inside.all():
        raise ValueError(
            f"{array[~inside].tolist()[0]} does not fit in {dtype.name}, which holds {dtype.min} to {dtype.max}: take "
            "a wider dtype, or .cast() a tensor of another one, which wraps integers and clamps floats"
        )


def _saturated(values: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    low, high = int(dtype.min), int(dtype.max)
    exact = values.astype(np.float64)
    inside = (exact > low - 1) & (exact < float(high + 1))
    whole = np.where(inside, exact, 0.0).astype(dtype.numpy)
    return np.where(inside | np.isnan(exact), whole, np.where(exact < 0, low, high).astype(dtype.numpy))


def unpack(data: bytes, dtype: DType, count: int) -> npt.NDArray[Any]:
    """The values of `count` elements held in memory as `dtype`; narrow floats that NumPy lacks come back as float32,
    types below 8 bits as 8-bit."""
    raw = np.frombuffer(data, np.uint8)
    if dtype.bits < 8:
        fields = raw[:, None] >> np.arange(0, 8, dtype.bits, dtype=np.uint8) & ((1 << dtype.bits) - 1)
        values, sign = fields.reshape(-1)[:count], 1 << (dtype.bits - 1)
        return values if dtype.kind == "uint" else ((values.astype(np.int8) ^ sign) - sign).astype(np.int8)
    if dtype.held_wider:
        return from_bits(raw[: dtype.nbytes(count)].view(f"uint{dtype.bits}"), dtype)
    return raw[: dtype.nbytes(count)].view(dtype.numpy).copy()
