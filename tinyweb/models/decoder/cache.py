"""What a layer keeps of each position: rows of half floats, of float32, or of integers with a scale for each group.

A row is a key, a value, a latent vector, or what goes into a convolution. Rows of integers are quantised when their
token's are stored (in groups along a row, whose scales are found from the group alone), and are multiplied out where a
kernel reads them: there is no float copy of them.
"""

from __future__ import annotations

from typing import TypeAlias, Union

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Size
from tinyweb.nn.quantize import group_size
from tinyweb.nn.quantized_weight import halves
from tinyweb.tensor import Tensor

ELEMENT_BITS = {"f16": 16.0, "f32": 32.0, "q8": 8.5, "q4": 5.0}  # scales of groups of 32 included

# where tokens stand: at `start`, start + 1, … in all sequences, or each at its own, int32 (batch, tokens)
Start: TypeAlias = Union[Size, Tensor]  # noqa: UP007 (Size is a name in quotes)


def positions_of(start: Start, tokens: int, device: str) -> Tensor:
    """Positions of tokens: (tokens,), or (batch, tokens) where sequences have their own."""
    if isinstance(start, Tensor):
        return start
    return Tensor.arange(tokens, device=device) + Tensor(start, device=device)


def kind_beside(full: bool) -> str:
    """What suits: whoever keeps weights in full precision gets nothing less precise."""
    return "f32" if full else "f16"


class Cache:
    """Rows of `shape` (…, positions, width), read and written along positions.

    `kind`: "f16", "f32", "q8" (int8 in ±127 with a scale for each group) or "q4" (uint4 with a scale and a least value
    for each group). Groups have 32 elements, or as many as rows divide into, else rows are groups. A float that half
    precision does not reach is held at ±65504.
    """

    def __init__(self, shape: tuple[int, ...], kind: str, device: str | None = None):
        *outer, width = shape
        self.kind = kind
        self.group = group_size(width) or width
        self.scales: Tensor | None = None
        self.least: Tensor | None = None
        groups = (*outer, width // self.group)
        dtype = {"f16": dtypes.float16, "f32": dtypes.float32, "q8": dtypes.int8, "q4": dtypes.uint4}[kind]
        self.rows = Tensor.empty(*shape, dtype=dtype, device=device)
        if not dtype.is_float:
            self.scales = Tensor.empty(*groups, dtype=dtypes.bfloat16, device=device)
        if kind == "q4":
            self.least = Tensor.empty(*groups, dtype=dtypes.bfloat16, device=device)

    @property
    def positions(self) -> int:
        """How many there is room for."""
        positions = self.rows.shape[-2]
        assert isinstance(positions, int)
        return positions

    def tensors(self) -> dict[str, Tensor]:
        """The memory by name; that of the rows has none."""
        found = {"": self.rows, "scales": self.scales, "least": self.least}
        return {name: t for name, t in found.items() if t is not None}

    def write(self, start: Start, rows: Tensor) -> None:
        """Rows (…, tokens, width), float32, at positions start, start + 1, …"""
        assert not isinstance(start, Tensor)
        at = (..., slice(start, start + rows.shape[-2]), slice(None))
        for name, values in self.kept(rows).items():
            self.tensors()[name][at] = values

    def read(self, start: Start, stop: Start) -> Tensor:
        """Rows (…, stop - start, width) at positions start … stop - 1, float32."""
        assert not isinstance(start, Tensor) and not isinstance(stop, Tensor)
        at = (..., slice(start, stop), slice(None))
        return self.widened({name: memory[at] for name, memory in self.tensors().items()})

    def kept(self, rows: Tensor) -> dict[str, Tensor]:
        """What the memory of each name holds of rows (…, width), float32."""
        if self.scales is None:
            return {"": halves(rows) if self.rows.dtype is dtypes.float16 else rows}
        grouped = rows.reshape(*rows.shape[:-1], rows.shape[-1] // self.group, self.group)
        if self.least is None:
            scales = (grouped.abs().max(-1) * (1 / 127)).cast(dtypes.bfloat16)
            integers = (grouped * _inverse(scales)).round().clamp(-127, 127)
            least = None
        else:
            least = grouped.min(-1).cast(dtypes.bfloat16)
            above = grouped - least.float().unsqueeze(-1)
            scales = (above.max(-1) * (1 / 15)).cast(dtypes.bfloat16)
            integers = (above * _inverse(scales)).round().clamp(0, 15)
        found = {} if least is None else {"least": least}
        return found | {"scales": scales, "": integers.reshape(rows.shape).cast(self.rows.dtype)}

    def widened(self, kept: dict[str, Tensor]) -> Tensor:
        """The rows (…, width), float32, of what is kept of them."""
        rows = kept[""]
        if self.scales is None:
            return rows.float()
        grouped = rows.reshape(*rows.shape[:-1], rows.shape[-1] // self.group, self.group)
        values = grouped.float() * kept["scales"].float().unsqueeze(-1)
        if self.least is not None:
            values = values + kept["least"].float().unsqueeze(-1)
        return values.reshape(rows.shape)


def _inverse(scales: Tensor) -> Tensor:
    """1 / scale, or 0 where that is 0, for the elements of groups."""
    wide = scales.float().unsqueeze(-1)
    return (wide == 0).where(0.0, 1 / wide)
