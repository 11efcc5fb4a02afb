"""Matrices that instructions read in shared memory themselves, some time after they were begun.

`swizzle`: such memory lies otherwise than its indices say. `begin_and_wait`: products are begun in groups, and waited
for before their sums are read, or other threads write where they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import DescribedArg, Fragments, MatrixArg, Ops, Products, Swizzle, UOp, rebuild, users
from tinyweb.graph.ir.shared_matrices import BEGIN, BEGUN, BITS_IN_EITHER_ORDER, PATTERN
from tinyweb.graph.symbolic import divides, simplify


def swizzle(effects: UOp) -> UOp:
    """Effects with the places of what lies in swizzled memory."""

    def placed(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        memory = u.src[0].buffer if u.op in (Ops.LOAD, Ops.STORE) else None
        how = memory.arg.swizzle if memory is not None and memory.op is Ops.BUFFER else None
        if memory is None or how is None:
            return None
        bits, matrix = memory.dtype.bits, u.arg if isinstance(u.arg, MatrixArg) else None
        index = simplify(how.place(src[1], bits, matrix is None))
        arg = u.arg if matrix is None else _described(matrix, how, bits, src[1])
        return u.replace(src=(src[0], index, *src[2:]), arg=arg)

    return rebuild(effects.toposort(), placed)[effects]


def _described(matrix: MatrixArg, how: Swizzle, bits: int, index: UOp) -> DescribedArg:
    """A matrix in swizzled memory as instructions are told of it; ValueError where they cannot read it."""
    along, width = matrix.column == 1, how.width * 8 // bits
    step, beside = (matrix.row, matrix.columns) if along else (matrix.column, matrix.rows)
    whole = width % beside == 0 if along else beside % width == 0 or width % beside == 0
    whole = whole and (along or bits == BITS_IN_EITHER_ORDER)
    begins = divides(simplify(index // how.row), PATTERN) and divides(simplify(index % how.row), min(beside, width))
    if step != how.row or not (along or matrix.row == 1) or not whole or not begins:
        raise ValueError("a matrix in shared memory does not lie as the instruction wants that reads it there")
    leading = 16 if along else how.rows * how.width  # of rows of steps it is not asked for
    return DescribedArg(matrix.rows, matrix.columns, along, how.width, leading, PATTERN * how.width)


def is_begun(u: UOp) -> bool:
    """Whether it is a product that goes on while its threads do."""
    return u.op is Ops.DOT and isinstance(u.arg, Fragments) and u.arg.shared


def products_of(u: UOp) -> list[UOp]:
    """Those that are begun one after the other to be added to the same sums, the last of which it is."""
    return [*products_of(u.src[2]), u] if is_begun(u) else []


def begin_and_wait(uops: Sequence[UOp]) -> tuple[UOp, ...]:
    """The program with its products in groups: those of a stretch between barriers. A group is waited for at once, or,
    where the loop around it says so (Products), some steps later and behind the loop."""
    return _Groups(uops).placed() if any(map(is_begun, uops)) else tuple(uops)


@dataclass(frozen=True)
class _Group:
    """Products that are under way: behind what they were begun, and the registers of their sums."""

    begun: UOp
    sums: tuple[UOp, ...]


class _Groups:
    """What is put before and behind a program's nodes."""

    def __init__(self, uops: Sequence[UOp]) -> None:
        self.uops, self.end = uops, {u.src[-1]: i for i, u in enumerate(uops) if u.op is Ops.END}
        self.number = {u: i for i, u in enumerate(uops)}
        self.sums = {u.src[0].buffer: None for u in uops if u.op is Ops.STORE and is_begun(u.src[2])}
        used = users(uops)
        self.passed = {u for u in uops if self._of_sums(u) and u.op is Ops.LOAD and all(map(is_begun, used[u]))}
        self.before: dict[int, list[UOp]] = {}
        self.after: dict[int, list[UOp]] = {}
        self.loops: list[UOp] = []  # around
        self.open: list[_Group] = []  # in the order in which they were begun

    def placed(self) -> tuple[UOp, ...]:
        group: tuple[int, int] | None = None
        i = 0
        while i < len(self.uops):
            u, last = self.uops[i], i
            if u.op is Ops.RANGE:
                inside = self.uops[i + 1 : self.end[u]]
                if any(map(is_begun, inside)) and all(map(self._is_of_products, inside)):
                    last = self.end[u]
                else:
                    self.loops.append(u)
            if last > i or (u.op is Ops.STORE and is_begun(u.src[2])):
                group = (i if group is None else group[0], last)
            else:
                ends = u.op in (Ops.RANGE, Ops.END) or (u.op is Ops.BARRIER and u.arg not in ("sent", BEGUN))
                if group is not None and (ends or u.arg == BEGUN or self._reads_sums(u)):
                    self._begin(*group, u if u.arg == BEGUN else None)
                    group = None
                if ends or self._reads_sums(u):
                    self._wait(i, None if ends else u.src[0].buffer)
            if u.op is Ops.END:
                self.loops.pop()
            i = last + 1
        return tuple(self._all())

    def _begin(self, first: int, last: int, begun: UOp | None) -> None:
        """A group of the products that stand from one node to another; `begun`: what stands behind them already."""
        stores = [u for u in self.uops[first : last + 1] if u.op is Ops.STORE and is_begun(u.src[2])]
        # what products take of registers is there before they begin
        held = dict.fromkeys(x.src[0] for u in stores for x in products_of(u.src[2]) if x.arg.first_held)
        ready = tuple(x for x in held if self.number[x] < first)
        # … and so are sums that they are added to
        sums = dict.fromkeys(u.src[0].buffer for u in stores if products_of(u.src[2])[0].src[2].op is Ops.LOAD)
        before = (self.uops[first - 1], *ready, *sums)
        self.before.setdefault(first, []).append(UOp(Ops.BARRIER, dtypes.void, before, BEGIN))
        if begun is None:
            # nodes differ by what they depend on, so that none stands in the program twice
            begun = UOp(Ops.BARRIER, dtypes.void, (self.uops[last],), BEGUN)
            self.after.setdefault(last, []).append(begun)
        group = _Group(begun, tuple(dict.fromkeys(u.src[0].buffer for u in stores)))
        loop = self.loops[-1] if self.loops else None
        rest = () if loop is None else self.uops[last + 1 : self.end[loop]]
        if any(isinstance(u.arg, Products) for u in rest) and not any(map(self._reads_sums, rest)):
            assert loop is not None
            self.after.setdefault(self.end[loop], []).append(_waited([group], 0))
        else:
            self.open.append(group)

    def _wait(self, i: int, memory: UOp | None) -> None:
        """Before a node: for the groups up to the last one with sums in some registers; without them for all."""
        count = max((n + 1 for n, g in enumerate(self.open) if memory is None or memory in g.sums), default=0)
        if count:
            waited = _waited(self.open[:count], len(self.open) - count)
            self.before.setdefault(i, []).append(waited)
            del self.open[:count]

    def _all(self) -> Iterator[UOp]:
        for i, u in enumerate(self.uops):
            yield from self.before.get(i, ())
            yield u
            yield from self.after.get(i, ())

    def _of_sums(self, u: UOp) -> bool:
        return u.op in (Ops.LOAD, Ops.STORE) and u.src[0].buffer in self.sums

    def _reads_sums(self, u: UOp) -> bool:
        """Whether it reads or writes sums otherwise than products do."""
        return self._of_sums(u) and u not in self.passed and not (u.op is Ops.STORE and is_begun(u.src[2]))

    def _is_of_products(self, u: UOp) -> bool:
        """Whether it can be among the products of one group."""
        if u.op in (Ops.LOAD, Ops.STORE):
            return isinstance(u.arg, DescribedArg) or (self._of_sums(u) and not self._reads_sums(u))
        return u.op is not Ops.BARRIER


def _waited(groups: Sequence[_Group], left: int) -> UOp:
    src = (groups[-1].begun, *dict.fromkeys(memory for g in groups for memory in g.sums))
    return UOp(Ops.BARRIER, dtypes.void, src, Products(left))
