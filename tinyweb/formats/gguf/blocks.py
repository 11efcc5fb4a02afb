"""What a block of quantised numbers is, as data, and the one decoder that carries it out.

A tensor of a block format is a row of blocks of a fixed number of bytes, each of which holds a fixed number of
elements. A record says which bits of its block make up each `Field` of an element, and how fields become the element's
value (`widen`, an expression of arithmetic operators alone). Bits are found by arithmetic on the element's index, so
that the same record serves whoever decodes numbers here and whoever writes programs that decode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
SLAB = 1 << 20  # elements that are decoded at a time: temporaries stay in the cache's reach, whatever the tensor's size


@dataclass(frozen=True)
class Step:
    """Every `every` elements the bits lie `bits` further on, `count` times; then they begin again."""

    bits: int
    every: int
    count: int


@dataclass(frozen=True)
class Bits:
    """`width` bits of the block, of element e from bit `at` + Σ step.bits · (e // step.every mod step.count) on. Bit i
    of the block is bit i mod 8 of byte i // 8, the lowest first. `to`: the place of the lowest of them in the number.
    """

    at: int
    width: int
    steps: tuple[Step, ...] = ()
    to: int = 0


@dataclass(frozen=True)
class Field:
    """A number that each element has, or a group of elements shares: the sum of its parts, read as `kind`."""

    parts: tuple[Bits, ...]
    kind: Literal["uint", "int8", "float16", "float32"] = "uint"


@dataclass(frozen=True, eq=False)
class Entry:
    """A number looked up: row `index` of `table` (float32, rows · columns) has one for each of `columns` elements side
    by side, which share the index.
    """

    index: Field
    table: Floats


@dataclass(frozen=True)
class Run:
    """The next `bytes` bytes of the block, each of which holds a digit of `digits` elements, `bytes` apart."""

    bytes: int
    digits: int


@dataclass(frozen=True)
class Trits:
    """Digits 0, 1, 2 to the base 3 from byte `at` on. A byte b is the fraction b / 256: multiplied with 3 again and
    again, its whole part is the next digit each time, and the rest goes on.
    """

    at: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, eq=False)
class BlockFormat:
    """A type of tensors. `code`: its number in GGUF files. `elements`, `bytes`: of one block. `fields`: by the names
    that `widen` gives its arguments; it is called with float32 numbers (arrays, or whatever has their operators).
    """

    name: str
    code: int
    elements: int
    bytes: int
    fields: Mapping[str, Field | Entry | Trits]
    widen: Callable[..., Any]

    @cached_property
    def axes(self) -> tuple[tuple[int, int], ...]:
        """(every, count), outermost first: the loops over a block's elements within which all of its steps are whole
        loops.
        """
        borders = {1, self.elements}
        for field in self.fields.values():
            if isinstance(field, Entry):
                borders.add(field.table.shape[1])
            parts = () if isinstance(field, Trits) else (field.index if isinstance(field, Entry) else field).parts
            borders |= {b for p in parts for s in p.steps for b in (s.every, s.every * s.count)}
        ordered = sorted(borders)
        found = [(low, high // low) for low, high in pairwise(ordered)]
        if any(high % low for low, high in pairwise(ordered)):
            raise ValueError(f"{self.name}: elements are grouped by {ordered}, which do not divide each other")
        return tuple(reversed(found))

    def decode(self, blocks: Bytes) -> Floats:
        """The values (blocks, elements), float32, of blocks (blocks, bytes). What overflows becomes infinite."""
        out = np.empty((len(blocks), self.elements), np.float32)
        step = max(1, SLAB // self.elements)
        with np.errstate(all="ignore"):
            for begin in range(0, len(blocks), step):
                part = np.ascontiguousarray(blocks[begin : begin + step])
                read = {name: self._read(field, part) for name, field in self.fields.items()}
                shape = (len(part), *(count for _, count in self.axes))
                out[begin : begin + step].reshape(shape)[...] = self.widen(**read)
        return out

    def numbers(self, name: str, blocks: Bytes, every: int = 1) -> npt.NDArray[Any]:
        """A field as it is stored (blocks, elements / every), of each `every` elements the first; of an entry its
        index.
        """
        field = self.fields[name]
        if isinstance(field, Trits):
            return _trits(field, blocks).astype(np.uint8)
        number = self._number(field.index if isinstance(field, Entry) else field, blocks)
        first = tuple(slice(None) if step >= every else slice(1) for step, _ in self.axes)
        counts = (count if step >= every else 1 for step, count in self.axes)
        return np.broadcast_to(number[:, *first], (len(blocks), *counts)).reshape(len(blocks), -1)

    def _read(self, field: Field | Entry | Trits, blocks: Bytes) -> Floats:
        """A field's values along the axes of a block: of size 1 where they do not depend on one."""
        if isinstance(field, Trits):
            return _trits(field, blocks).reshape(len(blocks), *(count for _, count in self.axes))
        if isinstance(field, Entry):
            columns = [count for every, count in self.axes if every < field.table.shape[1]]
            index = self._number(field.index, blocks)
            index = index.reshape(index.shape[: index.ndim - len(columns)])
            return np.asarray(field.table.reshape(-1, *columns)[index])
        return self._number(field, blocks).astype(np.float32)

    def _number(self, field: Field, blocks: Bytes) -> npt.NDArray[Any]:
        width = max(p.to + p.width for p in field.parts)
        word = _word(width)
        number = sum((self._bits(p, blocks).astype(word) << word.type(p.to) for p in field.parts), word.type(0))
        kind = word if field.kind == "uint" else np.dtype(field.kind).newbyteorder("<")
        return np.asarray(number, word).view(kind)

    def _bits(self, part: Bits, blocks: Bytes) -> npt.NDArray[Any]:
        """A view of the block's bytes along its axes, in words that hold all that a shift brings down."""
        moves = [self._move(part, every, count) for every, count in self.axes]
        shape = [count if move else 1 for move, (_, count) in zip(moves, self.axes)]
        shifts = np.full([1] * len(shape), part.at % 8)
        for i, move in enumerate(moves):
            if move % 8:
                inner = [1] * (len(shape) - i - 1)
                shifts = shifts + np.arange(0, shape[i] * (move % 8), move % 8).reshape(-1, *inner)
        word = _word(int(shifts.max()) + part.width)
        strides = (blocks.shape[1], *(move // 8 for move in moves))
        words = np.ndarray((len(blocks), *shape), word, blocks, part.at // 8, strides)
        if part.width == 8 * word.itemsize and not shifts.any():
            return words
        return np.asarray((words >> shifts.astype(word)) & word.type((1 << part.width) - 1))

    @staticmethod
    def _move(part: Bits, every: int, count: int) -> int:
        """By how many bits a step along an axis moves a part."""
        return sum(s.bits * (every // s.every) for s in part.steps if s.every <= every < s.every * s.count)


def _word(bits: int) -> np.dtype[Any]:
    return np.dtype("<u1" if bits <= 8 else "<u2" if bits <= 16 else "<u4")


def _trits(field: Trits, blocks: Bytes) -> Floats:
    found, at = [], field.at
    for run in field.runs:
        powers = np.array([3**i for i in range(run.digits)], np.uint8)
        left = blocks[:, None, at : at + run.bytes] * powers[:, None]  # what leaves the byte was read before
        found.append((left.astype(np.uint16) * 3 >> 8).reshape(len(blocks), -1))
        at += run.bytes
    return np.concatenate(found, axis=1).astype(np.float32)
