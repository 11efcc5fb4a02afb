"""Reductions of few long rows on GPUs: a first kernel reduces parts of the rows, and later ones reduce what it finds.

A workgroup reduces a row alone, so that the logits of one token keep one of a GPU's processors busy. What a reduction
needs of others, as the squares of distances to a mean, comes in a kernel of its own behind that of the others. A
maximum and the sums of exponentials of the distances to it are parts together, as in `long_rows.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, Ops, ParamArg, UOp, as_index, identity, nested, row_major, substitute
from tinyweb.graph.schedule.attention import Softmax, exponential_sums
from tinyweb.graph.schedule.work import LAUNCH
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target

THREADS = 256  # of a workgroup
SAVED = 2  # launches in whose time a workgroup reads what others take off it, before these are worth a launch more
PART = 1 << 11  # elements of a part, at least
LEVELS = 2  # of reductions that need others, at most
SHORT = 256  # steps of a reduction that every kernel may carry out again
VECTOR = 4  # elements that are read together
OWN = 1000  # slots of memory between kernels, from there on


class LongReductions:
    """The kernels that take the place of one, with slots from OWN on for memory between them: its size and type."""

    def __init__(self, kernel: UOp, levels: Sequence[Sequence[UOp]], softmaxes: dict[UOp, Softmax], count: int):
        self.kernel, self.softmaxes = kernel, softmaxes
        ranges = [u for u in kernel.toposort() if u.op is Ops.RANGE]
        self.number = max(int(r.arg.name[1:].split(".")[0]) for r in ranges) + 1
        self.order = max(r.arg.order for r in ranges) + 1
        size = int(_longest(levels[0][0]).src[0].arg)
        even = (n for n in range(count, count // 2, -1) if size % n == 0 and size // n % VECTOR == 0)
        self.length = size // n if (n := next(even, 0)) else -(-size // count)
        self.count, self.size = -(-size // self.length), size
        first = Axis(f"i{self.number}", min(r.arg.order for r in ranges) - 1)
        self.part = UOp(Ops.RANGE, dtypes.index, (as_index(self.count),), first)
        self.memory: list[tuple[int, DType]] = []
        self.totals: dict[UOp, UOp] = {}
        self.kernels = [self._level(level) for level in levels]
        self.kernels += self._rest([u for level in levels for u in level])

    def _store(self, values: dict[UOp, UOp], part: UOp | None) -> tuple[UOp, dict[UOp, tuple[UOp, int]]]:
        """A kernel that stores a value for each reduction, of each part; and the memory, and where it begins there."""
        dtype, end, begins = next(iter(values)).dtype, 0, dict[UOp, int]()
        for u in values:
            begins[u] = end
            end += (self.count if part is not None else 1) * math.prod(r.vmax + 1 for r in u.ranges)
        memory = UOp(Ops.PARAM, dtype, (), ParamArg(OWN + len(self.memory), end))
        self.memory.append((end, dtype))
        stores = [memory.store(_place(u, begins[u], part), value) for u, value in values.items()]
        found = {u: (memory, begin) for u, begin in begins.items()}
        return simplify(UOp(Ops.SINK, dtypes.void, tuple(stores), self.kernel.arg)), found

    def _level(self, level: Sequence[UOp]) -> UOp:
        """The kernel that reduces parts, and the reductions of what it stores."""
        values: dict[UOp, UOp] = {}
        for u in level:
            if u in values:
                continue
            values[u] = self._reduced(u, self._moved(u.src[0], _longest(u)))
            for s in self.softmaxes[u].sums if u in self.softmaxes else ():
                less = values[u].equal(-math.inf).where(UOp.const(0.0, u.dtype), values[u])
                weight = (self._moved(s.score, s.row) - less).alu(Ops.EXP)
                values[s.reduce] = self._reduced(s.reduce, self._moved(s.value, s.row, {s.exponential: weight}))
        kernel, found = self._store(values, self.part)
        totals: dict[UOp, UOp] = {}
        for u in level:
            if u not in totals:
                totals[u] = self._total(u, found[u])
            for s in self.softmaxes[u].sums if u in self.softmaxes else ():
                less = substitute(s.less, {**self.totals, **totals})
                total = self._total(s.reduce, found[s.reduce], (u, *found[u], less))
                for divisor in s.divisors:
                    total = total.alu(Ops.DIV, substitute(divisor, {**self.totals, **totals}))
                totals[s.reduce] = total
        self.totals |= totals
        return kernel

    def _moved(self, value: UOp, row: UOp, table: dict[UOp, UOp] | None = None) -> UOp:
        """A value of a row at the steps of a part. What is loaded beyond the end is the last element."""
        at = self._at(row)
        inside = at if self._whole else at.minimum(self.size - 1)
        loads = {u: substitute(u, {row: inside}) for u in value.toposort() if u.op is Ops.LOAD and row in u.ranges}
        return substitute(value, {**loads, row: at, **self.totals, **(table or {})})

    def _at(self, row: UOp) -> UOp:
        return self.part * self.length + row.replace(src=(as_index(self.length),))

    @property
    def _whole(self) -> bool:
        return self.count * self.length == self.size

    def _reduced(self, u: UOp, value: UOp) -> UOp:
        """The reduction of a part."""
        row = _longest(u)
        if not self._whole:
            value = (self._at(row) < self.size).where(value, identity(u.arg, u.dtype))
        return u.replace(src=(value, *(self._own(r, row) for r in u.src[1:])))

    def _own(self, r: UOp, row: UOp) -> UOp:
        return r.replace(src=(as_index(self.length),)) if r is row else r

    def _total(self, u: UOp, found: tuple[UOp, int], weight: tuple[UOp, UOp, int, UOp] | None = None) -> UOp:
        """What the parts' results are reduced to, each weighted by the distance of its maximum to that of all."""
        part = self._range()
        value = found[0].load(_place(u, found[1], part))
        if weight is not None:
            maximum, memory, begin, less = weight
            value = value * (memory.load(_place(maximum, begin, part)) - less).alu(Ops.EXP)
        return UOp(Ops.REDUCE, u.dtype, (value, part), u.arg)

    def _range(self) -> UOp:
        axis = Axis(f"r{self.number}", self.order, reduce=True)
        self.number, self.order = self.number + 1, self.order + 1
        return UOp(Ops.RANGE, dtypes.index, (as_index(self.count),), axis)

    def _rest(self, reduced: Sequence[UOp]) -> list[UOp]:
        """The kernel as it was, but for what it finds of all parts: if it has many elements for each row, in memory."""
        if not _apart(self.kernel, reduced):
            return [simplify(substitute(self.kernel, self.totals))]
        todo, needed, seen = [*self.kernel.src], dict[UOp, UOp](), set[UOp]()
        while todo:
            u = todo.pop()
            if u in self.totals:
                needed[u] = self.totals[u]
            elif u not in seen:
                seen.add(u)
                todo += u.src
        kernel, found = self._store(needed, None)
        loads = {u: memory.load(_place(u, begin, None)) for u, (memory, begin) in found.items()}
        return [kernel, simplify(substitute(self.kernel, loads))]


