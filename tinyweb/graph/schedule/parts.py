"""Memory that is larger than a device binds: in parts, each a BUFFER of its own, and kernels that read and write them.

Memory is cut at multiples of the longest stride that kernels step through it with (a matrix's rows, the heads of a
cache), so that a kernel whose output walks along it becomes one launch for each part, as long as that part's walk is.
Where a place is known only when it runs (rows by id), or where a sum goes on over a cut, all parts are bound, and each
load is chosen among them; of more parts than a kernel binds a copy is made first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import AxisKind, KernelInfo, Ops, ParamArg, UOp, as_index, below, nested, rebuild, substitute
from tinyweb.graph.schedule.calls import MAX_INPUTS, KernelCall
from tinyweb.graph.schedule.memory_plan import nbytes
from tinyweb.graph.symbolic import simplify, split_by

ALIGNMENT = 64  # bytes: parts lie side by side where a target has them in one memory


@dataclass(frozen=True)
class Parts:
    """What a BUFFER is divided into: where each part begins, in elements, and the BUFFERs of the parts."""

    starts: tuple[int, ...]
    buffers: tuple[UOp, ...]

    def spans(self) -> list[tuple[int, int, UOp]]:
        """First element, end and BUFFER of each."""
        ends = (*self.starts[1:], self.starts[-1] + self.buffers[-1].arg.size)
        return list(zip(self.starts, ends, self.buffers, strict=True))

    def met(self, index: UOp) -> list[int]:
        """The numbers of the parts that an index may lie in."""
        last = self.starts[-1] + self.buffers[-1].arg.size - 1
        low, high = (min(max(bound, 0), last) for bound in (index.vmin, index.vmax))
        return [i for i, (start, end, _) in enumerate(self.spans()) if start <= high and low < end]


def too_large(calls: Iterable[KernelCall], limit: int) -> list[UOp]:
    """The BUFFERs of more than `limit` bytes, by first use."""
    return [b for b in dict.fromkeys(b for call in calls for b in call.buffers) if nbytes(b) > limit]


def divide(
    calls: Sequence[KernelCall],
    limit: int,
    new_buffer: Callable[[int, DType], UOp],
    whole: frozenset[UOp] = frozenset(),
) -> dict[UOp, Parts]:
    """Parts of at most `limit` bytes of every larger BUFFER that `calls` use, but for those that stay `whole`."""
    large = [b for b in too_large(calls, limit) if b not in whole]
    steps: dict[UOp, set[int]] = {b: set() for b in large}
    for call in calls if large else ():
        for u in call.kernel.toposort():
            if u.op in (Ops.LOAD, Ops.STORE) and (b := call.buffers[u.src[0].arg.slot]) in steps:
                steps[b] |= _steps(u.src[1])
    return {b: _parts(b, steps[b], limit, new_buffer) for b in large}


def _steps(index: UOp) -> set[int]:
    """What the terms of an index are multiplied with."""
    terms = below([index], lambda u: u.op is Ops.ADD)
    return {abs(int(u.src[1].arg)) for u in terms if u.op is Ops.MUL and u.src[1].op is Ops.CONST}


def _parts(buffer: UOp, steps: set[int], limit: int, new_buffer: Callable[[int, DType], UOp]) -> Parts:
    size, dtype = int(buffer.arg.size), buffer.dtype
    most, line = limit * 8 // dtype.bits, ALIGNMENT * 8 // dtype.bits
    units = [math.lcm(step, line) for step in sorted(steps, reverse=True)]
    unit = next((u for u in units if 0 < u <= most), line)
    count = -(-size // (most // unit * unit))
    each = -(-size // (count * unit)) * unit  # parts of about one size
    starts = tuple(range(0, size, each))
    return Parts(starts, tuple(new_buffer(min(each, size - start), dtype) for start in starts))


def on_parts(
    call: KernelCall, divided: Mapping[UOp, Parts], new_buffer: Callable[[int, DType], UOp]
) -> Iterator[KernelCall]:
    """The calls that do what one does, on the parts of the memory that is `divided`. Where a kernel would bind too many
    of them, what it loads there is copied first, to a temporary that `new_buffer` makes.
    """
    if not any(b in divided for b in call.buffers):
        yield call
        return
    slots = {i: divided[b] for i, b in enumerate(call.buffers) if b in divided}
    for kernel in _pieces(call.kernel, slots):
        bound = _bound(kernel, call.buffers, divided)
        loads = [a for a in _accesses(kernel, slots) if len(a[2]) > 1 and a[0].op is Ops.LOAD]
        if len(bound.buffers) <= MAX_INPUTS + 1 or not loads:
            yield bound
            continue
        load, parts, met = max(loads, key=lambda a: len(a[2]))
        copied, copy = _copied(load, parts, met, len(call.buffers), new_buffer)
        for gather, only in copied:
            yield _bound(gather, (*call.buffers, copy), divided, only)
        place = copied[0][0].src[0]
        back = {r.replace(arg=replace(r.arg, reduce=False)): r for r in load.ranges}
        again = place.src[0].load(substitute(place.src[1], back)).cast(load.dtype)
        yield from on_parts(KernelCall(substitute(kernel, {load: again}), (*call.buffers, copy)), divided, new_buffer)


def _copied(
    load: UOp, parts: Parts, met: Sequence[int], slot: int, new_buffer: Callable[[int, DType], UOp]
) -> tuple[list[tuple[UOp, dict[tuple[UOp, UOp], Sequence[int]]]], UOp]:
    """Kernels that copy what a load reads in all its steps, some parts after the others, and the memory they store to,
    which has the number `slot`."""
    free = {r: r.replace(arg=replace(r.arg, reduce=False)) for r in load.ranges}
    at, size = UOp.const(0, dtypes.index), 1
    for r in reversed(nested(free.values())):
        at, size = at + r * size, size * (r.vmax + 1)
    narrow = load.dtype.bits < 32
    wide = (dtypes.float32 if load.dtype.is_float else dtypes.int32) if narrow else load.dtype
    copy = new_buffer(size, wide)
    moved = substitute(load, free)
    memory, value, index = UOp(Ops.PARAM, wide, (), ParamArg(slot, size)), moved.cast(wide), moved.src[1]
    others = {p for u in moved.src[1:] for p in u.toposort() if p.op is Ops.PARAM}
    each = max(MAX_INPUTS - len(others), 1)
    kernels = []
    for begin in range(0, len(met), each):
        group = met[begin : begin + each]
        first, last = parts.spans()[group[0]][0], parts.spans()[group[-1]][1]
        gate = _between(index, first if begin else None, last if group[-1] != met[-1] else None, None)
        store = memory.store(simplify(at), value, gate)
        kernels.append((UOp(Ops.SINK, dtypes.void, (store,), KernelInfo()), {(moved.src[0], index): group}))
    return kernels, copy


def _accesses(kernel: UOp, divided: Mapping[int, Parts]) -> list[tuple[UOp, Parts, list[int]]]:
    """Loads and stores of divided memory, by slot, with the parts that each may meet."""
    found = [u for u in kernel.toposort() if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].arg.slot in divided]
    return [(u, parts := divided[u.src[0].arg.slot], parts.met(u.src[1])) for u in found]


def _pieces(kernel: UOp, divided: Mapping[int, Parts]) -> Iterator[UOp]:
    """The kernel for one stretch of an output axis after the other, within which fewer parts are met."""
    undecided = [a for a in _accesses(kernel, divided) if len(a[2]) > 1]
    axes = nested(u for u in kernel.toposort() if u.op is Ops.RANGE and not u.arg.reduce) if undecided else []
    for r in axes:
        if r.arg.kind is not AxisKind.LOOP or r.src[0].op is not Ops.CONST:
            continue
        if any(r not in s.src[1].ranges for s in kernel.src):
            continue  # what is stored once would be stored again for every piece
        size = int(r.src[0].arg)
        cuts = {c for u, parts, met in undecided for c in _cuts(u.src[1], r, parts, met) if 0 < c < size}
        if cuts:
            for start, end in pairwise((0, *sorted(cuts), size)):
                some = r.replace(src=(as_index(end - start),))
                yield from _pieces(simplify(substitute(kernel, {r: some + start})), divided)
            return
    yield kernel


def _cuts(index: UOp, r: UOp, parts: Parts, met: Sequence[int]) -> Iterator[int]:
    """Steps of an axis before which an index lies wholly in other parts than from there on, or than one step later."""
    stride, rest = split_by(index, r) or (0, index)
    if stride <= 0:
        return
    for part in met[1:]:
        border = parts.starts[part]
        below, above = (border - 1 - rest.vmax) // stride + 1, -((rest.vmin - border) // stride)
        if above - below <= 1:
            yield from (below, above)


def _bound(
    kernel: UOp,
    buffers: Sequence[UOp],
    divided: Mapping[UOp, Parts],
    only: Mapping[tuple[UOp, UOp], Sequence[int]] | None = None,
) -> KernelCall:
    """The call of a kernel whose loads and stores are those of parts; for some places in a memory, of `only` those."""
    params: dict[tuple[int, int], UOp] = {}  # by slot and part

    def param(old: UOp, part: int) -> UOp:
        key = (old.arg.slot, part)
        if key not in params:
            size = divided[buffers[old.arg.slot]].buffers[part].arg.size if buffers[old.arg.slot] in divided else 0
            number = len(buffers) * (part + 1) + old.arg.slot  # of its own until all are known
            params[key] = UOp(Ops.PARAM, old.dtype, (), ParamArg(number, size or old.arg.size))
        return params[key]

    def place(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is Ops.SINK:
            return u.with_sources(tuple(s for store in src for s in (store.src if store.op is Ops.SINK else (store,))))
        if u.op not in (Ops.LOAD, Ops.STORE) or src[0].op is not Ops.PARAM:
            return None
        parts = divided.get(buffers[src[0].arg.slot])
        if parts is None:
            return u.with_sources((param(src[0], 0), *src[1:]))
        met = (only or {}).get((u.src[0], u.src[1])) or parts.met(src[1])
        return _load(parts, met, param, src) if u.op is Ops.LOAD else _stores(u, parts, met, param, src)

    made = simplify(rebuild(kernel.toposort(), place)[kernel])
    used = {u for u in made.toposort() if u.op is Ops.PARAM}
    stored = {u.src[0] for u in made.src}
    kept = [(p not in stored, *key, p) for key, p in params.items() if p in used]
    kept.sort(key=lambda k: k[:3])
    renumbered = {p: p.replace(arg=ParamArg(i, p.arg.size)) for i, (*_, p) in enumerate(kept)}
    memory = [divided[buffers[s]].buffers[n] if buffers[s] in divided else buffers[s] for _, s, n, _ in kept]
    return KernelCall(substitute(made, renumbered), tuple(memory))


Place = Callable[[UOp, int], UOp]


def _between(index: UOp, first: int | None, end: int | None, gate: UOp | None) -> UOp | None:
    """A gate that is also closed for indices below `first` and from `end` on."""
    for condition in (None if first is None else index >= first, None if end is None else index < end):
        if condition is not None:
            gate = condition if gate is None else gate & condition
    return gate


def _within(index: UOp, parts: Parts, part: int, gate: UOp | None) -> tuple[UOp, UOp | None]:
    """The index in a part, and whether it lies there."""
    met, (start, end, _) = parts.met(index), parts.spans()[part]
    gate = _between(index, start if part != met[0] else None, end if part != met[-1] else None, gate)
    return (index - start if start else index), gate


def _load(parts: Parts, met: Sequence[int], param: Place, src: tuple[UOp, ...]) -> UOp:
    index, gate = src[1], src[2] if len(src) > 2 else None
    loads = [param(src[0], p).load(*_within(index, parts, p, gate)) for p in met]
    value = loads[-1]
    for part, load in reversed(list(zip(met[:-1], loads[:-1], strict=True))):
        value = (index < parts.spans()[part][1]).where(load, value)
    return value


def _stores(u: UOp, parts: Parts, met: Sequence[int], param: Place, src: tuple[UOp, ...]) -> UOp:
    """A STORE, or a SINK of several."""
    index, gate = src[1], src[3] if len(src) > 3 else None
    stores = []
    for p in met:
        place, inside = _within(index, parts, p, gate)
        stores.append(param(src[0], p).store(place, src[2], inside))
    return stores[0] if len(stores) == 1 else UOp(Ops.SINK, u.dtype, tuple(stores))
