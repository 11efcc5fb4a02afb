"""Tensor graphs of several devices become a graph for each: what every device computes of its part, and what moves.

A value on several devices is either divided along one axis, or whole on each of them. Operations run on
the parts as long as the axis stays one: elementwise work (of whole values each device takes its part), movement that
keeps the axis, reductions along other axes, products of matrices as these are made of them. A reduction along the axis
is one of each part and an all-reduce. What else there is of an operation gathers its divided operands first: then each
device has all of them, and computes all of the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tinyweb.dtype import DType
from tinyweb.graph.ir import ELEMENTWISE, BufferArg, Ops, Shape, UOp, identity, numel_max, size_max, size_prod, through
from tinyweb.graph.ir.invariants import same_sizes
from tinyweb.graph.ir.movement import shaped, shrink
from tinyweb.graph.ir.on_node import on_node
from tinyweb.graph.ir.tensor_spec import is_buffer_view
from tinyweb.graph.schedule.indexing import same
from tinyweb.graph.schedule.joining import joined

Devices: TypeAlias = "tuple[str, ...]"
Sizes: TypeAlias = "tuple[int, ...]"  # of the parts, along the axis
DIRECT_BYTES = 64 << 10  # up to which each device sends all it has to all others: a copy costs more than its bytes
STRIPPED = (Ops.LEAF, Ops.DETACH, Ops.CUSTOM_GRADIENT)  # what only gradients ask for
RENAMING = (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.FLIP)
ALONE = (Ops.CONTIGUOUS, Ops.CAST, Ops.BITCAST)


@dataclass(frozen=True)
class Parts:
    """A value on several devices: what each has of it, divided along `axis`, or (None) all of it. Flat memory is
    divided as (outer, devices, rest)."""

    nodes: tuple[UOp, ...]
    axis: int | None = None
    outer: int = 1

    @property
    def sizes(self) -> Sizes:
        """Elements of each along the axis."""
        assert self.axis is not None
        return tuple(size_max(v.shape[self.axis]) for v in self.nodes)


@dataclass(frozen=True)
class Transfer:
    """A value that `source` computes, or has in memory, for `landing`, a BUFFER of the device `target`."""

    value: UOp
    source: str
    target: str
    landing: UOp


def part_of(buffer: UOp, i: int) -> UOp:
    """The memory of the i-th device of a BUFFER that is spread."""
    arg, spread = buffer.arg, buffer.arg.spread
    size = arg.size if spread.outer == 0 else spread.outer * spread.shares[i]
    return UOp(Ops.BUFFER, buffer.dtype, (buffer,), BufferArg(arg.space, arg.id, size, None, i))


def whole_of(buffer: UOp) -> UOp:
    """The BUFFER that a part is one of; any other is itself."""
    return buffer.src[0] if buffer.src else buffer


def _values(u: UOp) -> tuple[UOp, ...]:
    return u.src[:1] if u.op in STRIPPED else u.src


def spans(u: UOp) -> bool:
    """Whether a value is made of what several devices have."""
    return on_node(
        u, "spans", lambda v: v.op is Ops.COPY or (v.op is Ops.BUFFER and v.arg.spread is not None)
        or any(s.__dict__["spans"] for s in v.src),
    )  # fmt: skip


def _is_free(u: UOp) -> bool:
    """Whether a value is made of constants alone: every device may compute it."""
    return on_node(
        u, "free", lambda v: v.op not in (Ops.BUFFER, Ops.PARAM) and all(s.__dict__["free"] for s in v.src)
    )  # fmt: skip


def even_sizes(size: int, count: int) -> Sizes:
    """Sizes of parts that differ by at most 1, the larger ones first."""
    return tuple(size // count + (i < size % count) for i in range(count))


def _with(shape: Sequence[object], axis: int, value: object) -> tuple[object, ...]:
    return (*shape[:axis], value, *shape[axis + 1 :])


def _shrink(u: UOp, axis: int, begin: int, end: int) -> UOp:
    """Elements `begin` … `end` - 1 along an axis; of what is repeated along it, fewer repetitions."""
    if u.op is Ops.EXPAND and same(u.src[0].shape[axis], 1):
        return UOp(Ops.EXPAND, u.dtype, u.src, _with(u.shape, axis, end - begin))
    return shrink(u, axis, begin, end)


class Resolver:
    """What each device computes. `transfers` are the values that move, in an order in which they can."""

    def __init__(self, new_buffer: Callable[[int, DType], UOp]) -> None:
        self.new_buffer = new_buffer
        self.done: dict[tuple[UOp, Devices], Parts] = {}
        self.arrived: dict[tuple[UOp, str, str], UOp] = {}
        self.transfers: list[Transfer] = []

    def parts(self, root: UOp, devices: Devices) -> Parts:
        """The parts of a value on `devices`. ValueError where an axis cannot be divided, and for a value that lies on
        other devices."""
        todo = [(root, devices, False)]
        while todo:
            u, where, ready = todo.pop()
            if (u, where) in self.done:
                continue
            if not spans(u) and (len(where) == 1 or _is_free(u)):
                self.done[u, where] = Parts((u,) * len(where))
                continue
            below = u.arg.source if u.op is Ops.COPY else where
            src = () if u.op is Ops.BUFFER else _values(u)
            if ready:
                self.done[u, where] = self._made(u, where, [self.done[s, below] for s in src])
            else:
                todo.append((u, where, True))
                todo.extend((s, below, False) for s in src)
        return self.done[root, devices]

    def _made(self, u: UOp, where: Devices, src: list[Parts]) -> Parts:
        if u.op is Ops.BUFFER:
            return self._memory(u, where)
        if u.op in STRIPPED:
            return src[0]
        if u.op is Ops.COPY:
            return self._copied(u, src[0])
        if u.op is not Ops.ASSIGN and all(p.axis is None for p in src):
            return self._each(u, src, None)
        if u.op in ELEMENTWISE and len(u.src) > 1:
            return self._elementwise(u, where, src)
        if u.op in ALONE or u.op in ELEMENTWISE:
            return Parts(self._each(u, src, None).nodes, src[0].axis, src[0].outer)
        found = RULES[u.op](self, u, where, src) if u.op in RULES else None
        return found or self._each(u, [self.aligned(p, None, where) for p in src], None)

    def _memory(self, u: UOp, where: Devices) -> Parts:
        spread = u.arg.spread
        if spread is None or spread.devices != where:
            on = " and ".join(spread.devices) if spread else "one device"
            used = " and ".join(where)
            raise ValueError(f"memory on {on} was used on {used}: move the tensor with .to() or .shard()")
        nodes = tuple(part_of(u, i) for i in range(len(where)))
        return Parts(nodes) if spread.outer == 0 else Parts(nodes, 0, spread.outer)

    @staticmethod
    def _each(u: UOp, src: Sequence[Parts], axis: int | None, args: Iterable[object] | None = None) -> Parts:
        """The operation on each device's part, with its own `args`."""
        args = itertools.repeat(u.arg) if args is None else args
        return Parts(tuple(UOp(u.op, u.dtype, nodes, a) for nodes, a in zip(zip(*(p.nodes for p in src)), args)), axis)

    # -- moving -------------------------------------------------------------------------------------------------------
    def move(self, value: UOp, source: str, target: str) -> UOp:
        """The value of one device on another. What only renames or repeats elements is done there."""
        if source == target or _is_free(value):
            return value
        if numel_max(value.shape) == 0:
            return _filled(UOp.const(0, value.dtype), value.shape)
        chain, value = through(value, RENAMING)
        arrived = self.arrived.get((value, source, target))
        if arrived is None:
            landing = self.new_buffer(numel_max(value.shape), value.dtype)
            self.transfers.append(Transfer(value, source, target, landing))
            arrived = self.arrived[value, source, target] = shaped(landing, value.shape)
        for v in reversed(chain):
            arrived = v.with_sources((arrived,))
        return arrived

    def gathered(self, p: Parts, where: Devices, target: str, begin: int = 0, end: int | None = None) -> UOp:
        """Of a divided value elements `begin` … `end` - 1 along its axis, or all, on one device."""
        assert p.axis is not None
        end = sum(p.sizes) if end is None else end
        pieces, at = [], 0
        for v, d, size in zip(p.nodes, where, p.sizes):
            first, last = max(begin - at, 0), min(end - at, size)
            if first < last:
                some = v if last - first == size else _shrink(v, p.axis, first, last)
                pieces.append(self.move(some, d, target))
            at += size
        return joined(pieces or [_shrink(p.nodes[0], p.axis, 0, 0)], p.axis)

    def aligned(self, p: Parts, axis: int | None, where: Devices, sizes: Sizes | None = None) -> Parts:
        """The value divided along another axis, into parts of given or about equal sizes, or (None) whole on each
        device."""
        if p.axis == axis and p.outer == 1 and (axis is None or sizes in (None, p.sizes)):
            return p
        if p.axis == axis and p.outer == 1 and sizes is not None:  # each gets what it does not have
            p = Parts(tuple(map(kept, p.nodes)), axis)
            ends = list(itertools.accumulate(sizes))
            return Parts(tuple(self.gathered(p, where, d, end - s, end) for d, s, end in zip(where, sizes, ends)), axis)
        if p.axis is not None:
            p = self._whole(p, where)
        if axis is None:
            return p
        size = p.nodes[0].shape[axis]
        if not isinstance(size, int):
            raise ValueError(f"shard: axis {axis} of {p.nodes[0].shape} has a symbolic size, which is not divided")
        sizes = sizes or even_sizes(size, len(where))
        ends = list(itertools.accumulate(sizes))
        return Parts(tuple(_shrink(v, axis, end - s, end) for v, s, end in zip(p.nodes, sizes, ends)), axis)

    def together(self, parts: Sequence[Parts], axis: int, where: Devices) -> list[Parts]:
        """All divided along one axis, as the first that is."""
        sizes = next((p.sizes for p in parts if p.axis == axis and p.outer == 1), None)
        return [self.aligned(p, axis, where, sizes) for p in parts]

    def _whole(self, p: Parts, where: Devices) -> Parts:
        flat = p.outer != 1
        if flat:
            shapes = ((p.outer, numel_max(v.shape) // p.outer) for v in p.nodes)
            p = Parts(tuple(UOp(Ops.RESHAPE, v.dtype, (v,), shape) for v, shape in zip(p.nodes, shapes)), 1)
        p = Parts(tuple(map(kept, p.nodes)), p.axis)
        nodes = tuple(self.gathered(p, where, d) for d in where)
        if flat:
            nodes = tuple(UOp(Ops.RESHAPE, v.dtype, (v,), (numel_max(v.shape),)) for v in nodes)
        return Parts(nodes)

    def _copied(self, u: UOp, p: Parts) -> Parts:
        source, target, axis = u.arg.source, u.arg.target, u.arg.axis
        if source == target:
            return self.aligned(p, axis, target, u.arg.sizes or None)
        divided = range(len(target)) if axis is not None else ()
        sizes = u.arg.sizes or None
        if len(source) == len(target) > 1 and axis is not None and p.axis == axis and p.sizes == sizes:
            return Parts(tuple(self.move(v, a, b) for v, a, b in zip(p.nodes, source, target)), axis)
        if axis is not None and p.axis is None:
            at = [source.index(d) if d in source else 0 for d in target]
            pieces = [self.aligned(Parts((p.nodes[i],) * len(target)), axis, target, sizes) for i in at]
            moved = (self.move(x.nodes[k], source[i], d) for k, (x, i, d) in enumerate(zip(pieces, at, target)))
            return Parts(tuple(moved), axis)
        p = Parts(tuple(map(kept, p.nodes)), p.axis, p.outer)
        if p.axis is None:
            at = [source.index(d) if d in source else 0 for d in target]
            nodes = tuple(self.move(p.nodes[i], source[i], d) for i, d in zip(at, target))
        else:
            nodes = tuple(self.gathered(p, source, d) for d in target)
        return self.aligned(Parts(nodes), axis, target, sizes) if divided else Parts(nodes)

    # -- operations on parts ------------------------------------------------------------------------------------------
    def _elementwise(self, u: UOp, where: Devices, src: list[Parts]) -> Parts:
        axis = next(p.axis for p in src if p.axis is not None)
        shaped = iter(self.together([p for p in src if p.nodes[0].shape], axis, where))
        return self._each(u, [next(shaped) if p.nodes[0].shape else p for p in src], axis)

    def reshape(self, u: UOp, where: Devices, src: list[Parts]) -> Parts | None:
        """The axis stays one where as much lies before it, and the new axis there can be divided alike."""
        (p,) = src
        assert p.axis is not None
        before = p.outer if p.outer != 1 else size_prod(u.src[0].shape[: p.axis])
        sizes, total = p.sizes, sum(p.sizes)
        for axis, size in enumerate(u.arg):
            if not isinstance(size, int) or not same(size_prod(u.arg[:axis]), before):
                continue
            if size == total == 0 or (total and all(s * size % total == 0 for s in sizes)):
                each = (s * size // max(total, 1) for s in sizes)
                return self._each(u, src, axis, [_with(u.arg, axis, s) for s in each])
        return None

    def permute(self, u: UOp, where: Devices, src: list[Parts]) -> Parts:
        return self._each(u, src, u.arg.index(src[0].axis))

    def expand(self, u: UOp, where: Devices, src: list[Parts]) -> Parts | None:
        axis = src[0].axis
        assert axis is not None
        if not same(u.arg[axis], u.src[0].shape[axis]):  # of one element, which one device has
            return None
        return self._each(u, src, axis, [_with(u.arg, axis, s) for s in src[0].sizes])

    def pad(self, u: UOp, where: Devices, src: list[Parts]) -> Parts | None:
        axis = src[0].axis
        assert axis is not None
        return self._each(u, src, axis) if same_sizes(u.arg[axis], (0, 0)) else None

    def shrink(self, u: UOp, where: Devices, src: list[Parts]) -> Parts | None:
        axis = src[0].axis
        assert axis is not None
        if not same_sizes(u.arg[axis], (0, u.src[0].shape[axis])):
            return None
        return self._each(u, src, axis, [_with(u.arg, axis, (0, s)) for s in src[0].sizes])

    def flip(self, u: UOp, where: Devices, src: list[Parts]) -> Parts | None:
        return None if src[0].axis in u.arg else self._each(u, src, src[0].axis)

    def reduce(self, u: UOp, where: Devices, src: list[Parts]) -> Parts:
        here = self._each(u, src, src[0].axis)
        if src[0].axis not in u.arg[1]:
            return here
        op, nothing = u.arg[0], _filled(identity(u.arg[0], u.dtype), u.shape)  # of a device that has no part
        return Parts(self.all_reduced(op, [v if s else nothing for v, s in zip(here.nodes, src[0].sizes)], where))

    def scan(self, u: UOp, where: Devices, src: list[Parts]) -> Parts | None:
        axis = next(p.axis for p in src if p.axis is not None)
        return None if axis == u.arg[1] else self._each(u, self.together(src, axis, where), axis)

    def take(self, u: UOp, where: Devices, src: list[Parts]) -> Parts | None:
        """Of values divided behind the axis that is picked along, and of indices."""
        (x, index), k = src, u.arg
        if x.axis is not None and x.axis > k:
            axis = len(u.src[1].shape) + x.axis - k - 1
            return self._each(u, [x, self.aligned(index, None, where)], axis)
        axis = index.axis if x.axis is None else x.axis
        if x.axis == k or axis is None:
            return None
        if axis < k:  # a shared axis
            return self._each(u, self.together([x, index], axis, where), axis)
        return self._each(u, [x, index], axis) if x.axis is None else None

    def scatter(self, u: UOp, where: Devices, src: list[Parts]) -> Parts | None:
        """Divided along shared axes or behind the places; sums to places also along what is added to them."""
        (x, index, values), (k, op, *_) = src, u.arg
        axes = {p.axis for p in (x, index, values)} - {None}
        shared = next((a for a in sorted(a for a in axes if a is not None) if a < k), None)
        if shared is not None:
            return self._each(u, self.together(src, shared, where), shared)
        behind = x.axis if x.axis is not None else values.axis
        if index.axis is None and behind is not None and behind > k:
            x, values = self.together([x, values], behind, where)
            return self._each(u, [x, index, values], behind)
        if op is not Ops.ADD or x.axis is not None or k not in (index.axis, values.axis):
            return None
        zeros = Parts((_filled(UOp.const(0, u.dtype), u.shape),) * len(where))
        added = self._each(u, [zeros, *self.together([index, values], k, where)], None)
        sums = self.all_reduced(Ops.ADD, added.nodes, where)
        return Parts(tuple(a.alu(Ops.ADD, b) for a, b in zip(x.nodes, sums)))

    def assign(self, u: UOp, where: Devices, src: list[Parts]) -> Parts:
        """Each device writes its part into its memory."""
        place, value, *others = src
        self.check_place(place)
        sizes = None if place.axis is None else place.sizes
        parts = self._each(u, [place, *(self.aligned(p, place.axis, where, sizes) for p in (value, *others))], None)
        outer = u.buffer.arg.spread.outer
        return parts if outer == 0 else Parts(parts.nodes, 0, outer)

    @staticmethod
    def check_place(place: Parts) -> None:
        """ValueError for a view of memory that is not one of each device's part."""
        if not all(map(is_buffer_view, place.nodes)):
            raise ValueError(
                "an update in place of a part along the axis that devices divide, or of a view that does not keep this "
                "axis, is not there: write to all of it, or to what is gathered by .to()"
            )

    # -- all-reduce ---------------------------------------------------------------------------------------------------
    def all_reduced(self, op: Ops, nodes: Sequence[UOp], where: Devices) -> tuple[UOp, ...]:
        """`op` over what the devices have, on each of them: all in the same order, so that all have the same numbers.

        Of little, and between two, each sends all it has to all others. Else around a ring (Patarasuk and Yuan,
        Bandwidth optimal all-reduce algorithms, 2009): each sends two times what it has, less two parts of it.
        """
        nodes, shape = tuple(map(kept, nodes)), nodes[0].shape
        count = size_prod(shape)
        n = len(where)
        if n > 2 and isinstance(count, int) and nodes[0].dtype.nbytes(count) > DIRECT_BYTES and count >= n:
            return self._ring(op, nodes, where, count)
        sums = []
        for d in where:
            total, *rest = (self.move(v, s, d) for v, s in zip(nodes, where))
            for v in rest:
                total = total.alu(op, v)
            sums.append(total)
        return tuple(sums)

    def _ring(self, op: Ops, nodes: Sequence[UOp], where: Devices, count: int) -> tuple[UOp, ...]:
        n = len(where)
        flat = [UOp(Ops.RESHAPE, v.dtype, (v,), (count,)) for v in nodes]
        bounds = [count * k // n for k in range(n + 1)]
        have: list[list[UOp]] = [[] for _ in where]  # of each device, each part
        for k in range(n):
            at = (k + 1) % n
            total = _shrink(flat[at], 0, bounds[k], bounds[k + 1])
            for _ in range(n - 1):
                before, at = at, (at + 1) % n
                arrived = self.move(kept(total), where[before], where[at])
                total = arrived.alu(op, _shrink(flat[at], 0, bounds[k], bounds[k + 1]))
            total = kept(total)
            found = {at: total}
            for _ in range(n - 1):
                before, at = at, (at + 1) % n
                total = found[at] = self.move(total, where[before], where[at])
            for i in range(n):
                have[i].append(found[i])
        return tuple(UOp(Ops.RESHAPE, nodes[0].dtype, (joined(p, 0),), nodes[0].shape) for p in have)


def _filled(value: UOp, shape: Shape) -> UOp:
    """A constant everywhere."""
    return UOp(Ops.EXPAND, value.dtype, (UOp(Ops.RESHAPE, value.dtype, (value,), (1,) * len(shape)),), shape)


def kept(u: UOp) -> UOp:
    """The value in memory: it is sent away, and used here."""
    chain, u = through(u, RENAMING)
    if u.op not in (Ops.BUFFER, Ops.CONTIGUOUS) and not _is_free(u):
        u = UOp(Ops.CONTIGUOUS, u.dtype, (u,))
    for v in reversed(chain):
        u = v.with_sources((u,))
    return u


Rule: TypeAlias = "Callable[[Resolver, UOp, Devices, list[Parts]], Parts | None]"
RULES: dict[Ops, Rule] = {
    Ops.RESHAPE: Resolver.reshape, Ops.PERMUTE: Resolver.permute, Ops.EXPAND: Resolver.expand, Ops.PAD: Resolver.pad,
    Ops.SHRINK: Resolver.shrink, Ops.FLIP: Resolver.flip, Ops.REDUCE: Resolver.reduce, Ops.SCAN: Resolver.scan,
    Ops.TAKE: Resolver.take, Ops.SCATTER: Resolver.scatter, Ops.ASSIGN: Resolver.assign,
}  # fmt: skip
