"""Scans and scatters as updates in place whose steps happen in order.

A scan reads the element before the one it writes; a scatter reads and writes the element that an index names. Both are
one loop over a buffer of their own, serial along the axis that is scanned or that the indices lie along, and parallel
over all others. A long scan goes through blocks: each is scanned by itself, then what precedes it is combined with its
elements (Blelloch, Prefix Sums and Their Applications, 1990). So does a long reduction to few elements.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import (
    ELEMENTWISE,
    Ops,
    Ordered,
    Shape,
    UOp,
    identity,
    numel_max,
    reached,
    rebuild,
    size_max,
    size_sub,
    substitute,
    through,
    toposort,
)
from tinyweb.graph.ir.movement import expand, pad, reshape, shrink
from tinyweb.graph.schedule.views import view_base, walk

BLOCK = 256  # steps of a scan that one loop takes; so many rows as WIDE need no blocks to keep a device busy
WIDE = 64
PRIVATE, EXCHANGED = 4, 16  # least steps of a scatter for each place of a part's memory; parts that threads combine
CHAINS = 8  # parts that a thread of a processor takes together
LINES = 64  # parts whose lengths are multiples of this have the same places in a cache
THREADS = 256  # parts and rows of a scatter, or parts of a reduction, that go on side by side
FEW, MANY = 16, 1 << 18  # a reduction to fewer elements goes through parts if each has more steps: vocabularies do not
LINE = 64  # elements: parts begin where lines of memory do
MOST_MEMORIES = 2  # buffers that an input may be computed from inside of the loop


def expand_ordered(roots: Sequence[UOp], new: Callable[[int, DType], UOp]) -> tuple[Sequence[UOp], frozenset[UOp]]:
    """The roots with their SCANs and SCATTERs written as updates of buffers that `new(size, dtype)` makes, and long
    reductions in two steps; and those buffers."""
    nodes = toposort(roots)
    if not any(u.op in (Ops.SCAN, Ops.SCATTER, Ops.FETCH_ADD) or _is_long(u) for u in nodes):
        return roots, frozenset()
    expansion = _Expansion(new)

    def expanded(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is Ops.SCAN:
            return expansion.scan(u.arg[0], u.arg[1], src)
        if u.op is Ops.SCATTER:
            return expansion.scatter(u.arg[0], u.arg[1], len(u.arg) > 2, *src)
        if _is_long(u):
            return _in_parts(u, src[0])
        return expansion.fetch_add(u.arg, *src) if u.op is Ops.FETCH_ADD else None

    done = rebuild(nodes, expanded)
    table = _results(roots, done, frozenset(expansion.buffers))
    if table:
        written = {done[r]: done[r].src[1] for r in roots if r.op is Ops.ASSIGN and r.buffer in table.values()}
        ends = substitute(UOp(Ops.SINK, dtypes.void, tuple(written.get(done[r], done[r]) for r in roots)), table).src
        done = {r: end for r, end in zip(roots, ends, strict=True)}
    return _in_place(roots, done), frozenset(expansion.buffers) - table.keys()


def _results(roots: Sequence[UOp], done: dict[UOp, UOp], scratch: frozenset[UOp]) -> dict[UOp, UOp]:
    """By memory of an update: the BUFFER that a root asks its whole value to be written to, and that nothing reads."""
    table: dict[UOp, UOp] = {}
    for r in roots:
        if r.op is not Ops.ASSIGN or isinstance(r.arg, Ordered):
            continue
        place, value = below(r.src[0]), below(done[r.src[1]])
        if place.op is Ops.BUFFER and _is_update(value) and value.buffer in scratch and value.buffer not in table:
            others = walk([r.src[1], *(o for o in roots if o is not r)], ())
            if place.arg.size == value.buffer.arg.size and place not in others and place not in table.values():
                table[value.buffer] = place
    return table


def below(u: UOp) -> UOp:
    """What lies below a copy and other shapes."""
    return through(u, (Ops.RESHAPE, Ops.CONTIGUOUS))[1]


def placed(roots: Sequence[UOp], scattered: bool, realized: Container[UOp] | None = None) -> list[UOp]:
    """The roots, each computed where it is wanted if it would be a copy: of what is put into memory as a whole or, once
    it is known, of what is `realized`."""
    copies = [r.op is Ops.ASSIGN and r.src[-1].op in (Ops.CONTIGUOUS, Ops.RESHAPE, Ops.PERMUTE) for r in roots]
    uses = Counter(itertools.chain.from_iterable([u.src for u in toposort(roots)])) if any(copies) else Counter[UOp]()
    return [_at_once(r, uses, scattered, realized) if copy else r for r, copy in zip(roots, copies)]


def _at_once(root: UOp, uses: Mapping[UOp, int], scattered: bool, realized: Container[UOp] | None) -> UOp:
    """A root whose memory another value is copied to as a whole, and nothing else: it is computed there, if elements
    may be stored `scattered` also in another order."""
    place = below(root.src[0])
    moves, value = through(root.src[-1], (Ops.RESHAPE, Ops.PERMUTE) if scattered else (Ops.RESHAPE,))
    whole = root.op is Ops.ASSIGN and not isinstance(root.arg, Ordered) and place.op is Ops.BUFFER and not uses[root]
    if realized is None:
        stored = value.op is Ops.CONTIGUOUS
    else:
        stored = value in realized and value.op in ELEMENTWISE and uses[place] == 1
    alone = stored and all(uses[u] == 1 for u in (*moves, value))
    if not whole or not alone or not all(isinstance(n, int) for n in (*root.src[0].shape, *value.shape)):
        return root
    place = reshape(place, root.src[0].shape)
    for move in moves:
        order = move.arg if move.op is Ops.PERMUTE else ()
        place = UOp(Ops.PERMUTE, place.dtype, (place,), tuple(map(order.index, range(len(order))))) if order else place
        place = reshape(place, move.src[0].shape)
    return root.with_sources((place, value.src[0] if value.op is Ops.CONTIGUOUS else value))


def _is_update(u: UOp) -> bool:
    return u.op is Ops.ASSIGN and isinstance(u.arg, Ordered)


def _in_place(roots: Sequence[UOp], done: dict[UOp, UOp]) -> list[UOp]:
    """The new roots. One that is nothing but what an update has written takes that memory, no copy of it; once, as
    results share no memory."""
    taken: set[UOp] = set()
    out = []
    for r in roots:
        root = done[r]
        value = below(root)
        if root is not r and _is_update(value) and value not in taken:
            taken.add(value)
            root = value
        out.append(root)
    return out


class _Expansion:
    def __init__(self, new: Callable[[int, DType], UOp]):
        self.new = new
        self.buffers: list[UOp] = []
        self.updates = 0

    def scan(self, op: Ops, axis: int, sources: Sequence[UOp]) -> UOp:
        """`sources` are x, and of a linear recurrence (MULADD) its factors."""
        n = sources[0].shape[axis]
        rows = numel_max(s for a, s in enumerate(sources[0].shape) if a != axis)
        if not isinstance(n, int) or n <= 2 * BLOCK or rows >= WIDE:
            return self._serial(op, axis, sources)
        return self._in_blocks(op, axis, sources)

    def _serial(self, op: Ops, axis: int, sources: Sequence[UOp]) -> UOp:
        x, *factors = (_read_once(s) for s in sources)
        n = x.shape[axis]
        if n in (0, 1):
            return x
        view = self._buffer(x.shape, x.dtype)
        before = _behind_identity(op, shrink(view, axis, 0, size_sub(n, 1)), axis)
        return self._update(view, view, _joined(op, before, x, factors), axis)

    def _in_blocks(self, op: Ops, axis: int, sources: Sequence[UOp]) -> UOp:
        shape, n = sources[0].shape, size_max(sources[0].shape[axis])
        count = -(-n // BLOCK)
        blocked = (*shape[:axis], count, BLOCK, *shape[axis + 1 :])
        x, *factors = (reshape(pad(s, axis, 0, count * BLOCK - n), blocked) for s in sources)
        within = self._serial(op, axis + 1, [x, *factors])
        # factors of a linear recurrence: what a block multiplies the value before it with
        scales = [self._serial(Ops.MUL, axis + 1, [f]) for f in factors]

        def last(s: UOp) -> UOp:
            end = shrink(shrink(s, axis + 1, BLOCK - 1, BLOCK), axis, 0, count - 1)
            return reshape(end, (*shape[:axis], count - 1, *shape[axis + 1 :]))

        totals = _stored(self.scan(op, axis, [last(within), *map(last, scales)]))
        before = reshape(_behind_identity(op, totals, axis), (*shape[:axis], count, 1, *shape[axis + 1 :]))
        joined = _joined(op, UOp(Ops.EXPAND, before.dtype, (before,), blocked), within, scales)
        return shrink(reshape(joined, (*shape[:axis], count * BLOCK, *shape[axis + 1 :])), axis, 0, n)

    def scatter(self, axis: int, op: Ops | None, distinct: bool, x: UOp, index: UOp, values: UOp) -> UOp:
        places, steps = size_max(x.shape[axis]), size_max(index.shape[axis])
        rows = numel_max(values.shape) // max(steps, 1)
        most = steps // max(PRIVATE * places, BLOCK)
        most = min(most - min(most // 5, EXCHANGED), THREADS // max(rows, 1))
        # as many as a processor's thread takes together, at places that are not the same in its cache, without a rest
        parts = max(
            range(most // 2 + 1, most + 1),
            key=lambda n: (n % CHAINS == 0, steps // n % LINES != 0, steps % n == 0, n),
            default=0,
        )
        if op is not None and not distinct and parts > 1 and rows < WIDE:
            return self._scatter_in_parts(parts, axis, op, x, index, values)
        return self._scatter(axis, op, distinct, x, index, values)

    def _scatter_in_parts(self, parts: int, axis: int, op: Ops, x: UOp, index: UOp, values: UOp) -> UOp:
        """Parts of the indices side by side, each with places of its own, which are combined in the end
        (privatisation)."""
        steps = size_max(index.shape[axis])
        length = steps // parts
        lead = x.shape[:axis]
        view = self._buffer((*lead, parts, *x.shape[axis:]), x.dtype)
        each = self._update(view, view, expand(identity(op, x.dtype), view.shape))
        if parts * length < steps:
            rest_index, rest_values = (shrink(u, axis, parts * length, steps) for u in (index, values))
            first = reshape(shrink(each, axis, 0, 1), x.shape)
            each = self._steps(view, first, axis, op, False, rest_index, rest_values)
        index, values = (
            reshape(shrink(u, axis, 0, parts * length), (*lead, parts, length, *u.shape[axis + 1 :]))
            for u in (index, values)
        )
        each = self._steps(view, each, axis + 1, op, False, index, values)
        total = reshape(UOp(Ops.REDUCE, x.dtype, (each,), (op, (axis,))), x.shape)
        return UOp(op, x.dtype, (x, total))

    def _scatter(self, axis: int, op: Ops | None, distinct: bool, x: UOp, index: UOp, values: UOp) -> UOp:
        view = self._buffer(x.shape, x.dtype)
        # distinct indices, as many as there are places or more, leave nothing of what was there
        whole = distinct and op is None and size_max(index.shape[axis]) >= size_max(x.shape[axis])
        filled = view if whole else self._update(view, view, x)
        return self._steps(view, filled, axis, op, distinct, index, values)

    def _steps(self, view: UOp, places: UOp, axis: int, op: Ops | None, distinct: bool, index: UOp, values: UOp) -> UOp:
        """`view` of its memory once each value is combined with what is at its place, or put there."""
        if not distinct:
            # what several columns need of an index is computed once
            shared = numel_max(values.shape) == numel_max(index.shape)
            index, values = (_read_once if shared else _stored)(index), _read_once(values)
        place = UOp(Ops.TAKE, places.dtype, (places, index), axis)
        value = values if op is None else UOp(op, places.dtype, (place, values))
        return self._update(view, place, value, None if distinct else axis)

    def fetch_add(self, axis: int, x: UOp, index: UOp, values: UOp) -> UOp:
        # one memory for the sums and, behind them, for what each step finds
        sums, steps = size_max(x.shape[axis]), size_max(index.shape[axis])
        view = self._buffer((*x.shape[:axis], sums + steps), x.dtype)
        filled = self._update(view, shrink(view, axis, 0, sums), x)
        index, values = _read_once(index), _read_once(values)
        place = UOp(Ops.TAKE, x.dtype, (shrink(filled, axis, 0, sums), index), axis)
        return self._update(view, place, place + values, axis, shrink(filled, axis, sums, sums + steps))

    def _buffer(self, shape: Shape, dtype: DType) -> UOp:
        """New memory for an array, as a view that has the array's shape."""
        most = tuple(size_max(s) for s in shape)
        self.buffers.append(self.new(numel_max(most), dtype))
        view = reshape(self.buffers[-1], most)
        for axis, s in enumerate(shape):
            view = shrink(view, axis, 0, s)
        return view

    def _update(self, view: UOp, place: UOp, value: UOp, axis: int | None = None, *trace: UOp) -> UOp:
        """`view` of its memory once `value` is written, in order along `axis` where one is given; with a `trace`, what
        was at its place before goes there."""
        self.updates += 1
        arg = -self.updates if axis is None else Ordered(axis, self.updates)
        update = UOp(Ops.ASSIGN, value.dtype, (place, value, *trace), arg)
        return substitute(view, {view.buffer: update})


