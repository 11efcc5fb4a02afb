"""Few long rows on GPUs: parts of a row go to workgroups of their own, a second kernel puts together what they find.

A workgroup takes the row of an attention's scores alone, so that few heads with many keys keep few of a GPU's
processors busy. Of each part of the keys the maximum m, and the sums weighted with exp(s - m), are put into memory; of
all parts together the maximum is the largest, and a sum is that of the parts' sums times exp(m - largest): the algebra
of online softmax (Dao et al., Flash-Decoding for long-context inference, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import prod
from typing import TypeAlias

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, AxisKind, Ops, ParamArg, UOp, as_index, nested, row_major, size_max, substitute
from tinyweb.graph.schedule.attention import Softmax, softmaxes
from tinyweb.graph.schedule.long_reductions import OWN, SAVED, THREADS, LongReductions, long_reductions
from tinyweb.graph.schedule.work import LAUNCH
from tinyweb.graph.symbolic import divides, simplify
from tinyweb.graph.target import Target

FILLED = 4  # a row whose length varies is that part of its longest
QUERIES = 4  # that a workgroup has together, where they read the same keys
FEW = 16  # queries from which on these are rows of matrices
BLOCK = 64  # keys: parts are multiples of it
ALIGNED = 4  # elements: what is stored of each sum begins at a multiple


Call: TypeAlias = "tuple[UOp, tuple[UOp, ...]]"  # a kernel and its buffers


def in_parts(
    calls: Iterable[Call], target: Target | type[Target], new_buffer: Callable[[int, DType], UOp]
) -> Iterator[Call]:
    """The calls, with several in the place of one whose few long rows are worth it; what is between them is in memory
    that `new_buffer` makes."""
    known: dict[UOp, _Division | LongReductions | None] = {}
    for kernel, buffers in calls:
        if kernel not in known:
            known[kernel] = _divided(kernel, target)
        if (divided := known[kernel]) is None:
            yield kernel, buffers
            continue
        memory = [new_buffer(*size) for size in divided.memory]
        for part in divided.kernels:
            stored = {s.src[0] for s in part.src}
            params = [u for u in part.toposort() if u.op is Ops.PARAM]
            params.sort(key=lambda u: (u not in stored, u.arg.slot))
            table = {u: u.replace(arg=replace(u.arg, slot=i)) for i, u in enumerate(params)}
            slots = [u.arg.slot for u in params]
            yield substitute(part, table), tuple(memory[i - OWN] if i >= OWN else buffers[i] for i in slots)


def _divided(kernel: UOp, target: Target | type[Target]) -> _Division | LongReductions | None:
    """Nothing for a kernel whose rows stay whole."""
    if not target.has_threads or any(u.op is Ops.RANGE and u.arg.kind is AxisKind.ORDERED for u in kernel.toposort()):
        return None
    found = softmaxes(kernel)
    if not found:
        return long_reductions(kernel, target)
    count = _parts(found[0], target) if len(found) == 1 else 1
    return _Division(kernel, found[0], count) if count > 1 else None


def _parts(softmax: Softmax, target: Target | type[Target]) -> int:
    """How many there should be of each row: as keep the GPU busy, if each has enough to do and saves more time than the
    second launch takes."""
    columns = {r for s in softmax.sums for r in s.reduce.ranges}
    free = softmax.rows | columns
    values = (softmax.maximum, *(s.reduce for s in softmax.sums))
    if any(r.arg.reduce or r.src[0].op is not Ops.CONST for r in free):
        return 1
    if any(u.dtype not in (dtypes.float32, dtypes.float64) or u.dtype is not values[0].dtype for u in values):
        return 1
    keys = [u for u in softmax.score.toposort() if u.op is Ops.LOAD and softmax.row in u.ranges]
    keys = [u for u in keys if not u.ranges.isdisjoint(softmax.inner)]
    shared = max((r.vmax + 1 for r in softmax.rows if not any(r in u.ranges for u in keys)), default=1)
    groups = _volume(softmax.rows) // shared * -(-shared // QUERIES)
    length = softmax.row.src[0]
    steps = size_max(length) // (1 if length.op is Ops.CONST else FILLED)
    read = steps * (_volume(softmax.inner) + _volume(softmax.columns))
    count = min(target.busy_threads // (THREADS * groups), read // LAUNCH, -(-steps // BLOCK))
    return count if shared < FEW and count > 1 and read - read // count >= SAVED * LAUNCH else 1


def _volume(ranges: Iterable[UOp]) -> int:
    return prod(size_max(r.src[0]) for r in ranges)


class _Division:
    """Builds both kernels."""

    def __init__(self, kernel: UOp, softmax: Softmax, count: int):
        self.kernel, self.softmax = kernel, softmax
        self.dtype = softmax.maximum.dtype
        self.lowest = UOp.const(-math.inf, self.dtype)
        ranges = [u for u in kernel.toposort() if u.op is Ops.RANGE]
        self.number = max(int(r.arg.name[1:].split(".")[0]) for r in ranges) + 1
        self.order = max(r.arg.order for r in ranges) + 1
        self.size = softmax.row.src[0]
        together = count * BLOCK
        self.length = simplify((self.size + (together - 1)) // together * BLOCK)
        fixed = self.size.op is Ops.CONST
        self.count = -(-size_max(self.size) // size_max(self.length)) if fixed else count
        first = min(r.arg.order for r in ranges) - 1
        self.part = UOp(Ops.RANGE, dtypes.index, (as_index(self.count),), Axis(f"i{self.number}", first))
        self.rows = nested(softmax.rows)
        # where each of the values is in memory
        self.begins: dict[UOp, int] = {}
        end = 0
        for u in (softmax.maximum, *(s.reduce for s in softmax.sums)):
            self.begins[u] = end
            size = self.count * _volume([*self.rows, *self._columns(u)])
            end += -(-size // ALIGNED) * ALIGNED
        self.elements = end
        self.memory = [(end, self.dtype)]
        self.kernels = [self._first(), self._second()]

    def _columns(self, value: UOp) -> list[UOp]:
        return nested(r for r in value.ranges if r not in self.softmax.rows)

    def _place(self, value: UOp, part: UOp) -> UOp:
        """Where a part's value is."""
        own = [*self.rows, *self._columns(value)]
        return simplify(part * _volume(own) + row_major(own) + self.begins[value])

    def _first(self) -> UOp:
        """The kernel that has a maximum and sums for each part."""
        softmax, stores = self.softmax, list[UOp]()
        row, score = self._score(softmax.row, softmax.score)
        maximum = UOp(Ops.REDUCE, self.dtype, (score, row), Ops.MAX)
        less = maximum.equal(-math.inf).where(UOp.const(0.0, self.dtype), maximum)
        found = {softmax.maximum: maximum}
        for s in softmax.sums:
            row, score = self._score(s.row, s.score)
            weight = (score - less).alu(Ops.EXP)
            value = self._moved(s.value, s.row, row, {s.exponential: weight})
            found[s.reduce] = UOp(Ops.REDUCE, self.dtype, (value, row), Ops.ADD)
        memory = UOp(Ops.PARAM, self.dtype, (), ParamArg(OWN, self.elements))
        for u, value in found.items():
            stores.append(memory.store(self._place(u, self.part), value))
        return simplify(UOp(Ops.SINK, dtypes.void, tuple(stores), self.kernel.arg))

    def _score(self, row: UOp, score: UOp) -> tuple[UOp, UOp]:
        """The steps of a part, and their scores; there are none beyond the row's end."""
        own = row.replace(src=(self.length,))
        score = self._moved(score, row, own, {})
        at = self.part * self.length + own
        return own, score if self._whole else (at < self.size).where(score, self.lowest)

    @property
    def _whole(self) -> bool:
        return divides(self.size, size_max(self.length)) and self.length.op is Ops.CONST

    def _moved(self, value: UOp, row: UOp, own: UOp, table: dict[UOp, UOp]) -> UOp:
        """A value of the row at the steps of a part. What is loaded beyond the end is the last element."""
        at = self.part * self.length + own
        inside = at if self._whole else at.minimum((self.size + -1).maximum(0))
        loads = {u: substitute(u, {row: inside}) for u in value.toposort() if u.op is Ops.LOAD and row in u.ranges}
        return substitute(value, {**loads, row: at, **table})

    def _second(self) -> UOp:
        """The kernel as it was, but for what it finds of all parts."""
        softmax = self.softmax
        memory = UOp(Ops.PARAM, self.dtype, (), ParamArg(OWN, self.elements))
        part = self._range()
        largest = UOp(Ops.REDUCE, self.dtype, (memory.load(self._place(softmax.maximum, part)), part), Ops.MAX)
        table = {softmax.maximum: largest}
        for s in softmax.sums:
            part = self._range()
            score = memory.load(self._place(softmax.maximum, part))
            weight = (score - substitute(s.less, table)).alu(Ops.EXP)
            value = memory.load(self._place(s.reduce, part)) * weight
            total = UOp(Ops.REDUCE, self.dtype, (value, part), Ops.ADD)
            for divisor in s.divisors:
                total = total.alu(Ops.DIV, substitute(divisor, table))
            table[s.reduce] = total
        return simplify(substitute(self.kernel, table))

    def _range(self) -> UOp:
        """All parts, to reduce over."""
        axis = Axis(f"r{self.number}", self.order, reduce=True)
        self.number, self.order = self.number + 1, self.order + 1
        return UOp(Ops.RANGE, dtypes.index, (as_index(self.count),), axis)
