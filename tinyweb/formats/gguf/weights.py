"""Tensors of a GGUF file by the names, and in the order of elements, of Hugging Face's checkpoint of the model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf.blocks import BlockFormat
from tinyweb.formats.gguf.config import Family, family_of
from tinyweb.formats.gguf.facts import Facts
from tinyweb.formats.gguf.fields import kv_heads
from tinyweb.formats.gguf.file import GgufTensor
from tinyweb.formats.gguf.names import Join, Names
from tinyweb.formats.gguf.stored import HELD, rows_of

Array = npt.NDArray[Any]
# what follows from the configuration
DERIVED = ("rope_freqs", "rope_factors_long", "rope_factors_short", "blk.{}.attn_rot_embd")
FLOATS = {"F64": dtypes.float64, "F32": dtypes.float32, "F16": dtypes.float16, "BF16": dtypes.bfloat16}
INTS = {"I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64}
# the rate of decay is stored as what it becomes
CHANGED: dict[str, Callable[[Array], Array]] = {"ssm_a": lambda v: np.log(-v), "ssm_d": lambda v: v}
_LAYER = re.compile(r"blk\.(0|[1-9]\d{0,5})\.(.+)")


@dataclass(frozen=True)
class Weight:
    """A tensor of the checkpoint. `dtype`: that it is kept in; what is quantised counts as float16. `quantised`: the
    type that it is stored in, if that is no number; `rows`: its rows of blocks, where they are whole ones of a type
    that can be held.
    """

    dtype: DType
    shape: tuple[int, ...]
    make: Callable[[], Array]
    quantised: str | None = None
    rows: Callable[[], Array] | None = None


class GgufWeights:
    """What `Checkpoint` reads from: `entries` by Hugging Face's names.

    Raises ModelFormatError for a tensor that an architecture has no place for: the model would be another without it.
    """

    def __init__(self, facts: Facts):
        self.path: Path = facts.file.paths[0]
        self._facts, self._family = facts, family_of(facts)
        self.entries: dict[str, Weight] = {}
        joined = set()
        for join in self._family.joins:
            for i in range(facts.layers):
                parts = [f"blk.{i}.{part}" for part in join.parts]
                if parts[0] in facts.file.tensors:
                    joined |= set(parts)
                    self._add(join.name.format(i), self._joined(join, [self._tensor(part) for part in parts]))
        for name, values in self._family.told(facts).items():
            self._add(name, Weight(dtypes.float32, values.shape, partial(np.copy, values)))
        for tensor in facts.file.tensors.values():
            for name, weight in self._weights(tensor) if tensor.name not in joined else ():
                self._add(name, weight)

    def _add(self, name: str, weight: Weight) -> None:
        if name in self.entries:
            raise ModelFormatError(f"{self.path} holds what a checkpoint calls {name[:80]!r} twice; it is damaged")
        self.entries[name] = weight

    def _tensor(self, name: str) -> GgufTensor:
        if name not in self._facts.file.tensors:
            raise ModelFormatError(f"{self.path} lacks the tensor {name[:80]!r}: it is incomplete")
        return self._facts.file.tensors[name]

    def _joined(self, join: Join, parts: list[GgufTensor]) -> Weight:
        shape = _shape(join.how, [p.shape for p in parts])
        if shape is None:
            raise ModelFormatError(
                f"{self.path}: the tensors {join.parts} have shapes {[p.shape for p in parts]}, which do not fit "
                f"each other: as {join.name} they would be one"
            )
        if join.how == "groups":
            return self._grouped(join, parts, shape)
        types = {p.type for p in parts}
        rows = (
            partial(_join_rows, join.how, parts) if len(types) == 1 and _held(parts[0]) and join.how in WHOLE else None
        )
        quantised = max(parts, key=lambda p: p.form.bytes / p.form.elements)  # of several types the one of most bits
        return Weight(_dtype(parts[0]), shape, partial(_join, join.how, parts, shape), _quantised(quantised), rows)

    def _grouped(self, join: Join, parts: list[GgufTensor], shape: tuple[int, ...]) -> Weight:
        """The rows of two matrices, those of each head of keys together."""
        groups, values = self._facts.own.integer("ssm.group_count", 1, 1 << 16), parts[1].shape[0]
        keys, rest = divmod(parts[0].shape[0] - values, 2)
        self._require(parts[0], keys > 0 and not rest and keys % groups == 0 and values % groups == 0)
        places = np.split(np.arange(shape[0]), np.cumsum([keys, keys, values]))
        order = np.concatenate([place.reshape(groups, -1) for place in places], axis=1).reshape(-1)

        def made(of: Callable[[GgufTensor], Array]) -> Array:
            rows: Array = np.concatenate([of(part) for part in parts])[order]
            return rows

        same = parts[0].type == parts[1].type and _held(parts[0])
        quantised = max(parts, key=lambda p: p.form.bytes / p.form.elements)
        stored = partial(made, _stored) if same else None
        return Weight(_dtype(parts[0]), shape, partial(made, _values), _quantised(quantised), stored)

    def read(self, name: str) -> Array:
        """The values of one of `entries`: float16 as it is, all else widened to float32."""
        return self.entries[name].make()

    def _weights(self, tensor: GgufTensor) -> Iterator[tuple[str, Weight]]:
        part, _, end = tensor.name.rpartition(".")
        number, found = "", _LAYER.fullmatch(part)
        if found:
            number, part = found[1], "blk.{}." + found[2]
        if part in DERIVED:
            return
        named = f"{part}.{end}"
        if end not in ("weight", "bias") and (bare := _LAYER.fullmatch(tensor.name)):
            number, named = bare[1], "blk.{}." + bare[2]
        if (whole := self._family.parts.get(named)) is not None:
            yield from self._named_whole(whole, number, named.removeprefix("blk.{}."), tensor)
            return
        if part not in self._family.parts or end not in ("weight", "bias"):
            raise ModelFormatError(
                f"{tensor.path} holds the tensor {tensor.name[:80]!r}, for which {self._family.architecture} has no "
                "place: it is of another model, or of a kind that is not supported"
            )
        names = self._family.parts[part]
        for name, shape, make in self._pieces(names, number, part.removeprefix("blk.{}."), end, tensor):
            yield f"{name}.{end}", self._weight(tensor, shape, make)

    def _named_whole(self, names: Names, number: str, name: str, tensor: GgufTensor) -> Iterator[tuple[str, Weight]]:
        """What is not called `.weight` or `.bias` in the checkpoint; several names: of one row each."""
        shape, change = tensor.shape, CHANGED.get(name)
        if isinstance(names, tuple):
            self._require(tensor, bool(shape) and shape[0] == len(names))
            for i, each in enumerate(names):
                yield each.format(number), self._weight(tensor, shape[1:], partial(_rows, tensor, i))
            return
        if change is not None:  # of heads, not channels: GGUF has one more axis
            shape = shape[:1] if shape[1:] == (1,) else shape
            change = partial(_reshaped, change, shape)
        elif name == "time_mix_r_k.weight":
            width = self._facts.own.integer("wkv.head_size", 1, 1 << 16)
            self._require(tensor, math.prod(shape) % width == 0)
            shape = (math.prod(shape) // width, width)
            change = partial(_heads, width)
        yield names.format(number), self._weight(tensor, shape, partial(_whole, tensor, change))

    @staticmethod
    def _weight(tensor: GgufTensor, shape: tuple[int, ...], make: Callable[..., Array]) -> Weight:
        rows = partial(make, stored=True) if _held(tensor) else None
        return Weight(_dtype(tensor), shape, make, _quantised(tensor), rows)

    def _pieces(
        self, names: Names, number: str, part: str, end: str, tensor: GgufTensor
    ) -> Iterator[tuple[str, tuple[int, ...], Callable[..., Array]]]:
        """(name, shape, values) of what a tensor is in the checkpoint. Values are a function, with `stored` of rows of
        blocks."""
        f, shape = self._facts, tensor.shape
        if isinstance(names, tuple):
            rows = [f.heads * f.head_dim, *[self._kv_heads * f.head_dim] * (len(names) - 1)]
            self._require(tensor, bool(shape) and shape[0] == sum(rows))
            for i, name in enumerate(names):
                begin = sum(rows[:i])
                made = partial(_rows, tensor, slice(begin, begin + rows[i]))
                yield name.format(number), (rows[i], *shape[1:]), made
            return
        if names.count("{}") == (2 if number else 1):  # one for each expert, or each stream
            self._require(tensor, 2 <= len(shape) <= 3 and shape[0] <= 1 << 16)
            for i in range(shape[0]):
                yield names.format(*((number, i) if number else (i,))), shape[1:], partial(_rows, tensor, i)
            return
        change = self._change(self._family, part, end, tensor)
        if self._family.transposed and number and len(shape) == 2:
            shape = shape[::-1]
        if part == "ssm_norm":
            shape = (math.prod(shape),)
            change = partial(_reshaped, lambda v: v, shape)
        if (
            part in ("shortconv.conv", "ssm_conv1d") and len(shape) == 2
        ):  # one group for each channel, which GGUF does not say
            shape, change = (shape[0], 1, shape[1]), lambda v: v[:, None]
        yield names.format(number), shape, partial(_whole, tensor, change)

    def _change(self, family: Family, part: str, end: str, tensor: GgufTensor) -> Callable[[Array], Array] | None:
        """From the order of GGUF to that of the checkpoint."""
        f, shape = self._facts, tensor.shape
        if family.permuted and part in ("attn_q", "attn_k"):
            heads = f.heads if part == "attn_q" else self._kv_heads
            self._require(tensor, bool(shape) and shape[0] == heads * f.head_dim and f.head_dim % 2 == 0)
            return lambda v: v.reshape(heads, f.head_dim // 2, 2, *v.shape[1:]).swapaxes(1, 2).reshape(v.shape)
        if family.by_head and part == "attn_qkv":
            keys, rest = divmod((shape[0] if shape else 0) - f.heads * f.head_dim, 2 * f.head_dim)
            self._require(tensor, keys > 0 and not rest and f.heads % keys == 0)
            return partial(_by_head, (f.heads, keys, keys), f.head_dim)
        if family.offset and part.endswith("norm") and end == "weight":
            return lambda v: v.astype(np.float32) - np.float32(family.offset)
        if family.transposed and part.startswith(("attn_", "ffn_")) and len(shape) == 2:
            return np.transpose
        return None

    @property
    def _kv_heads(self) -> int:
        return kv_heads(self._facts)[0]

    def _require(self, tensor: GgufTensor, holds: bool) -> None:
        if not holds:
            raise ModelFormatError(
                f"{tensor.path}: tensor {tensor.name[:80]!r} has shape {tensor.shape}, which does not fit the "
                "model's heads"
            )


def _dtype(tensor: GgufTensor) -> DType:
    return FLOATS.get(tensor.type) or INTS.get(tensor.type) or dtypes.float16


def _shape(how: str, shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Of what `_join` makes of tensors of these shapes; None where they do not fit each other."""
    first, last = shapes[0], shapes[-1]
    if len(first) != (2 if how in ("rows", "woven", "groups") else 3) or len(first) != len(last):
        return None
    if how in ("rows", "groups"):
        return (first[0] + last[0], first[1]) if first[1] == last[1] else None
    if how == "heads":
        fits = first[0] == last[0] and first[1] == last[2]
        return (first[0] * (first[2] + last[1]), first[1]) if fits else None
    if first != last:
        return None
    turned = (*first[:-2], first[-1], first[-2])
    doubled = (*first[:-1], 2 * first[-1])
    return {
        "below": (first[0], 2 * first[1], *first[2:]), "woven": doubled, "turned": turned,
        "below turned": (*first[:-2], first[-1], 2 * first[-2]),
        "woven turned": (*turned[:-1], 2 * turned[-1]),
    }[how]  # fmt: skip


