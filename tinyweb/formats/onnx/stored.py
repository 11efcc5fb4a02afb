"""Matrices of narrow integers: those that the graph has as blocks, and floats that are quantised on the way.

They are the library's quantised weights: products and rows are computed from the integers as they lie in memory. For a
node that neither multiplies nor looks up, such a matrix is an expression like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tinyweb.device import not_recording
from tinyweb.dtype import DType, dtypes, from_numpy
from tinyweb.nn.precision import Precision, Recipe
from tinyweb.nn.quantized_weight import QuantizedWeight, of_codes
from tinyweb.tensor import Tensor

WORTH_NARROWING = 1 << 8  # elements of a matrix
PART = 1 << 22  # integers that are taken apart at a time
Host: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Stored:
    """A matrix of `width` columns and of `dtype`; `turned`: the graph has it as (in, out). The weight's rows may go on
    beyond the width, to the end of a block. `activations`: what it may be multiplied with."""

    weight: QuantizedWeight
    width: int
    dtype: DType
    turned: bool = False
    activations: str = "float"

    @property
    def shape(self) -> tuple[int, int]:
        rows = self.weight.shape[0]
        return (self.width, rows) if self.turned else (rows, self.width)

    @property
    def transposed(self) -> Stored:
        return replace(self, turned=not self.turned)

    def of(self, dtype: DType) -> Stored:
        """The same as another type of floats."""
        return replace(self, dtype=dtype)

    def dense(self) -> Tensor:
        """The matrix as the graph has it."""
        whole = self.weight.dense()[:, : self.width].cast(self.dtype)
        return whole.transpose(0, 1) if self.turned else whole

    def times(self, x: Tensor) -> Tensor:
        """x (…, in) → its product with the matrix (…, out), float32."""
        if not self.turned:
            return x.matmul(self.dense(), dtype=dtypes.float32)
        missing = self.weight.shape[1] - self.width
        if missing:
            x = x.pad([(0, 0)] * (x.ndim - 1) + [(0, missing)])
        return self.weight.product(x, self.activations)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows by number, of the matrix's type."""
        return self.weight.rows(ids)[..., : self.width].cast(self.dtype)


@dataclass(frozen=True)
class Scaled:
    """(integers − zero) · scale of bytes, as DequantizeLinear makes them: of its inputs, Tensors or known arrays, with
    one scale for all or one for each place of `axis`. Products take the integers (`operators/integer.py`); for all
    else it is an expression."""

    integers: Any
    scale: Any
    zero: Any
    axis: int
    whole: Callable[[], Tensor]

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self.integers.shape)

    def dense(self) -> Tensor:
        return self.whole()

    def moved(self, move: Callable[[Any], Any]) -> Scaled:
        """The same with its elements elsewhere; of one scale for all."""
        return replace(self, integers=move(self.integers), whole=lambda: move(self.whole()))


def dense(value: Any) -> Any:
    """A value as nodes take it that know nothing of integers in its place."""
    return value.dense() if isinstance(value, Stored | Scaled) else value


@dataclass
class Kept:
    """What is the same in every call on a device: Tensors of known arrays, with the names these go by in the graph,
    what nodes make of initializers alone, and stored matrices with their names. `recipe`: how those are stored that
    the graph has as floats; `precisions`: of some by their names."""

    device: str
    recipe: Recipe | None = None
    precisions: Mapping[str, Precision] = field(default_factory=dict)
    tensors: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    results: dict[int, list[Any]] = field(default_factory=dict)
    matrices: dict[Any, tuple[str, QuantizedWeight, Any]] = field(default_factory=dict)
    made: dict[Any, Tensor] = field(default_factory=dict)
    host_memory: dict[Any, Tensor] = field(default_factory=dict)  # what hosts of recordings read and write

    def narrowed(self, made: Tensor) -> Tensor:
        """The Tensor of a known array, large ones as half floats where that is wanted."""
        wanted = self.recipe is not None and self.recipe.layers.kind not in ("f32", "stored")
        large = made.dtype is dtypes.float32 and made.ndim > 1 and made.numel() >= WORTH_NARROWING
        return made.cast(dtypes.float16).realize() if wanted and large else made

    def matrix(self, arrays: Sequence[Any], name: str, make: Callable[[], QuantizedWeight]) -> QuantizedWeight:
        """What `make` makes of known arrays, once for all that lie at the same places."""
        key = tuple(map(place_of, arrays))
        if key not in self.matrices:
            taken = {n for n, *_ in self.matrices.values()}
            while name in taken:
                name += "_"
            with not_recording():
                weight = make()
            for part, t in weight.tensors().items():
                self.names[id(t)] = name if part == "weight" else f"{name}.{part}"
                self.tensors[id(t)] = t, t
            self.matrices[key] = name, weight, arrays
        return self.matrices[key][1]

    def derived(self, key: Any, name: str, make: Callable[[], Host]) -> Tensor:
        """The Tensor of what `make` makes of known arrays, once."""
        if key not in self.made:  # keys say where arrays lie, or what they hold: the former are initializers
            with not_recording():
                self.made[key] = t = Tensor(make(), device=self.device)
            self.names[id(t)], self.tensors[id(t)] = name, (t, t)
        return self.made[key]

    def quantised(self, values: Host, turned: bool, name: str, activations: str) -> Stored | None:
        """A matrix of floats as the recipe says: one that is multiplied (`turned`), or a table that is looked up; None
        where it stays one of floats."""
        recipe = self.recipe
        if recipe is None or values.ndim != 2 or values.dtype.kind != "f" or values.size < WORTH_NARROWING:
            return None
        rows = values.T if turned else values
        known = self.matrices.get((place_of(rows),))
        if known is None:
            precision = self.precisions.get(name, recipe.layers if turned else recipe.embedding)
            with not_recording():
                made = precision.convert(rows, self.device)
            if made is None:
                return None
            if recipe.watch is not None:
                recipe.watch(made, rows)
            weight = self.matrix([rows], name, lambda: made)
        else:
            weight = known[1]
        return Stored(weight, rows.shape[1], from_numpy(values.dtype), turned, activations)


