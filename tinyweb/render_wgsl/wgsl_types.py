"""WGSL's names of scalar and vector types, and literals of them."""

from __future__ import annotations

import numpy as np

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import DeviceError
from tinyweb.render_common import f32_bits, f32_text

_SCALARS = {
    dtypes.bool: "bool", dtypes.int32: "i32", dtypes.uint32: "u32", dtypes.float32: "f32", dtypes.index: "i32",
    dtypes.float16: "f16",
}  # fmt: skip

OPAQUE = "nothing"
"""A module-scope variable that holds 0u. Compilers refuse infinities and NaNs that they can compute in advance."""


def scalar_name(dtype: DType) -> str:
    if dtype not in _SCALARS:
        raise DeviceError(f"{dtype.name} has no WGSL type: lowering must widen or pack it")
    return _SCALARS[dtype]


def type_name(scalar: str, n: int) -> str:
    return scalar if n == 1 else f"vec{n}<{scalar}>"


def literal(value: bool | int | float, dtype: DType) -> str:
    """A constant, exact, of exactly the type of `dtype`. Infinities and NaNs read OPAQUE."""
    if dtype is dtypes.bool:
        return "true" if value else "false"
    if dtype is dtypes.float32:
        return _float(float(value))
    if dtype is dtypes.float16:
        if np.isfinite(half := np.float16(value)) and not (half == 0 and np.signbit(half)):
            return f"({float(half)!r}h)" if half < 0 else f"{float(half)!r}h"
        return f"f16({_float(float(half))})"
    number = int(value)
    if dtype is dtypes.uint32:
        return f"{number}u"
    if scalar_name(dtype) == "i32" and number == -(1 << 31):
        return "i32(-2147483648)"  # as a literal of type i32 its magnitude would be too large
    return f"{number}i" if number >= 0 else f"({number}i)"


def _float(value: float) -> str:
    bits = f32_bits(value)
    text = f32_text(value) if bits != 0x80000000 else None  # compilers forget the sign of a negated zero
    if text is not None:
        return f"({text}f)" if text.startswith("-") else f"{text}f"
    if bits & 0x7F800000 == 0x7F800000 or bits == 0x80000000:
        return f"bitcast<f32>({OPAQUE} | 0x{bits:08x}u)"
    return f"bitcast<f32>(0x{bits:08x}u)"  # subnormal
