"""Quantised tensors as they are stored: rows of blocks, and the numbers in them, each kind apart.

Rows of a matrix are a NumPy array of one axis or more, whose elements are the blocks of a row: they are picked, joined
and turned as numbers are. The dtype has one field, named as the type.

`HELD` has a record for each type whose parts are codes, scales and minimums: what it names is what a
`nn.quantized_weight.QuantizedWeight` holds. Values do not change; sub-scales of 6 bits take 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf.blocks import BlockFormat, Bytes, Entry
from tinyweb.formats.gguf.types import BY_NAME

Rows = npt.NDArray[Any]
SLAB = 1 << 21  # elements that are taken apart at a time


@dataclass(frozen=True)
class Held:
    """How elements of a type are held: `codes` names the field of their codes, of `bits` bits or int8, in groups of
    `group`; `scales` that of the groups' scales, less `offset`; `blocks` that of the blocks', if those are integers;
    `minimums`, `minimum_blocks` likewise, of which `added` ones are stored with another sign. `codebook`: what codes
    stand for. `powers`: scales are exponents of two. `narrow`: scales and minimums of groups have 4 bits.
    """

    group: int
    bits: int
    codes: str = "q"
    scales: str = "d"
    offset: int = 0
    blocks: str = ""
    minimums: str = ""
    minimum_blocks: str = ""
    added: bool = False
    codebook: tuple[int, ...] | None = None
    powers: bool = False
    narrow: bool = False

    @property
    def types(self) -> Mapping[str, DType]:
        """Of memory, where it differs from that of arrays."""
        return {"scales": dtypes.uint4, "minimums": dtypes.uint4} if self.narrow else {}


def _table(name: str, field: str) -> tuple[int, ...]:
    form = BY_NAME[name]
    assert isinstance(form, BlockFormat)
    entry = form.fields[field]
    assert isinstance(entry, Entry)
    return tuple(int(v) for v in entry.table.reshape(-1))


CURVE, FP4 = _table("IQ4_NL", "v"), _table("MXFP4", "v")
TERNARY = (-1, 0, 1, 2)

HELD: Mapping[str, Held] = {
    "Q4_0": Held(32, 4),
    "Q4_1": Held(32, 4, minimums="m", added=True),
    "Q5_0": Held(32, 5),
    "Q5_1": Held(32, 5, minimums="m", added=True),
    "Q8_0": Held(32, 8),
    "IQ4_NL": Held(32, 4, codes="v", codebook=CURVE),
    "MXFP4": Held(32, 4, codes="v", codebook=FP4, powers=True),
    "NVFP4": Held(16, 4, codes="v", codebook=FP4),
    "Q1_0": Held(128, 1, codebook=(-1, 1)),
    "Q2_K": Held(16, 2, scales="scale", blocks="d", minimums="least", minimum_blocks="m", narrow=True),
    "Q3_K": Held(16, 3, scales="scale", offset=32, blocks="d"),
    "Q4_K": Held(32, 4, scales="scale", blocks="d", minimums="least", minimum_blocks="m"),
    "Q5_K": Held(32, 5, scales="scale", blocks="d", minimums="least", minimum_blocks="m"),
    "Q6_K": Held(16, 6, scales="scale", blocks="d"),
    "Q8_K": Held(256, 8),
    "IQ4_XS": Held(32, 4, codes="v", scales="scale", offset=32, blocks="d", codebook=CURVE),
    "TQ1_0": Held(256, 2, codebook=TERNARY),
    "TQ2_0": Held(256, 2, codebook=TERNARY),
}


def rows_of(form: BlockFormat, raw: Bytes, shape: tuple[int, ...]) -> Rows:
    """The rows, shape[:-1], of a tensor's bytes; nothing is copied."""
    blocks = shape[-1] // form.elements
    return raw.view([(form.name, f"V{form.bytes}", (blocks,))]).reshape(shape[:-1])


def held(rows: Rows) -> Held:
    """How the elements of rows are held. KeyError for types that are not."""
    return HELD[_form(rows).name]


def _form(rows: Rows) -> BlockFormat:
    assert rows.dtype.names is not None
    form = BY_NAME[rows.dtype.names[0]]
    assert isinstance(form, BlockFormat)
    return form


def parts(rows: Rows, name: str = "") -> Iterator[dict[str, npt.NDArray[Any]]]:
    """The numbers of a matrix (rows,) by the names of a QuantizedWeight's fields, some rows at a time: `codes` (rows,
    groups, group), others (rows, groups) or (rows, blocks). ModelFormatError, which says the matrix's `name`, where a
    value is infinite or none.
    """
    form, how = _form(rows), held(rows)
    each = rows.dtype[0].shape[0]
    step = max(SLAB // (each * form.elements), 1)
    for begin in range(0, max(len(rows), 1), step):
        some = np.ascontiguousarray(rows[begin : begin + step])
        blocks = some.view(np.uint8).reshape(-1, form.bytes)
        shapes = {"codes": (len(some), -1, how.group)}
        found = {n: v.reshape(shapes.get(n, (len(some), -1))) for n, v in _numbers(form, how, blocks).items()}
        if not _surely_finite(form, found) and not np.isfinite(form.decode(blocks)).all():
            raise ModelFormatError(
                f"tensor {name[:80]!r} holds infinities or NaNs: the file is damaged, download it again"
            )
        yield found


def _numbers(form: BlockFormat, how: Held, blocks: Bytes) -> dict[str, npt.NDArray[Any]]:
    found = {"codes": form.numbers(how.codes, blocks), "scales": _of_groups(form, how, how.scales, blocks)}
    if how.blocks:
        found["scale_blocks"] = form.numbers(how.blocks, blocks, form.elements)
    if how.minimums:
        least = _of_groups(form, how, how.minimums, blocks)
        found["minimums"] = -least if how.added else least
    if how.minimum_blocks:
        found["minimum_blocks"] = form.numbers(how.minimum_blocks, blocks, form.elements)
    return found


def _of_groups(form: BlockFormat, how: Held, name: str, blocks: Bytes) -> npt.NDArray[Any]:
    numbers, field = form.numbers(name, blocks, how.group), form.fields[name]
    if how.offset:
        return (numbers.astype(np.int16) - how.offset).astype(np.int8)
    if isinstance(field, Entry) and not how.powers:
        return np.asarray(field.table.reshape(-1)[numbers], np.float16)
    return numbers


def _surely_finite(form: BlockFormat, found: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether no value can be infinite: half floats and integers do not multiply to so much."""
    floats = [v for v in found.values() if v.dtype.kind == "f"]
    if not floats:  # exponents, of which the largest do
        return bool((found["scales"] < 250).all())
    return all(np.isfinite(v).all() and v.itemsize == 2 for v in floats)
