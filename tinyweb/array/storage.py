"""Which tensors share memory: views of each other have one Storage, everything computed is a value of its own."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tinyweb.graph.ir import Ops, Shape, UOp, size_max, substitute
from tinyweb.graph.schedule.views import view_base
from tinyweb.graph.symbolic import evaluate

if TYPE_CHECKING:
    from tinyweb.array.core import TensorCore
    from tinyweb.graph.ir import Size

_numbers, _leaf_ids = itertools.count(), itertools.count()
_live: WeakValueDictionary[int, TensorCore] = WeakValueDictionary()


class Storage:
    """What tensors that are views of each other have in common. `memory` is the BUFFER that updates in place write to,
    None before there is one. Storages are numbered in the order they begin."""

    __slots__ = ("memory", "number")

    def __init__(self, memory: UOp | None = None):
        self.memory, self.number = memory, next(_numbers)


def next_number() -> int:
    """The number that storages from now on are not below."""
    return next(_numbers)


def live_tensors() -> list[TensorCore]:
    """Every tensor somebody holds: who reads memory that is about to change, and who waits for gradients."""
    return list(_live.values())


def remember(t: TensorCore) -> None:
    """`t` is live from now until its last reference goes."""
    _live[id(t)] = t


def aliases(storage: Storage, base: UOp) -> list[TensorCore]:
    """The live tensors that are views of `base` and share its storage."""
    return [t for t in _live.values() if t.storage is storage and view_base(t.uop) is base]


def memory_view(u: UOp) -> UOp | None:
    """A value as a view of a BUFFER, if it lies in memory already."""
    base = view_base(u)
    while base.op is Ops.LEAF:
        u = substitute(u, {base: base.src[0]})
        base = view_base(u)
    return u if base.op is Ops.BUFFER else None


def in_memory(u: UOp) -> bool:
    """Whether a value lies in memory already, if only as a view of it."""
    base = view_base(u)
    return base.op is Ops.BUFFER or (base.op is Ops.LEAF and in_memory(base.src[0]))


def leaf(value: UOp) -> UOp:
    """`value` as a value of its own: gradients tell apart equal constants, updates in place equal memory."""
    return UOp(Ops.LEAF, value.dtype, (value,), next(_leaf_ids))


def shaped(buffer: UOp, shape: Shape, values: dict[str, int]) -> UOp:
    """The first elements of a BUFFER as an array of `shape`; symbolic sizes take their maximum in memory."""
    held = tuple(size_max(s) for s in shape)
    view = buffer if held == buffer.shape else UOp(Ops.RESHAPE, buffer.dtype, (buffer,), held)
    if held != tuple(shape):
        view = UOp(Ops.SHRINK, buffer.dtype, (view,), tuple((0, bound_size(s, values)) for s in shape))
    return view


def evaluate_size(s: Size, values: dict[str, int]) -> int:
    """A size with the variables' values put in."""
    return s if isinstance(s, int) else int(evaluate(s, {v: values[v.arg[0]] for v in s.variables()}))


def bound_size(s: Size, values: dict[str, int]) -> Size:
    """A size that remembers the values of its variables, as far as they have any."""
    if isinstance(s, int):
        return s
    return substitute(s, {v: v.bind(values[v.arg[0]]) for v in s.variables() if v.arg[0] in values})


def replaced(update: UOp) -> UOp:
    """The version of its memory that an ASSIGN replaces: the BUFFER, or the ASSIGN before it."""
    return view_base(update.src[0])


def walk(roots: Iterable[UOp], ends: Container[UOp]) -> list[UOp]:
    """Every node below `roots`, sources first; what only lies below `ends` is left out."""
    done: dict[UOp, None] = {}
    todo = [(u, False) for u in roots]
    while todo:
        u, leaving = todo.pop()
        if leaving:
            done[u] = None
        elif u not in done:
            todo.append((u, True))
            if u not in ends:
                todo.extend((s, False) for s in u.src if s not in done)
    return list(done)


def replace_all(roots: list[UOp], table: dict[UOp, UOp]) -> list[UOp]:
    """The roots with nodes replaced, outermost first; what replaces is not looked into."""
    done = dict(table)
    for u in walk(roots, table):
        if u not in done:
            src = tuple(done[s] for s in u.src)
            done[u] = u if src == u.src else u.replace(src=src)
    return [done[r] for r in roots]