def long_reductions(kernel: UOp, target: Target | type[Target]) -> LongReductions | None:
    """None for a kernel whose rows stay whole: they are short, or keep the smallest GPU busy, which would read all once
    more; or what is saved is no more than the time of `SAVED` launches for each that is added."""
    nodes = kernel.toposort()
    reduces = [u for u in nodes if u.op is Ops.REDUCE]
    if any(r.op is not Ops.RANGE or r.src[0].op is not Ops.CONST for u in reduces for r in (*u.src[1:], *u.ranges)):
        return None
    found = [u for u in reduces if _volume(u.src[1:]) > SHORT]
    rows = max((_volume(u.ranges) for u in found), default=0)
    few = 0 < rows * THREADS < target.least_busy
    if not few or not all(map(_is_plain, reduces)) or len({_longest(u).src[0] for u in found}) != 1:
        return None
    read = min(_volume(u.src[1:]) for u in found)
    count = min(target.busy_threads // (THREADS * rows), read // PART, _longest(found[0]).vmax + 1)
    if count < 2:
        return None
    maxima = (u for u in found if u.arg is Ops.MAX and len(u.src) == 2 and u.dtype.is_float)
    softmaxes = {u: s for u in maxima if (s := exponential_sums(nodes, u)) is not None}
    levels = _levels(found, softmaxes)
    types = [{u.dtype for u in level} for level in levels] + [{u.dtype for u in found}] * bool(_apart(kernel, found))
    if len(levels) > LEVELS or any(len(t) > 1 or next(iter(t)).bits < 32 for t in types):
        return None
    apart = _apart(kernel, found)
    saved = sum(_volume(u.src[1:]) for u in found) * (count - 1) // count + apart
    worth = saved >= SAVED * LAUNCH * (len(levels) + (apart > 0))
    return LongReductions(kernel, levels, softmaxes, count) if worth else None


def _is_plain(u: UOp) -> bool:
    """Whether results are elements of the output, and no other reduction is carried out for each step."""
    inner = (x for x in u.src[0].toposort() if x.op is Ops.REDUCE)
    return not any(r.arg.reduce for r in u.ranges) and all(x.ranges.isdisjoint(u.src[1:]) for x in inner)


def _levels(found: Sequence[UOp], softmaxes: dict[UOp, Softmax]) -> list[list[UOp]]:
    """Reductions by how many others they need, one of the other; sums of exponentials are with their maximum."""
    level: dict[UOp, int] = {}
    joined = {s.reduce: u for u, softmax in softmaxes.items() for s in softmax.sums}
    for u in found:
        below = {x for x in u.src[0].toposort() if x in level}
        level[u] = level[joined[u]] if u in joined else 1 + max((level[x] for x in below), default=-1)
    return [[u for u in found if level[u] == n] for n in range(max(level.values()) + 1)]


def _apart(kernel: UOp, found: Sequence[UOp]) -> int:
    """Elements that are stored for each row, if there are several."""
    rows = frozenset[UOp]().union(*(u.ranges for u in found))
    stored = max(_volume(s.src[1].ranges - rows) for s in kernel.src)
    return stored if stored > 1 else 0


def _longest(u: UOp) -> UOp:
    return max(u.src[1:], key=lambda r: r.vmax)


def _volume(ranges: Sequence[UOp] | frozenset[UOp]) -> int:
    return math.prod(r.vmax + 1 for r in ranges)


def _place(u: UOp, begin: int, part: UOp | None) -> UOp:
    rows = nested(u.ranges)
    return simplify(row_major([*rows, part] if part is not None else rows) + begin)
