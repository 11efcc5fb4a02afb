"""Which tensors share memory: views of each other have one Storage, everything computed is a value of its own."""

from __future__ import annotations

import itertools
from collections.abc import Container
from typing import TYPE_CHECKING, Self
from weakref import ref

from tinyweb.graph.ir import Ops, Shape, UOp, movement, substitute
from tinyweb.graph.ir.on_node import on_node
from tinyweb.graph.schedule.indexing import unbound
from tinyweb.graph.schedule.views import view_base, walk
from tinyweb.graph.symbolic import evaluate

if TYPE_CHECKING:
    from tinyweb.graph.ir import Size

_numbers, _leaf_ids = itertools.count(), itertools.count()
_MARKS = (Ops.LEAF, Ops.CUSTOM_GRADIENT)  # values of their own that are what their first source is


class Storage:
    """What tensors that are views of each other have in common. `memory` is the BUFFER that updates in place write to,
    None before there is one. Storages are numbered in the order they begin."""

    __slots__ = ("memory", "number")

    def __init__(self, memory: UOp | None = None):
        self.memory, self.number = memory, next(_numbers)


class Value:
    """What a tensor is to those who compute it and change its memory: a node on a device, and what it shares with its
    views."""

    __slots__ = ("__weakref__", "device", "requires_grad", "storage", "uop")
    uop: UOp
    storage: Storage  # what it shares with its views
    device: str
    requires_grad: bool  # whether backward() gives it a grad

    def _broadcast_to(self, shape: Shape) -> Self:
        raise NotImplementedError


class _Entry(ref[Value]):
    """A live tensor in the tables below, which it leaves when its last reference goes."""

    __slots__ = ("key",)
    key: int


_live: dict[int, _Entry] = {}
_beside: dict[int, _Entry] = {}  # what may not be views of its storage's memory: few, and every replay looks at them


def _leave(entry: _Entry, live: dict[int, _Entry] = _live, beside: dict[int, _Entry] = _beside) -> None:
    if live.get(entry.key) is entry:
        del live[entry.key]
        beside.pop(entry.key, None)


def next_number() -> int:
    """The number that storages from now on are not below."""
    return next(_numbers)


def live_values() -> list[Value]:
    """Every tensor somebody holds: who reads memory that is about to change, and who waits for gradients."""
    return [t for entry in list(_live.values()) if (t := entry()) is not None]


def tensors_beside_memory() -> list[Value]:
    """Live tensors that are not simply (views of) their own storage's memory: pending, or values with a history."""
    found = []
    for key, entry in list(_beside.items()):
        if (t := entry()) is not None:
            _beside.pop(key, None)  # before it is looked at: another thread may be changing it
            if view_base(t.uop) is not t.storage.memory:
                _beside[key] = entry
                found.append(t)
    return found


def readers_beside_memory() -> list[Value]:
    """Those of `tensors_beside_memory` that may read memory, if only for gradients: constants do not."""
    if not _beside:  # in most calls of what is recorded
        return []
    return [t for t in tensors_beside_memory() if _reads_memory(t.uop)]


def _reads_memory(u: UOp) -> bool:
    return on_node(u, "reads_memory", lambda x: x.op is Ops.BUFFER or any(map(_reads_memory, x.src)))


def remember(t: Value, beside: bool = True) -> None:
    """`t` is live from now until its last reference goes. `beside`: unless it is a view of its storage's memory."""
    entry = _live[id(t)] = _Entry(t, _leave)
    entry.key = id(t)
    if beside:
        _beside[entry.key] = entry


def change(t: Value, node: UOp) -> None:
    """Make `node` what `t` is."""
    t.uop = node
    _beside[id(t)] = _live[id(t)]


def aliases(storage: Storage, base: UOp) -> list[Value]:
    """The live tensors that are views of `base` and share its storage."""
    return [t for t in live_values() if t.storage is storage and view_base(t.uop) is base]


def memory_view(u: UOp) -> UOp | None:
    """A value as a view of a BUFFER, if it lies in memory already."""
    base = view_base(u)
    while base.op in _MARKS:
        u = substitute(u, {base: base.src[0]})
        base = view_base(u)
    return u if base.op is Ops.BUFFER else None


def in_memory(u: UOp) -> bool:
    """Whether a value lies in memory already, if only as a view of it."""
    base = view_base(u)
    while base.op in _MARKS:
        base = view_base(base.src[0])
    return base.op is Ops.BUFFER


def owns_memory(t: Value) -> bool:
    """Whether `t` is a view of its own storage's memory as it is now."""
    base = view_base(t.uop)
    if base.op is Ops.CUSTOM_GRADIENT:
        base = view_base(base.src[0])
    return t.storage.memory is base


def drop_history(t: Value) -> None:
    """Make `t` and its views plain memory, if they are memory: gradients end there."""
    base = view_base(t.uop)
    if base.op is Ops.CUSTOM_GRADIENT and in_memory(base):
        mine = aliases(t.storage, base)
        for x, u in zip(mine, replace_all([x.uop for x in mine], {base: base.src[0]}), strict=True):
            change(x, u)


def with_history(memory: UOp, value: UOp) -> UOp:
    """Memory that holds a value; gradients go on from it to what the value was computed from."""
    arriving = leaf(movement.full(0, value.dtype, value.shape))
    return UOp(Ops.CUSTOM_GRADIENT, value.dtype, (memory, arriving, value, arriving))


def leaf(value: UOp) -> UOp:
    """`value` as a value of its own: gradients tell apart equal constants, updates in place equal memory."""
    return UOp(Ops.LEAF, value.dtype, (value,), next(_leaf_ids))


def shaped(buffer: UOp, shape: Shape, values: dict[str, int]) -> UOp:
    """The first elements of a BUFFER as an array of `shape`; symbolic sizes take their maximum in memory."""
    return movement.shaped(buffer, tuple(bound_size(s, values) for s in shape))


def evaluate_size(s: Size, values: dict[str, int]) -> int:
    """A size with the variables' values put in."""
    return s if isinstance(s, int) else int(evaluate(s, {v: values[v.arg[0]] for v in s.variables()}))


def bound_size(s: Size, values: dict[str, int]) -> Size:
    """A size that remembers the values of its variables, as far as they have any."""
    if isinstance(s, int):
        return s
    s = unbound(s)
    return substitute(s, {v: v.bind(values[v.arg[0]]) for v in s.variables() if v.arg[0] in values})


def replaced(update: UOp) -> UOp:
    """The version of its memory that an ASSIGN replaces: the BUFFER, or the ASSIGN before it."""
    return view_base(update.src[0])


def replace_all(roots: list[UOp], table: dict[UOp, UOp]) -> list[UOp]:
    """The roots with nodes replaced, outermost first; what replaces is not looked into."""
    return replace_versions(roots, table, ())


def replace_versions(roots: list[UOp], table: dict[UOp, UOp], gone: Container[UOp]) -> list[UOp]:
    """`replace_all`; what only gradients ask for is dropped where it reads versions of memory that are `gone`."""
    if all(r in table for r in roots):
        return [table[r] for r in roots]
    done, lost = dict(table), set[UOp]()
    for u in walk(roots, table, values_only=False):
        if u in done:
            continue
        if u in gone or (lost and not lost.isdisjoint(u.src)):
            lost.add(u)
        if u in lost and u.op is Ops.CUSTOM_GRADIENT and u.src[0] not in lost:
            lost.discard(u)
            done[u] = done[u.src[0]]
            continue
        done[u] = u.with_sources(tuple([done[s] for s in u.src]))
    return [done[r] for r in roots]
