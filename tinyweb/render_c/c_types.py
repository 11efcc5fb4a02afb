"""The C family's names for scalar and vector types, and literals of them."""

from __future__ import annotations

import struct

import numpy as np

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import DeviceError
from tinyweb.render_c.dialect import CLANG, Dialect
from tinyweb.render_common import f32_bits, f32_text

SCALARS = CLANG.scalars
OPTIONAL = ("f16", "f64", "bf16")  # types that not every device has


def scalar_name(dtype: DType) -> str:
    """The typedef of one element in memory and in scalar variables; bool is a byte that holds 0 or 1."""
    name = "b8" if dtype is dtypes.bool else dtype.short
    if name not in SCALARS and name not in OPTIONAL:
        raise DeviceError(f"{dtype.name} has no C type: lowering must replace it by a type the target stores")
    return name


def unsigned_name(dtype: DType) -> str:
    """The unsigned type to compute in where overflow must wrap around: never narrower than 32 bits."""
    return "u64" if dtype.bits == 64 else "u32"


def vector_name(scalar: str, n: int) -> str:
    return scalar if n == 1 else f"{scalar}x{n}"


def declare(vectors: set[str]) -> str:
    """The typedefs of all scalars and of the named vectors. Every type may alias: memory is reused between kernels."""
    lines = [CLANG.scalar.format(kind=name, native=c) for name, c in SCALARS.items() if name != "f16"]
    halves = [CLANG.scalar.format(kind="f16", native=SCALARS["f16"])]
    for v in sorted(vectors - set(SCALARS), key=lambda v: (v.split("x")[0], int(v.split("x")[1]))):
        group = halves if v.startswith("f16") else lines
        group.append(declare_vector(v, CLANG))
    if any(v.startswith("f16") for v in vectors):
        lines += ["#ifndef __wasm__", *halves, "#endif"]
    return "\n".join(lines) + "\n"


def declare_vector(name: str, dialect: Dialect) -> str:
    """What declares a vector type."""
    scalar, n = name.split("x")
    size = int(scalar.lstrip("bfiu")) // 8
    return dialect.vector.format(scalar=scalar, kind=name, n=n, size=size, native=dialect.scalars[scalar])


def declare_gpu(vectors: set[str], dialect: Dialect) -> str:
    """What stands before kernels: extensions, types and what the language lacks."""
    used = {v.split("x")[0] for v in vectors}
    lines = [text for kind, text in dialect.extensions.items() if kind in used]
    scalars = [s for s in dialect.scalars if s in used or s not in OPTIONAL]
    lines += [dialect.scalar.format(kind=s, native=dialect.scalars[s]) for s in scalars]
    order = sorted((v for v in vectors if "x" in v), key=lambda v: (v.split("x")[0], int(v.split("x")[1])))
    return "\n".join([*lines, dialect.prelude, *(declare_vector(v, dialect) for v in order)]) + "\n"


def literal(value: bool | int | float, dtype: DType, dialect: Dialect = CLANG) -> str:
    """A constant, exact, of exactly the C type of `dtype`."""
    if dtype.is_float:
        return _float(float(value), dtype, dialect)
    number = int(value)
    if dtype.bits < 32:
        return f"({scalar_name(dtype)}){number}" if number >= 0 else f"({scalar_name(dtype)})({number})"
    suffix = ("u" if dtype.kind == "uint" else "") + (dialect.long_suffix if dtype.bits == 64 else "")
    if number == dtype.min and number < 0:
        return f"({number + 1}{suffix} - 1)"  # the most negative number has no literal in C
    return f"{number}{suffix}" if number >= 0 else f"({number}{suffix})"


def _float(value: float, dtype: DType, dialect: Dialect) -> str:
    if dtype is dtypes.float64:
        if value != value or value in (float("inf"), -float("inf")):
            bits = struct.unpack("<Q", struct.pack("<d", value))[0]
            return dialect.bits.format(kind="f64", value=f"0x{bits:016x}u{dialect.long_suffix}")
        text = repr(value) if len(repr(value)) <= 12 else value.hex()
        return text if value >= 0 and not text.startswith("-") else f"({text})"
    if dtype is dtypes.float16:
        with np.errstate(over="ignore"):
            half = np.float16(value)
        if np.isfinite(half):
            return f"(f16){literal(float(half), dtypes.float32, dialect)}"
        return dialect.bits.format(kind="f16", value=f"(u16)0x{int(half.view(np.uint16)):04x}")
    if dtype is dtypes.bfloat16:
        return f"(bf16){literal(value, dtypes.float32, dialect)}"
    text32 = f32_text(value)
    if text32 is None:
        return dialect.bits.format(kind="f32", value=f"0x{f32_bits(value):08x}u")
    return f"({text32}f)" if text32.startswith("-") else f"{text32}f"
