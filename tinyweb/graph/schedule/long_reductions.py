"""Few long rows on GPUs: a first kernel reduces parts of the rows, and later ones reduce what it finds.

A workgroup reduces a row alone, so that the logits of one token, or few heads with many keys, keep few of a GPU's
processors busy. What a reduction needs of others, as the squares of distances to a mean, comes in a kernel of its own
behind that of the others. A maximum and the sums of exponentials of the distances to it are parts together: of each
part the maximum m, and the sums weighted with exp(s - m), are put into memory; of all parts the maximum is the largest,
and a sum is that of the parts' sums times exp(m - largest), the algebra of online softmax (Dao et al., Flash-Decoding
for long-context inference, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import (
    Axis,
    AxisKind,
    Ops,
    ParamArg,
    UOp,
    as_index,
    below,
    identity,
    nested,
    row_major,
    size_max,
    substitute,
    volume,
)
from tinyweb.graph.schedule.attention import Softmax, Weighted, exponential_sums, softmaxes
from tinyweb.graph.schedule.calls import Call, numbered
from tinyweb.graph.schedule.work import LAUNCH
from tinyweb.graph.symbolic import divides, simplify
from tinyweb.graph.target import Target

THREADS = 256  # of a workgroup
SAVED = 2  # launches in whose time a workgroup reads what others take off it, before these are worth a launch more
PART = 1 << 11  # elements of a part, at least
LEVELS = 2  # of reductions that need others, at most
SHORT = 256  # steps of a reduction that every kernel may carry out again
VECTOR = 4  # elements that are read together
FILLED = 4  # a row whose length varies is that part of its longest
QUERIES = 4  # that a workgroup has together, where they read the same keys
FEW = 16  # queries from which on these are rows of matrices
BLOCK = 64  # keys: parts are multiples of it
OWN = 1000  # slots of memory between kernels, from there on


def in_parts(
    calls: Iterable[Call], target: Target | type[Target], new_buffer: Callable[[int, DType], UOp]
) -> Iterator[Call]:
    """The calls, with several in the place of one whose few long rows are worth it; what is between them is in memory
    that `new_buffer` makes."""
    known: dict[UOp, LongReductions | None] = {}
    for kernel, buffers in calls:
        if kernel not in known:
            known[kernel] = _divided(kernel, target)
        if (divided := known[kernel]) is None:
            yield kernel, buffers
            continue
        memory = [new_buffer(*size) for size in divided.memory]
        for part in divided.kernels:
            part, slots = numbered(part)
            yield part, tuple(memory[i - OWN] if i >= OWN else buffers[i] for i in slots)


def _divided(kernel: UOp, target: Target | type[Target]) -> LongReductions | None:
    """Nothing for a kernel whose rows stay whole."""
    if not target.has_threads or any(u.op is Ops.RANGE and u.arg.kind is AxisKind.ORDERED for u in kernel.toposort()):
        return None
    found = softmaxes(kernel)
    if not found:
        return _long_reductions(kernel, target)
    return _long_attention(kernel, found[0], target) if len(found) == 1 else None


def _long_attention(kernel: UOp, softmax: Softmax, target: Target | type[Target]) -> LongReductions | None:
    """As many parts of the keys as keep the GPU busy, if each has enough to do and saves more time than the second
    launch takes."""
    level = [softmax.maximum, *(s.reduce for s in softmax.sums)]
    free = softmax.rows.union(*(u.ranges for u in level))
    fixed = all(not r.arg.reduce and r.src[0].op is Ops.CONST for r in free)
    if not fixed or not _fits_memory(level):
        return None
    shared = max((r.vmax + 1 for r in softmax.shared), default=1)
    groups = volume(softmax.rows) // shared * -(-shared // QUERIES)
    length = softmax.row.src[0]
    steps = size_max(length) // (1 if length.op is Ops.CONST else FILLED)
    read = steps * (volume(softmax.inner) + volume(softmax.columns))
    count = min(target.busy_threads // (THREADS * groups), read // LAUNCH, -(-steps // BLOCK))
    worth = shared < FEW and count > 1 and read - read // count >= SAVED * LAUNCH
    return LongReductions(kernel, [level], {softmax.maximum: softmax}, count, BLOCK) if worth else None


def _long_reductions(kernel: UOp, target: Target | type[Target]) -> LongReductions | None:
    """None for a kernel whose rows stay whole: they are short, or keep the smallest GPU busy, which would read all once
    more; or what is saved is no more than the time of `SAVED` launches for each that is added."""
    nodes = kernel.toposort()
    reduces = [u for u in nodes if u.op is Ops.REDUCE]
    if any(r.op is not Ops.RANGE or r.src[0].op is not Ops.CONST for u in reduces for r in (*u.src[1:], *u.ranges)):
        return None
    found = [u for u in reduces if volume(u.src[1:]) > SHORT]
    rows = max((volume(u.ranges) for u in found), default=0)
    few = 0 < rows * THREADS < target.least_busy
    if not few or not all(map(_is_plain, reduces)) or len({_longest(u).src[0] for u in found}) != 1:
        return None
    read = min(volume(u.src[1:]) for u in found)
    count = min(target.busy_threads // (THREADS * rows), read // PART, _longest(found[0]).vmax + 1)
    if count < 2:
        return None
    maxima = (u for u in found if u.arg is Ops.MAX and len(u.src) == 2 and u.dtype.is_float)
    softmaxes = {u: s for u in maxima if (s := exponential_sums(nodes, u)) is not None}
    levels = _levels(found, softmaxes)
    apart = _apart(kernel, found)
    if len(levels) > LEVELS or not all(map(_fits_memory, [*levels, found] if apart else levels)):
        return None
    saved = sum(volume(u.src[1:]) for u in found) * (count - 1) // count + apart
    worth = saved >= SAVED * LAUNCH * (len(levels) + (apart > 0))
    return LongReductions(kernel, levels, softmaxes, count, VECTOR) if worth else None


def _fits_memory(values: Sequence[UOp]) -> bool:
    """Whether values are of one type, and none that several share a word of."""
    return len({u.dtype for u in values}) == 1 and values[0].dtype.bits >= 32


class LongReductions:
    """The kernels that take the place of one, with slots from OWN on for memory between them: its size and type.

    There are `count` parts of a row or a little fewer, each with a multiple of `block` elements. Those of a row whose
    length varies share whatever length there is.
    """

    def __init__(
        self, kernel: UOp, levels: Sequence[Sequence[UOp]], softmaxes: dict[UOp, Softmax], count: int, block: int
    ):
        self.kernel, self.softmaxes = kernel, softmaxes
        ranges = [u for u in kernel.toposort() if u.op is Ops.RANGE]
        self.number = max(int(r.arg.name[1:].split(".")[0]) for r in ranges) + 1
        self.order = max(r.arg.order for r in ranges) + 1
        self.size = _longest(levels[0][0]).src[0]
        fixed = self.size.op is Ops.CONST
        even = (n for n in range(count, count // 2, -1) if fixed and divides(self.size, n * block))
        together = next(even, count) * block
        self.length = simplify((self.size + (together - 1)) // together * block)
        self.count = -(-size_max(self.size) // size_max(self.length)) if fixed else count
        first = Axis(f"i{self.number}", min(r.arg.order for r in ranges) - 1)
        self.part = UOp(Ops.RANGE, dtypes.index, (as_index(self.count),), first)
        self.rows = levels[0][0].ranges
        self.memory: list[tuple[int, DType]] = []
        self.totals: dict[UOp, UOp] = {}
        self.kernels = [self._level(level) for level in levels]
        self.kernels += self._rest([u for level in levels for u in level])

    def _store(self, values: dict[UOp, UOp], part: UOp | None) -> tuple[UOp, dict[UOp, tuple[UOp, int]]]:
        """A kernel that stores a value for each reduction, of each part; and the memory, and where it begins there."""
        dtype, end, begins = next(iter(values)).dtype, 0, dict[UOp, int]()
        for u in values:
            begins[u] = end
            size = volume(u.ranges) * (1 if part is None else self.count)
            end += -(-size // VECTOR) * VECTOR
        memory = UOp(Ops.PARAM, dtype, (), ParamArg(OWN + len(self.memory), end))
        self.memory.append((end, dtype))
        stores = [memory.store(self._place(u, begins[u], part), value) for u, value in values.items()]
        found = {u: (memory, begin) for u, begin in begins.items()}
        return simplify(UOp(Ops.SINK, dtypes.void, tuple(stores), self.kernel.arg)), found

    def _level(self, level: Sequence[UOp]) -> UOp:
        """The kernel that reduces parts, and the reductions of what it stores."""
        values: dict[UOp, UOp] = {}
        for u in level:
            if u in values:
                continue
            values[u] = self._reduced(u, self._moved(u.src[0], _longest(u)))
            less = values[u].equal(-math.inf).where(UOp.const(0, u.dtype), values[u])
            for s in self._sums(u):
                # weights that columns share are 0 beyond the end, so that their sum does not ask where that is; what
                # they weigh may be infinite there
                shared = bool(self.softmaxes[u].columns)
                score = self._moved(s.score, s.row)
                score = self._inside(s.row, score, Ops.MAX) if shared else score
                value = self._moved(s.value, s.row, {s.exponential: (score - less).alu(Ops.EXP)})
                values[s.reduce] = self._reduced(s.reduce, value, not (shared and s.alone))
        kernel, found = self._store(values, self.part)
        totals = dict(self.totals)
        for u in level:
            if u in totals:
                continue
            totals[u] = self._total(u, found[u])
            for s in self._sums(u):
                weighted = (u, *found[u], substitute(s.less, totals))
                total = self._total(s.reduce, found[s.reduce], weighted)
                for divisor in s.divisors:
                    total = total.alu(Ops.DIV, substitute(divisor, totals))
                totals[s.reduce] = s.of_row(total)
        self.totals = totals
        return kernel

    def _sums(self, u: UOp) -> Sequence[Weighted]:
        return self.softmaxes[u].sums if u in self.softmaxes else ()

    def _moved(self, value: UOp, row: UOp, table: dict[UOp, UOp] | None = None) -> UOp:
        """A value of a row at the steps of a part. What is loaded beyond the end is the last element."""
        at = self._at(row)
        inside = at if self._whole else at.minimum((self.size - 1).maximum(0))
        loads = {u: substitute(u, {row: inside}) for u in value.toposort() if u.op is Ops.LOAD and row in u.ranges}
        return substitute(value, {**loads, row: at, **self.totals, **(table or {})})

    def _at(self, row: UOp) -> UOp:
        return self.part * self.length + self._own(row)

    def _own(self, row: UOp) -> UOp:
        """The steps of a part."""
        return row.replace(src=(self.length,))

    def _inside(self, row: UOp, value: UOp, op: Ops) -> UOp:
        """What changes nothing in place of what is beyond the row's end."""
        return value if self._whole else (self._at(row) < self.size).where(value, identity(op, value.dtype))

    @property
    def _whole(self) -> bool:
        return self.length.op is Ops.CONST and divides(self.size, self.length)

    def _reduced(self, u: UOp, value: UOp, beyond: bool = True) -> UOp:
        """The reduction of a part; `beyond`: the value is another than 0 beyond the row's end."""
        row = _longest(u)
        value = self._inside(row, value, u.arg) if beyond else value
        return u.replace(src=(value, *(self._own(r) if r is row else r for r in u.src[1:])))

    def _total(self, u: UOp, found: tuple[UOp, int], weight: tuple[UOp, UOp, int, UOp] | None = None) -> UOp:
        """What the parts' results are reduced to, each weighted by the distance of its maximum to that of all."""
        axis = Axis(f"r{self.number}", self.order, reduce=True)
        self.number, self.order = self.number + 1, self.order + 1
        part = UOp(Ops.RANGE, dtypes.index, (as_index(self.count),), axis)
        value = found[0].load(self._place(u, found[1], part))
        if weight is not None:
            maximum, memory, begin, less = weight
            value = value * (memory.load(self._place(maximum, begin, part)) - less).alu(Ops.EXP)
        return UOp(Ops.REDUCE, u.dtype, (value, part), u.arg)

    def _place(self, u: UOp, begin: int, part: UOp | None) -> UOp:
        """Where a part's result is, or that of all: what a workgroup finds of a row is in one place."""
        rows, columns = nested(u.ranges & self.rows), nested(u.ranges - self.rows)
        return simplify(row_major([*rows, *([] if part is None else [part]), *columns]) + begin)

    def _rest(self, reduced: Sequence[UOp]) -> list[UOp]:
        """The kernel as it was, but for what it finds of all parts: if it has many elements for each row, in memory."""
        if not _apart(self.kernel, reduced):
            return [simplify(substitute(self.kernel, self.totals))]
        nodes = below(self.kernel.src, lambda u: u not in self.totals)
        kernel, found = self._store({u: self.totals[u] for u in nodes if u in self.totals}, None)
        loads = {u: memory.load(self._place(u, begin, None)) for u, (memory, begin) in found.items()}
        return [kernel, simplify(substitute(self.kernel, loads))]


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
    stored = max(volume(s.src[1].ranges - rows) for s in kernel.src)
    return stored if stored > 1 else 0


def _longest(u: UOp) -> UOp:
    return max(u.src[1:], key=lambda r: r.vmax)
