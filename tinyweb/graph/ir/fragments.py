"""How the threads of a subgroup hold matrices that they multiply together: each has a fragment in its registers. Of
several subgroups that multiply together, a warpgroup, all read the operands in shared memory.

Which element of a matrix a thread has at which place of its fragment is said by digits, so that the same record serves
index expressions, arrays of numbers and checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeVar

from tinyweb.graph.ir.uop import UOp

Number = TypeVar("Number", int, UOp)

REGISTER_BYTES = 4  # of a thread
ROW_BYTES = 16  # of a matrix that is loaded for a register of each thread of a subgroup: 8 rows


@dataclass(frozen=True)
class Digit:
    """A digit of the number of a row, a column or a step: of a thread's place along "x" or "y" of its subgroup, of the
    place "z" of its subgroup among several, or of the place of an element "e" in the fragment, that number over `step`,
    modulo `size`.
    """

    of: str
    size: int
    step: int = 1

    def __repr__(self) -> str:
        return f"Digit({self.of!r}, {self.size}, {self.step})"


@dataclass(frozen=True)
class Layout:
    """Where the elements of a thread's fragment lie along the two axes of a matrix: digits, the lowest first."""

    first: tuple[Digit, ...]
    second: tuple[Digit, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, or steps, of the matrix."""
        return prod(d.size for d in self.first), prod(d.size for d in self.second)

    @property
    def size(self) -> int:
        """Elements of a fragment."""
        return prod(d.size for d in (*self.first, *self.second) if d.of == "e")

    @property
    def run(self) -> int:
        """Neighbours along the second axis that lie beside each other in a fragment."""
        lowest = self.second[0]
        return lowest.size if (lowest.of, lowest.step) == ("e", 1) else 1

    def place(self, x: Number, y: Number, e: Number, z: Number | None = None) -> tuple[Number, Number]:
        """The numbers along both axes of an element of a thread, of the z-th of several subgroups."""
        of = {"x": x, "y": y, "e": e, **({} if z is None else {"z": z})}
        return _number(self.first, of), _number(self.second, of)


def _number(digits: tuple[Digit, ...], of: dict[str, Number]) -> Number:
    value, step = of[digits[0].of] // digits[0].step % digits[0].size, digits[0].size
    for d in digits[1:]:
        value, step = value + of[d.of] // d.step % d.size * step, step * d.size
    return value


@dataclass(frozen=True)
class Fragments:
    """An instruction for matrices of a subgroup: `threads` along x and y, and of several subgroups z, and the layouts
    of A (rows, steps), of B (columns, steps) and of the sums (rows, columns). `shared`: A and B are no threads'
    registers but matrices in shared memory, which are read until the products are waited for; each thread names all of
    their elements. `first_held`: of these A is in registers, which no thread writes to until then.
    """

    name: str
    threads: tuple[int, ...]
    a: Layout
    b: Layout
    sums: Layout
    shared: bool = False
    first_held: bool = False

    def reads(self, i: int) -> bool:
        """Whether the i-th operand is a matrix in shared memory."""
        return self.shared and not (self.first_held and i == 0)

    def chains(self, following: Fragments) -> bool:
        """Whether threads hold sums as they hold A of another product, for some steps of it after the other."""
        (*same, last), (*below, digit) = self.sums.second, following.a.second
        more = (last.of, last.step) == (digit.of, digit.step) and last.size % digit.size == 0
        return self.sums.first == following.a.first and same == below and more
