"""What a layer keeps of each position: rows of half floats, of float32, or of integers with a scale for each group.

A row is a key, a value, a latent vector, or what goes into a convolution. Rows of integers are quantised when their
token's are stored (in groups along a row, whose scales are found from the group alone), and are multiplied out where a
kernel reads them: there is no float copy of them.
"""

from __future__ import annotations

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Size
from tinyweb.nn.quantize import group_size
from tinyweb.tensor import Tensor

ELEMENT_BITS = {"f16": 16.0, "f32": 32.0, "q8": 8.5, "q4": 5.0}  # scales of groups of 32 included
HALF_MAX = 65504.0


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

    def write(self, start: Size, rows: Tensor) -> None:
        """Rows (…, tokens, width), float32, at positions start, start + 1, …"""
        at = (..., slice(start, start + rows.shape[-2]), slice(None))
        if self.scales is None:
            half = self.rows.dtype is dtypes.float16
            self.rows[at] = rows.clamp(-HALF_MAX, HALF_MAX).cast(dtypes.float16) if half else rows
            return
        grouped = rows.reshape(*rows.shape[:-1], rows.shape[-1] // self.group, self.group)
        if self.least is None:
            scales = (grouped.abs().max(-1) * (1 / 127)).cast(dtypes.bfloat16)
            integers = (grouped * _inverse(scales)).round().clamp(-127, 127)
        else:
            least = grouped.min(-1).cast(dtypes.bfloat16)
            above = grouped - least.float().unsqueeze(-1)
            scales = (above.max(-1) * (1 / 15)).cast(dtypes.bfloat16)
            integers = (above * _inverse(scales)).round().clamp(0, 15)
            self.least[at] = least
        self.scales[at] = scales
        self.rows[at] = integers.reshape(rows.shape).cast(self.rows.dtype)

    def read(self, start: Size, stop: Size) -> Tensor:
        """Rows (…, stop - start, width) at positions start … stop - 1, float32."""
        at = (..., slice(start, stop), slice(None))
        rows = self.rows[at]
        if self.scales is None:
            return rows.float()
        grouped = rows.reshape(*rows.shape[:-1], rows.shape[-1] // self.group, self.group)
        values = grouped.float() * self.scales[at].float().unsqueeze(-1)
        if self.least is not None:
            values = values + self.least[at].float().unsqueeze(-1)
        return values.reshape(rows.shape)


def _inverse(scales: Tensor) -> Tensor:
    """1 / scale, or 0 where that is 0, for the elements of groups."""
    wide = scales.float().unsqueeze(-1)
    return (wide == 0).where(0.0, 1 / wide)
