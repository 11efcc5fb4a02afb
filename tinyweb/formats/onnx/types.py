"""The types of ONNX: https://onnx.ai/onnx/repo-docs/IR.html, and what holds their values here.

Types that tinyweb has are held as they are. The few that it lacks (FNUZ floats, float4e2m1, float8e8m0, int2) are held
in a wider type whose values have been rounded to theirs; the interpreter carries their name along.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import ModelFormatError


@dataclass(frozen=True)
class Minifloat:
    """A float of at most 8 bits: its mantissa bits, bias and largest number, and which special values it has."""

    mantissa: int
    bias: int
    largest: float
    negative_zero: bool = False
    signed: bool = True
    nan: bool = True


@dataclass(frozen=True)
class ElementType:
    """A type of elements. `dtype` holds its values; `held`: it is a wider one; None: text and complex numbers."""

    number: int
    name: str
    dtype: DType | None
    held: bool = False  # in a wider type
    bits: int = 0
    form: Minifloat | None = None


TYPES: dict[int, ElementType] = {
    t.number: t
    for t in (
        ElementType(1, "float", dtypes.float32),
        ElementType(2, "uint8", dtypes.uint8),
        ElementType(3, "int8", dtypes.int8),
        ElementType(4, "uint16", dtypes.uint16),
        ElementType(5, "int16", dtypes.int16),
        ElementType(6, "int32", dtypes.int32),
        ElementType(7, "int64", dtypes.int64),
        ElementType(8, "string", None),
        ElementType(9, "bool", dtypes.bool),
        ElementType(10, "float16", dtypes.float16),
        ElementType(11, "double", dtypes.float64),
        ElementType(12, "uint32", dtypes.uint32),
        ElementType(13, "uint64", dtypes.uint64),
        ElementType(14, "complex64", None),
        ElementType(15, "complex128", None),
        ElementType(16, "bfloat16", dtypes.bfloat16),
        ElementType(17, "float8e4m3fn", dtypes.float8_e4m3),
        ElementType(18, "float8e4m3fnuz", dtypes.float32, True, 8, Minifloat(3, 8, 240.0)),
        ElementType(19, "float8e5m2", dtypes.float8_e5m2),
        ElementType(20, "float8e5m2fnuz", dtypes.float32, True, 8, Minifloat(2, 16, 57344.0)),
        ElementType(21, "uint4", dtypes.uint4),
        ElementType(22, "int4", dtypes.int4),
        ElementType(23, "float4e2m1", dtypes.float32, True, 4, Minifloat(1, 1, 6.0, negative_zero=True, nan=False)),
        ElementType(24, "float8e8m0", dtypes.float32, True, 8, Minifloat(0, 127, 2.0**127, signed=False)),
        ElementType(25, "uint2", dtypes.uint2),
        ElementType(26, "int2", dtypes.int8, True, 2),
    )
}
BY_NAME = {t.name: t for t in TYPES.values()}
STRING, COMPLEX64, COMPLEX128 = TYPES[8], TYPES[14], TYPES[15]
OF_DTYPE = {t.dtype: t for t in TYPES.values() if t.dtype is not None and not t.held}


def kind_of(number: int, where: str) -> ElementType:
    """The type of a number of TensorProto.DataType."""
    if number not in TYPES:
        raise ModelFormatError(f"{where}: type {number} of elements is none that ONNX has")
    return TYPES[number]


def numbers_of(bits: npt.NDArray[np.uint8], kind: ElementType) -> npt.NDArray[np.float32] | npt.NDArray[np.int8]:
    """The values of a type that tinyweb lacks, from its bits."""
    form = kind.form
    if form is None:  # int2
        return ((bits ^ 2).astype(np.int8) - 2).astype(np.int8)
    if not form.signed:
        values = np.ldexp(1.0, bits.astype(np.int64) - form.bias)
        return np.where(bits == 255, np.nan, values).astype(np.float32)
    sign = bits >> (kind.bits - 1)
    field = (bits >> form.mantissa) & ((1 << (kind.bits - 1 - form.mantissa)) - 1)
    rest = bits & ((1 << form.mantissa) - 1)
    whole = np.where(field > 0, rest.astype(np.int64) + (1 << form.mantissa), rest)
    size = np.ldexp(whole.astype(np.float64), np.maximum(field, 1).astype(np.int64) - form.bias - form.mantissa)
    values = np.where(sign == 1, -size, size)
    if not form.negative_zero:
        values = np.where(bits == 1 << (kind.bits - 1), np.nan, values)
    return values.astype(np.float32)