# joins that leave rows whole; and what they do with those of the experts
WHOLE: dict[str, Callable[[list[Array]], Array]] = {
    "rows": np.concatenate,
    "below": lambda parts: np.concatenate(parts, axis=1),
    "below turned": lambda parts: np.concatenate(parts, axis=1),
    "woven turned": lambda parts: np.stack(parts, -1).reshape(len(parts[0]), -1),
    "turned": lambda parts: parts[0],
}


def _join_rows(how: str, parts: list[GgufTensor]) -> Array:
    return WHOLE[how]([_stored(p) for p in parts])


def _quantised(tensor: GgufTensor) -> str | None:
    return tensor.type if isinstance(tensor.form, BlockFormat) else None


def _held(tensor: GgufTensor) -> bool:
    return tensor.type in HELD and len(tensor.shape) > 1


def _stored(tensor: GgufTensor) -> Array:
    assert isinstance(tensor.form, BlockFormat)
    return rows_of(tensor.form, tensor.raw, tensor.shape)


def _join(how: str, parts: list[GgufTensor], shape: tuple[int, ...]) -> Array:
    values = [_values(p) for p in parts]
    if how == "heads":
        return np.concatenate([values[0].swapaxes(1, 2), values[1]], axis=1).reshape(shape)
    if how == "below turned":
        return np.ascontiguousarray(np.concatenate(values, axis=1).swapaxes(1, 2))
    if how in ("rows", "below"):
        return np.concatenate(values, axis=0 if how == "rows" else 1)
    if "turned" in how:
        values = [v.swapaxes(-1, -2) for v in values]
    return np.ascontiguousarray(np.stack(values, -1).reshape(shape))


