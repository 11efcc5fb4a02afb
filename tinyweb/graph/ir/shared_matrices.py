"""Matrices in shared memory that an instruction reads there itself, by descriptors, after it was begun
(NVIDIA's wgmma).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PATTERN = 8  # rows after which parts change places as before
BITS_IN_EITHER_ORDER = 16  # of elements whose rows may be along memory, and not their steps
BEGIN, BEGUN = "begin", "begun"  # of a BARRIER: before the first product of a group of a thread, and behind the last


@dataclass(frozen=True)
class Swizzle:
    """How matrices of `rows` rows of `row` elements, one after the other, lie in shared memory so that neither rows nor
    columns meet in the same banks: cut into columns of `width` bytes (32, 64 or 128), in which parts of 16 bytes change
    places by three bits of their address (PTX ISA, "Shared Memory Matrix Layout").
    """

    width: int
    row: int
    rows: int

    def place(self, index: Any, bits: int, parts: bool = True) -> Any:
        """Where an element, of so many bits, lies, as a number, a node or an array, as `index` is; without `parts`
        where its row of `width` bytes has it in order."""
        part, width = 128 // bits, self.width * 8 // bits
        row, column = index // self.row, index % self.row
        at = row * width
        if self.row > width:
            at = row // self.rows * (self.rows * self.row) + row % self.rows * width
            at = at + column // width * (self.rows * width)
            column = column % width
        if not parts:
            return at + column
        other = row // (128 // self.width) % (self.width // 16)
        return at + (column // part ^ other) * part + column % part


@dataclass(frozen=True)
class DescribedArg:
    """A LOAD of a matrix (rows, steps) in shared memory, cut into rows of `width` bytes as `Swizzle` says, of which a
    descriptor tells an instruction where it is. `along`: such a row has steps of one row of the matrix, or else rows at
    one step. `leading`: bytes from one such row to the next beside it; `stride`: from 8 of them to the next 8.
    """

    rows: int
    steps: int
    along: bool
    width: int
    leading: int
    stride: int

    @property
    def count(self) -> int:
        return self.rows * self.steps


@dataclass(frozen=True)
class Products:
    """Of a BARRIER: a thread waits for all products that were begun earlier, but for the last `left` groups of them."""

    left: int
