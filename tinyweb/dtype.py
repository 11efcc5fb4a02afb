"""Scalar types: what they hold, how they are promoted, and the bits of the formats NumPy does not know.

A dtype is always a scalar type: vectors and tiles are shapes of nodes, never dtypes.
`bits` may be below 8 (int4, uint4, uint2, uint1): such values are packed, the first lowest, in the bytes of a buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class DType:
    """A scalar type. `kind` is one of bool, int, uint, float, index, void. There is one object of each."""

    name: str
    kind: str
    bits: int
    short: str  # the name used in bundles: f32, i8, …
    mantissa: int = 0  # of a float: bits of its significand that are stored; the rest is a sign and the exponent

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_by_name, (self.name,))

    @cached_property
    def is_float(self) -> bool:
        return self.kind == "float"

    @cached_property
    def is_int(self) -> bool:
        """Integers of any sign, index arithmetic included; bool is not."""
        return self.kind in ("int", "uint", "index")

    @cached_property
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

    @cached_property
    def min(self) -> int | float | bool:
        if self.kind == "bool":
            return False
        if self.is_float:
            return -float("inf")
        return 0 if self.kind == "uint" else -(1 << (self.bits - 1))

    @cached_property
    def max(self) -> int | float | bool:
        if self.kind == "bool":
            return True
        if self.is_float:
            return float("inf")
        return (1 << (self.bits - (0 if self.kind == "uint" else 1))) - 1

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type that holds one value (bfloat16, 8-bit floats and integers below 8 bits are held wider)."""
        return np.dtype(_NUMPY.get(self.name, self.name))

    @property
    def held_wider(self) -> bool:
        """Whether NumPy lacks the type, so that arrays hold its values in a wider one."""
        return self.bits < 8 * self.numpy.itemsize

    # -- floats -------------------------------------------------------------------------------------------------------
    @property
    def bias(self) -> int:
        """What the exponent field of a float is above the exponent."""
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def overflow(self) -> int:
        """The bits of a float's largest magnitude: of infinity, and of 448 in float8_e4m3, which has none."""
        all_ones = (1 << (self.bits - 1)) - 1
        return all_ones - 1 if self is dtypes.float8_e4m3 else all_ones >> self.mantissa << self.mantissa

    @property
    def quiet_nan(self) -> int:
        """The bits of a NaN: all ones in 8 bits, else the highest bit of the mantissa alone."""
        return 0x7F if self.bits == 8 else self.overflow | 1 << (self.mantissa - 1)


class dtypes:
    """All scalar types by name."""

    void = DType("void", "void", 0, "void")
    bool = DType("bool", "bool", 8, "bool")
    uint1 = DType("uint1", "uint", 1, "u1")
    uint2 = DType("uint2", "uint", 2, "u2")
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
    # OCP 8-bit Floating Point Specification 1.0. What is too large becomes 448 in e4m3 (as PyTorch casts), which has
    # no infinity, and infinity in e5m2
    float8_e4m3 = DType("float8_e4m3", "float", 8, "e4m3", 3)
    float8_e5m2 = DType("float8_e5m2", "float", 8, "e5m2", 2)
    float16 = DType("float16", "float", 16, "f16", 10)
    bfloat16 = DType("bfloat16", "float", 16, "bf16", 7)
    float32 = DType("float32", "float", 32, "f32", 23)
    float64 = DType("float64", "float", 64, "f64", 52)
    index = DType("index", "index", 32, "i32")  # sizes, loop counters and addresses; emitted as i32

    # names PyTorch users type
    float8_e4m3fn = float8_e4m3
    half = float16
    float = float32
    double = float64
    short = int16
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

# the NumPy types of those that NumPy does not have
_NUMPY: dict[str, str] = {
    "int4": "int8", "uint4": "uint8", "uint2": "uint8", "uint1": "uint8", "index": "int32",
    "float8_e4m3": "float32", "float8_e5m2": "float32", "bfloat16": "float32",
}  # fmt: skip