def _whole(tensor: GgufTensor, change: Callable[[Array], Array] | None, stored: bool = False) -> Array:
    if stored and change is np.transpose:
        change = None  # rows of blocks are those of outputs in any case
    values = _stored(tensor) if stored else _values(tensor)
    return values if change is None else np.ascontiguousarray(change(values))


def _rows(tensor: GgufTensor, which: int | slice, stored: bool = False) -> Array:
    """Some of the rows along the first axis, without decoding the others."""
    each = tensor.raw.size // tensor.shape[0]
    chosen = slice(which, which + 1) if isinstance(which, int) else which
    count = chosen.stop - chosen.start
    raw = tensor.raw[chosen.start * each : chosen.stop * each]
    part = GgufTensor(tensor.name, tensor.form, (count, *tensor.shape[1:]), raw, tensor.path)
    values = _stored(part) if stored else _values(part)
    return values[0] if isinstance(which, int) else values


def _by_head(counts: tuple[int, ...], width: int, values: Array) -> Array:
    """Rows of queries, keys and values, as those of each key with the queries that it has."""
    parts = np.split(values, np.cumsum(counts)[:-1] * width)
    each = [part.reshape(counts[-1], -1, *values.shape[1:]) for part in parts]
    return np.concatenate(each, axis=1).reshape(values.shape)


def _reshaped(change: Callable[[Array], Array], shape: tuple[int, ...], values: Array) -> Array:
    return change(values).reshape(shape)


def _heads(width: int, values: Array) -> Array:
    return values.reshape(-1, width)


def _values(tensor: GgufTensor) -> Array:
    if tensor.type == "F16":
        return tensor.raw.view("<f2").reshape(tensor.shape)
    return tensor.numpy()
