"""Scalar types.

A dtype is always a scalar type: vectors and tiles are shapes of nodes, never dtypes.
`bits` may be below 8 (int4, uint4): such values are packed, low nibble first, in the bytes of a buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class DType:
    """A scalar type. `kind` is one of bool, int, uint, float, index, void. There is one object of each."""

    name: str
    kind: str
    bits: int
    short: str  # the name used in bundles: f32, i8, …

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_by_name, (self.name,))

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """Integers of any sign, index arithmetic included; bool is not."""
        return self.kind in ("int", "uint", "index")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "index", "float")

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory; raises for types narrower than a byte."""
        if self.bits % 8:
            raise ValueError(f"{self.name} is packed: use nbytes(count)")
        return self.bits // 8

    def nbytes(self, count: int) -> int:
        """Bytes that `count` packed elements take."""
        return (count * self.bits + 7) // 8

    @property
    def min(self) -> int | float | bool:
        if self.kind == "bool":
            return False
        if self.is_float:
            return -float("inf")
        return 0 if self.kind == "uint" else -(1 << (self.bits - 1))

    @property
    def max(self) -> int | float | bool:
        if self.kind == "bool":
            return True
        if self.is_float:
            return float("inf")
        return (1 << (self.bits - (0 if self.kind == "uint" else 1))) - 1

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type that holds one value (bfloat16 and 4-bit types are held wider)."""
        return np.dtype(_NUMPY[self.name])


class dtypes:
    """All scalar types by name."""

    void = DType("void", "void", 0, "void")
    bool = DType("bool", "bool", 8, "bool")
    int4 = DType("int4", "int", 4, "i4")
    uint4 = DType("uint4", "uint", 4, "u4")
    int8 = DType("int8", "int", 8, "i8")
    uint8 = DType("uint8", "uint", 8, "u8")
    int16 = DType("int16", "int", 16, "i16")
    uint16 = DType("uint16", "uint", 16, "u16")
    int32 = DType("int32", "int", 32, "i32")
    uint32 = DType("uint32", "uint", 32, "u32")
    int64 = DType("int64", "int", 64, "i64")
    uint64 = DType("uint64", "uint", 64, "u64")
    float16 = DType("float16", "float", 16, "f16")
    bfloat16 = DType("bfloat16", "float", 16, "bf16")
    float32 = DType("float32", "float", 32, "f32")
    float64 = DType("float64", "float", 64, "f64")
    index = DType("index", "index", 32, "i32")  # sizes, loop counters and addresses; spelled i32

    # names PyTorch users type
    half = float16
    float = float32
    double = float64
    long = int64
    int = int32


def _by_name(name: str) -> DType:
    found = vars(dtypes)[name]
    assert isinstance(found, DType)
    return found


ALL: tuple[DType, ...] = tuple(
    {d.name: d for d in vars(dtypes).values() if isinstance(d, DType) and d.kind != "void"}.values()
)
BY_NAME: dict[str, DType] = {d.name: d for d in ALL} | {d.short: d for d in ALL if d.kind != "index"}

_NUMPY: dict[str, str] = {
    "bool": "bool", "int4": "int8", "uint4": "uint8", "int8": "int8", "uint8": "uint8", "int16": "int16",
    "uint16": "uint16", "int32": "int32", "uint32": "uint32", "int64": "int64", "uint64": "uint64",
    "float16": "float16", "bfloat16": "float32", "float32": "float32", "float64": "float64", "index": "int32",
}  # fmt: skip


def from_numpy(t: npt.DTypeLike) -> DType:
    """The dtype of a NumPy array; TypeError for types without a counterpart."""
    name = np.dtype(t).name
    if name not in BY_NAME:
        raise TypeError(f"NumPy type {name} has no tinyweb dtype; known: {', '.join(sorted(BY_NAME))}")
    return BY_NAME[name]


# Promotion as a lattice in JAX's manner: an edge says "goes to"; the result is the least upper bound.
_UP: dict[str, tuple[str, ...]] = {
    "bool": ("uint4", "int4"), "uint4": ("uint8", "int8"), "int4": ("int8",),
    "uint8": ("uint16", "int16"), "uint16": ("uint32", "int32"), "uint32": ("uint64", "int64"),
    "uint64": ("float16", "bfloat16"),
    "int8": ("int16",), "int16": ("int32",), "int32": ("int64",), "int64": ("float16", "bfloat16"),
    "float16": ("float32",), "bfloat16": ("float32",), "float32": ("float64",), "float64": (),
}  # fmt: skip


def _above(name: str) -> frozenset[str]:
    seen: set[str] = set()
    todo = [name]
    while todo:
        n = todo.pop()
        if n not in seen:
            seen.add(n)
            todo.extend(_UP[n])
    return frozenset(seen)


_ABOVE: dict[str, frozenset[str]] = {n: _above(n) for n in _UP}


def promote(*types: DType) -> DType:
    """The smallest dtype all of `types` convert to (int8+uint8 → int16, any int + float → that float)."""
    names = {t.name if t.kind != "index" else "int32" for t in types}
    common = frozenset.intersection(*(_ABOVE[n] for n in names))
    return BY_NAME[max(common, key=lambda n: len(_ABOVE[n]))]