def place_of(array: Any) -> Any:
    """Where the numbers of an array lie and how, so that views of the same ones agree."""
    if isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
    return id(array)


# -- blocks of integers -----------------------------------------------------------------------------------------------
def fields(packed: Host, bits: int) -> Host:
    """Bytes (…, n) as unsigned integers (…, n · 8 / bits), the first lowest."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    apart = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return apart.reshape(*packed.shape[:-1], -1)


def packed_blocks(packed: Host, scales: Host, zeros: Host | None, bits: int, device: str) -> QuantizedWeight:
    """(rows, blocks, block · bits / 8) bytes with scales (rows, blocks) and zero points, packed row by row (rows,
    bytes), or floats (rows, blocks)."""
    blocks = scales.shape[1]
    if zeros is not None and zeros.dtype.kind != "f":
        zeros = fields(zeros, bits)
    return _quantized(len(packed), lambda part: fields(packed[part], bits), bits, scales,
                      None if zeros is None else zeros[:, :blocks], packed[0].size, device)  # fmt: skip


def integer_blocks(integers: Host, scales: Host, zeros: Host | None, bits: int, device: str) -> QuantizedWeight:
    """(rows, blocks, block) integers of `bits`, int8 or uint8, with scales and zero points (rows, blocks), None: 0."""
    middle = 1 << (bits - 1) if integers.dtype == np.int8 else 0
    if zeros is None and not middle:
        zeros = np.zeros(scales.shape, np.uint8)

    def raised(values: Host) -> Host:
        return (values.astype(np.int16) + middle).astype(np.uint8) if middle else values

    return _quantized(len(integers), lambda part: raised(integers[part]), bits, scales,
                      None if zeros is None else raised(zeros), integers[0].size, device)  # fmt: skip


def _quantized(
    rows: int, codes: Callable[[slice], Host], bits: int, scales: Host, zeros: Host | None, width: int, device: str
) -> QuantizedWeight:
    """Unsigned integers, by parts of rows. Zero points are integers like them, None: their middle, or floats."""
    narrow = _half(scales)
    least = None
    if zeros is not None and zeros.dtype.kind == "f":
        at = np.float32(1 << 7 if bits == 8 else 0)  # which stands for 0
        least, zeros = _half((zeros.astype(np.float32) - at) * scales.astype(np.float32)), None
    elif zeros is not None and (zeros == 1 << (bits - 1)).all():
        zeros = None

    def parts() -> Iterator[dict[str, Host]]:
        step = max(PART // max(width, 1), 1)
        for i in range(0, rows, step):
            part = slice(i, i + step)
            found = {"codes": _signed(codes(part), bits), "scales": narrow[part]}
            if least is not None:
                found["minimums"] = least[part]
            if zeros is not None:
                found["zeros"] = _signed(zeros[part], bits)
            yield found

    return of_codes(parts(), bits, device, types={"zeros": dtypes.uint4} if bits == 4 else None)


def _signed(codes: Host, bits: int) -> Host:
    """Those of 8 bits have signs, so that the middle is 0."""
    return (codes ^ np.uint8(128)).view(np.int8) if bits == 8 else codes


def _half(values: Host) -> Host:
    """As half floats where these are the same numbers, else float32."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float16)
    return narrow if (narrow == values).all() else values.astype(np.float32)
