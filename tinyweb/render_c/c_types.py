"""The C family's names for scalar and vector types, and literals of them."""

from __future__ import annotations

import struct

import numpy as np

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import DeviceError
from tinyweb.render_common import f32_bits, f32_text

SCALARS: dict[str, str] = {
    "b8": "unsigned char", "i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short",
    "i32": "int", "u32": "unsigned", "i64": "long long", "u64": "unsigned long long",
    "f16": "_Float16", "f32": "float", "f64": "double",
}  # fmt: skip


def scalar_name(dtype: DType) -> str:
    """The typedef of one element in memory and in scalar variables; bool is a byte that holds 0 or 1."""
    name = "b8" if dtype is dtypes.bool else dtype.short
    if name not in SCALARS:
        raise DeviceError(f"{dtype.name} has no C type: lowering must replace it by a type the target stores")
    return name


def unsigned_name(dtype: DType) -> str:
    """The unsigned type to compute in where overflow must wrap around: never narrower than 32 bits."""
    return "u64" if dtype.bits == 64 else "u32"


def vector_name(scalar: str, n: int) -> str:
    return scalar if n == 1 else f"{scalar}x{n}"


def declare(vectors: set[str]) -> str:
    """The typedefs of all scalars and of the named vectors. Every type may alias: memory is reused between kernels."""
    lines = [f"typedef {c} {name} __attribute__((may_alias));" for name, c in SCALARS.items() if name != "f16"]
    halves = [f"typedef {SCALARS['f16']} f16 __attribute__((may_alias));"]
    for v in sorted(vectors - set(SCALARS), key=lambda v: (v.split("x")[0], int(v.split("x")[1]))):
        scalar, n = v.split("x")
        size = 1 if scalar == "b8" else int(scalar[1:]) // 8
        group = halves if scalar == "f16" else lines
        group.append(f"typedef {scalar} {v} __attribute__((ext_vector_type({n})));")
        group.append(f"typedef {v} {v}_m __attribute__((aligned({size}), may_alias));  // in memory")
    if any(v.startswith("f16") for v in vectors):
        lines += ["#ifndef __wasm__", *halves, "#endif"]
    return "\n".join(lines) + "\n"


def literal(value: bool | int | float, dtype: DType) -> str:
    """A constant, exact, of exactly the C type of `dtype`."""
    if dtype.is_float:
        return _float(float(value), dtype)
    number = int(value)
    if dtype.bits < 32:
        return f"({scalar_name(dtype)}){number}" if number >= 0 else f"({scalar_name(dtype)})({number})"
    suffix = {"u32": "u", "u64": "ull", "i64": "ll", "i32": ""}[scalar_name(dtype)]
    if number == dtype.min and number < 0:
        return f"({number + 1}{suffix} - 1)"  # the most negative number has no literal in C
    return f"{number}{suffix}" if number >= 0 else f"({number}{suffix})"


def _float(value: float, dtype: DType) -> str:
    if dtype is dtypes.float64:
        if value != value or value in (float("inf"), -float("inf")):
            return f"__builtin_bit_cast(f64, 0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}ull)"
        text = repr(value) if len(repr(value)) <= 12 else value.hex()
        return text if value >= 0 and not text.startswith("-") else f"({text})"
    if dtype is dtypes.float16:
        with np.errstate(over="ignore"):
            half = np.float16(value)
        if np.isfinite(half):
            return f"(f16){literal(float(half), dtypes.float32)}"
        return f"__builtin_bit_cast(f16, (u16)0x{int(half.view(np.uint16)):04x})"
    text32 = f32_text(value)
    if text32 is None:
        return f"__builtin_bit_cast(f32, 0x{f32_bits(value):08x}u)"
    return f"({text32}f)" if text32.startswith("-") else f"{text32}f"