def from_numpy(t: npt.DTypeLike) -> DType:
    """The dtype of a NumPy array; TypeError for types without a counterpart."""
    name = np.dtype(t).name
    if name not in BY_NAME:
        raise TypeError(f"NumPy type {name} has no tinyweb dtype; known: {', '.join(sorted(BY_NAME))}")
    return BY_NAME[name]


def as_dtype(value: Any) -> DType | None:
    """What names a dtype: a DType; a name of it here, in PyTorch or NumPy ("float16", "half"); a torch.dtype; a NumPy
    type; Python's bool, and float and int, which are float64 and int64 as in both. None for anything else."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in (bool, int, float):
        return {bool: dtypes.bool, int: dtypes.int64, float: dtypes.float64}[value]
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        value = np.dtype(value).name
    elif not isinstance(value, str):
        value = str(value) if type(value).__module__ == "torch" and type(value).__name__ == "dtype" else ""
    name = value.removeprefix("torch.")
    found = BY_NAME.get(name) or (vars(dtypes).get(name) if not name.startswith("_") else None)
    return found if isinstance(found, DType) and found.kind not in ("void", "index") else None


class TorchDType(Protocol):
    """A torch.dtype, known by its form: PyTorch is not imported."""

    @property
    def is_floating_point(self) -> bool: ...
    @property
    def is_complex(self) -> bool: ...


DTypeLike: TypeAlias = "DType | str | TorchDType | np.dtype[Any] | type[Any]"


def to_dtype(value: DTypeLike) -> DType:
    """The dtype that `value` names, by the rules of `as_dtype`; TypeError where it names none. `DTypeLike`, in
    signatures, is what both take."""
    found = value if isinstance(value, DType) else as_dtype(value)
    if found is None:
        raise TypeError(f"dtype must be one of tinyweb.dtypes or the name of one, got {value!r}")
    return found


# -- promotion --------------------------------------------------------------------------------------------------------
# A lattice in JAX's manner (docs.jax.dev, "Type promotion semantics"): each type goes to those behind it, and two types
# meet in the first that both lead to. Names with a star are no dtypes: `int*` and `float*` are Python's numbers, which
# give way to what they meet; `float*` is also where 64-bit integers of both signs meet, and `float8*` where the two
# 8-bit floats do. Where nothing else joins them they become what MATERIAL says.
PROMOTION: dict[str, tuple[str, ...]] = {
    "bool": ("int*",),
    "int*": ("uint1",),
    "uint1": ("uint2",),          "uint2": ("uint4", "int4"),
    "uint4": ("uint8", "int8"),   "int4": ("int8",),
    "uint8": ("uint16", "int16"), "int8": ("int16",),
    "uint16": ("uint32", "int32"), "int16": ("int32",),
    "uint32": ("uint64", "int64"), "int32": ("int64",),
    "uint64": ("float*",),        "int64": ("float*",),
    "float*": ("float8_e4m3", "float8_e5m2"),
    "float8_e4m3": ("float8*",),  "float8_e5m2": ("float8*",),
    "float8*": ("float16", "bfloat16"),
    "float16": ("float32",),      "bfloat16": ("float32",),
    "float32": ("float64",),
    "float64": (),
}  # fmt: skip
MATERIAL: dict[str, str] = {"int*": "int32", "float*": "float32", "float8*": "float32"}
_PYTHON: dict[type, str] = {bool: "bool", int: "int*", float: "float*"}


def _above(name: str) -> frozenset[str]:
    return frozenset({name}).union(*map(_above, PROMOTION[name]))


_ABOVE: dict[str, frozenset[str]] = {n: _above(n) for n in PROMOTION}


def join(*names: str) -> str:
    """The least upper bound in PROMOTION."""
    common = frozenset.intersection(*(_ABOVE[n] for n in names))
    return max(common, key=lambda n: len(_ABOVE[n]))


def _place(t: DType | type) -> str:
    """Where a type stands in PROMOTION."""
    if isinstance(t, DType):
        return "int32" if t.kind == "index" else t.name
    return next(name for python, name in _PYTHON.items() if issubclass(t, python))


def promote(*types: DType | type) -> DType:
    """The dtype that values of all `types` are converted to; the types `bool`, `int` and `float` stand for Python's
    numbers.

    int8 + uint8 → int16, any integer + float16 → float16, uint64 + int64 → float32, int8 + Python int → int8.
    """
    found = join(*dict.fromkeys(map(_place, types)))
    return BY_NAME[MATERIAL.get(found, found)]


# -- formats that NumPy does not have ----------------------------------------------------------------------------------
def to_bits(values: npt.ArrayLike, dtype: DType) -> npt.NDArray[Any]:
    """The bits of the numbers of a float `dtype` of 8 or 16 bits that are nearest to `values`, halves to even."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        x = np.asarray(values, np.float64)
    size = np.where(np.isfinite(x), np.abs(x), 0.0)
    exponent = np.maximum(np.where(size > 0, np.frexp(size)[1] - 1, 1 - dtype.bias), 1 - dtype.bias)
    # how often the last place at this exponent goes into it; below the normal numbers the field of the exponent is 0
    count = np.rint(np.ldexp(size, dtype.mantissa - exponent)).astype(np.int64)
    bits = np.minimum((exponent.astype(np.int64) + (dtype.bias - 1) << dtype.mantissa) + count, dtype.overflow)
    bits = np.where(np.isinf(x), dtype.overflow, np.where(np.isnan(x), dtype.quiet_nan, bits))
    signed: npt.NDArray[Any] = bits | np.signbit(x).astype(np.int64) << (dtype.bits - 1)
    return signed.astype(f"uint{dtype.bits}")


