"""Multi-output fusion: a small kernel joins the first that reads its results, which then stores them too.

A value that several kernels read has memory of its own. Where one of them reads it along rows, or one element for each
of its own, it may as well compute each element there: one launch less, and what both read is read once. So may large
ones whose rows are long enough for a workgroup each: reductions of rows, and what is elementwise made of the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tinyweb.graph.ir import AxisKind, Ops, UOp, size_max, substitute
from tinyweb.graph.schedule.calls import MAX_INPUTS, Call
from tinyweb.graph.schedule.work import LAUNCH, executed

LONG = 256  # elements of a row that are enough for a workgroup, or for a task of a processor's thread


def join(calls: Sequence[Call]) -> list[Call]:
    """The calls, with some whose results have several readers inside of the first of these, if it comes next.

    Both are small, or long rows of the same memory: no time is lost where together they have fewer steps that can be
    done side by side.
    """
    uses = Counter(b for _, buffers in calls for b in buffers)
    known: dict[tuple[UOp, UOp, tuple[int, ...]], UOp | None] = {}
    done: list[Call] = []
    for kernel, buffers in calls:
        if done and any(uses[b] > 2 for b in done[-1][1][: len(done[-1][0].src)]):
            first, others = done[-1]
            every = [*dict.fromkeys((*buffers[: len(kernel.src)], *others[: len(first.src)], *buffers, *others))]
            slots = tuple(map(every.index, (*others, *buffers)))
            key = first, kernel, slots
            if key not in known:
                known[key] = _joined(first, kernel, slots[: len(others)], slots[len(others) :])
            if (both := known[key]) is not None:
                kernel, buffers = both, tuple(every)
                done.pop()
        done.append((kernel, buffers))
    return done


def _joined(first: UOp, then: UOp, slots: tuple[int, ...], others: tuple[int, ...]) -> UOp | None:
    """`first` inside of `then`, with new slots of their parameters; None where they are better apart."""
    elements, more, steps = _elements(first), _elements(then), executed(first)
    small = elements + more + steps + executed(then) <= LAUNCH
    if elements > more or not (small or _are_rows(first, then, slots, others)):
        return None
    if max(slots + others) > MAX_INPUTS or not set(slots).isdisjoint(others[: len(then.src)]):
        return None
    first = _renamed(first, slots, sum(u.op is Ops.RANGE and u.arg.reduce for u in then.toposort()))
    then = _renamed(then, others, 0)
    stores = {s.src[0]: s for s in first.src}
    read: dict[UOp, UOp] = {}
    for u in (*first.toposort(), *then.toposort()):
        if u.op is Ops.LOAD and (store := stores.get(u.src[0])) is not None:
            if u.src[1:] != store.src[1:2] or len(store.src) > 3 or u in store.toposort():
                return None
            read[u] = store.src[2]
    joined = UOp(Ops.SINK, then.dtype, (*substitute(then, read).src, *first.src), then.arg)
    return joined if read and (small or executed(joined) <= steps) else None


def _are_rows(first: UOp, then: UOp, slots: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Whether `first` reduces long rows of memory of which `then` has something for each element: its inner loops."""
    rows, elements = _elements(first), _elements(then)
    read = {slots[u.src[0].arg.slot] for u in first.toposort() if u.op is Ops.LOAD}
    again = {others[u.src[0].arg.slot] for u in then.toposort() if u.op is Ops.LOAD}
    outer = max((r.arg.order for r in first.src[0].src[1].ranges), default=-1)
    inner = [r for s in then.src for r in s.src[1].ranges if r not in first.src[0].src[1].ranges]
    if any(r.arg.order < outer for r in inner):
        return False
    long = LONG * rows <= elements <= LAUNCH * rows and not elements % max(rows, 1)
    return long and not read.isdisjoint(again) and executed(then) == 0 and executed(first) == elements


def _renamed(kernel: UOp, slots: tuple[int, ...], later: int) -> UOp:
    """With new slots, and the numbers of reduced ranges moved up."""
    table: dict[UOp, UOp] = {}
    for u in kernel.toposort():
        if u.op is Ops.PARAM:
            table[u] = u.replace(arg=replace(u.arg, slot=slots[u.arg.slot]))
        elif u.op is Ops.RANGE and u.arg.reduce:
            name = f"r{int(u.arg.name[1:]) + later}"
            table[u] = u.replace(arg=replace(u.arg, name=name, order=u.arg.order + later))
    return substitute(kernel, table)


def _elements(kernel: UOp) -> int:
    """That a kernel stores; too many where some come in order."""
    return sum(
        prod(size_max(r.src[0]) if r.arg.kind is AxisKind.LOOP else LAUNCH for r in s.ranges) for s in kernel.src
    )