def _is_long(u: UOp) -> bool:
    """Whether a REDUCE is too long for one worker or workgroup to carry out alone, and has no others beside it."""
    if u.op is not Ops.REDUCE or not all(isinstance(s, int) for s in u.src[0].shape):
        return False
    rows = numel_max(u.shape)
    return 0 < rows < FEW and numel_max(u.src[0].shape) > MANY * rows


def _in_parts(u: UOp, x: UOp) -> UOp:
    """A REDUCE of x part by part along an axis, then of what these are; what makes no whole part beside them."""
    op, axes = u.arg
    sizes = [size_max(s) for s in x.shape]
    axis = next((a for a in axes if sizes[a] >= THREADS), max(axes, key=lambda a: sizes[a]))
    length = -(-sizes[axis] // THREADS)
    length = -(-length // LINE) * LINE if length > LINE else length
    parts = sizes[axis] // length
    blocks = reshape(shrink(x, axis, 0, parts * length), (*sizes[:axis], parts, length, *sizes[axis + 1 :]))
    each = UOp(Ops.REDUCE, u.dtype, (blocks,), (op, tuple(a + (a >= axis) for a in axes)))
    each = UOp(Ops.CONTIGUOUS, u.dtype, (reshape(each, (*each.shape[: axis + 1], *each.shape[axis + 2 :])),))
    total = UOp(Ops.REDUCE, u.dtype, (each,), (op, (axis,)))
    if parts * length == sizes[axis]:
        return total
    return UOp(op, u.dtype, (total, u.replace(src=(shrink(x, axis, parts * length, sizes[axis]),))))


def _behind_identity(op: Ops, x: UOp, axis: int) -> UOp:
    """x behind one step more, which has the identity of the operation."""
    padded = pad(x, axis, 1)
    if op in (Ops.ADD, Ops.MULADD):
        return padded
    begun = pad(expand(UOp.const(True, dtypes.bool), x.shape), axis, 1)
    return begun.where(padded, identity(op, x.dtype))


def _joined(op: Ops, before: UOp, x: UOp, factors: Sequence[UOp]) -> UOp:
    """A step of a scan."""
    return before * factors[0] + x if op is Ops.MULADD else UOp(op, x.dtype, (before, x))


def _read_once(x: UOp) -> UOp:
    """An input of a serial loop: elementwise work stays in it, all else is computed before."""
    memory, computed = (Ops.BUFFER, Ops.ASSIGN, Ops.CONTIGUOUS), (Ops.REDUCE, Ops.TAKE)
    nodes = reached([x], lambda u: () if u.op in (*memory, *computed) else u.src)
    found = Counter(u.op for u in nodes)
    plain = not any(found[op] for op in computed) and sum(found[op] for op in memory) <= MOST_MEMORIES
    return x if plain else UOp(Ops.CONTIGUOUS, x.dtype, (x,))


def _stored(x: UOp) -> UOp:
    """In memory, unless it is there."""
    return x if view_base(x).op in (Ops.BUFFER, Ops.ASSIGN, Ops.CONTIGUOUS) else UOp(Ops.CONTIGUOUS, x.dtype, (x,))