def from_bits(bits: npt.ArrayLike, dtype: DType) -> npt.NDArray[np.float32]:
    """The values that the bits of a float `dtype` of 8 or 16 bits stand for."""
    raw = np.asarray(bits).astype(f"uint{dtype.bits}", copy=False)
    if dtype is dtypes.bfloat16:  # the upper half of a float32
        wide = raw.astype(np.uint32)
        return np.left_shift(wide, 16, out=wide).view(np.float32)
    table, flat, values = _values_of(dtype), raw.reshape(-1), np.empty(raw.shape, np.float32)
    for at in range(0, flat.size, _AT_ONCE):  # NumPy makes 64-bit indices of what it looks up
        values.reshape(-1)[at : at + _AT_ONCE] = table[flat[at : at + _AT_ONCE]]
    return values


_AT_ONCE = 1 << 18


@cache
def _values_of(dtype: DType) -> npt.NDArray[np.float32]:
    """The values of all bits of a float `dtype` in order."""
    raw = np.arange(1 << dtype.bits)
    size, minus = raw & (1 << (dtype.bits - 1)) - 1, raw >> (dtype.bits - 1) & 1
    field, rest = size >> dtype.mantissa, size & (1 << dtype.mantissa) - 1
    whole = np.where(field > 0, rest + (1 << dtype.mantissa), rest)
    value = np.ldexp(whole.astype(np.float64), np.maximum(field, 1) - dtype.bias - dtype.mantissa)
    if dtype is not dtypes.float8_e4m3:
        value = np.where(size == dtype.overflow, np.inf, value)
    value = np.where(size > dtype.overflow, np.nan, value)
    return np.where(minus == 1, -value, value).astype(np.float32)


def round_to(value: float, dtype: DType) -> float:
    """A Python float as a float `dtype` holds it."""
    if dtype is dtypes.float64:
        return float(value)
    with np.errstate(all="ignore"):
        if dtype.held_wider:
            return float(from_bits(to_bits(value, dtype), dtype))
        return float(dtype.numpy.type(value))
