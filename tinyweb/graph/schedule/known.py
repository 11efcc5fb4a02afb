"""Schedules that are known: a graph that differs from an earlier one only in which memory it reads, in the numbers of
its updates and in the values of its bound variables has the same kernels in the same order. A function that is called
again and again without `jit` is scheduled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinyweb.dtype import DType
from tinyweb.graph.ir import BufferArg, Ops, Ordered, UOp, toposort
from tinyweb.graph.schedule.calls import KernelCall
from tinyweb.graph.schedule.indexing import unbound
from tinyweb.graph.schedule.memory_plan import MemoryPlan
from tinyweb.graph.schedule.spread import STRIPPED
from tinyweb.graph.schedule.views import walk
from tinyweb.graph.target import Target

MOST, MOST_NODES = 256, 1 << 17  # schedules that are kept; nodes of their graphs and kernels: some 100 MB

Parts = tuple[Sequence[KernelCall], Sequence[UOp], MemoryPlan]  # of a Schedule


@dataclass(frozen=True)
class _Known:
    """A schedule with its buffers as numbers: first those of the graph, then new ones."""

    calls: list[tuple[UOp, tuple[int, ...]]]
    results: list[int]
    pool_of: dict[int, int]
    pool_bytes: tuple[int, ...]
    made: list[tuple[int, DType]]  # size and type of each new one
    nodes: int

    def of(self, given: Sequence[UOp], new: Callable[[int, DType], UOp]) -> Parts:
        buffers = [*given, *(new(size, dtype) for size, dtype in self.made)]
        calls = [KernelCall(kernel, tuple(buffers[i] for i in used)) for kernel, used in self.calls]
        pool_of = {buffers[i]: pool for i, pool in self.pool_of.items()}
        return calls, [buffers[i] for i in self.results], MemoryPlan(pool_of, self.pool_bytes)


_known: dict[tuple[UOp, Target | type[Target]], _Known] = {}  # the one used longest ago first


def known(
    roots: Sequence[UOp],
    target: Target | type[Target],
    work_out: Callable[[Sequence[UOp]], Parts],
    new: Callable[[int, DType], UOp],
) -> Parts:
    """What `work_out` makes for a target of `roots` without what only gradients ask for; for a graph of the same form
    what it made before, with buffers of `new(size, dtype)`."""
    graph, nodes, given = _form(roots)
    found = _known.pop((graph, target), None)
    if found is None:  # of the form: no other copy of the graph is made
        found = _recorded(work_out(graph.src), [_placeholder(i, b) for i, b in enumerate(given)], nodes)
    if found.nodes <= MOST_NODES:
        _known[graph, target] = found
    for oldest in list(_known):  # a copy: another thread may be changing it
        if len(_known) <= MOST and sum(one.nodes for one in list(_known.values())) <= MOST_NODES:
            break
        _known.pop(oldest, None)
    return found.of(given, new)


def _recorded(parts: Parts, given: Sequence[UOp], nodes: int) -> _Known:
    calls, results, memory = parts
    number = {b: i for i, b in enumerate(given)}
    for buffers in (*(c.buffers for c in calls), results):
        for b in buffers:
            number.setdefault(b, len(number))
    kernels = {c.kernel for c in calls}
    return _Known(
        [(c.kernel, tuple(number[b] for b in c.buffers)) for c in calls],
        [number[b] for b in results],
        {number[b]: pool for b, pool in memory.pool_of.items()},
        memory.pool_bytes,
        [(b.arg.size, b.dtype) for b in list(number)[len(given) :]],
        nodes + len(toposort(kernels)),
    )


def _form(roots: Sequence[UOp]) -> tuple[UOp, int, list[UOp]]:
    """The graph without what only gradients ask for, with its memory and updates numbered in the order they are come
    upon and its variables unbound; how many nodes it has; and its memory."""
    done: dict[UOp, UOp] = {}
    given: list[UOp] = []
    updates = 0
    for u in walk(roots, ()):
        arg = u.arg
        if u.op in STRIPPED or u.op is Ops.BIND:
            done[u] = done[u.src[0]]
            continue
        if u.op is Ops.BUFFER:
            assert not u.src and arg.spread is None, "several devices have schedules of their own"
            done[u] = _placeholder(len(given), u)
            given.append(u)
            continue
        if u.op is Ops.ASSIGN:
            updates += 1
            arg = Ordered(arg.axis, updates) if isinstance(arg, Ordered) else updates
        elif isinstance(arg, tuple | UOp) and u.op is not Ops.VARIABLE:
            arg = _unbound(arg)
        src = tuple([done[s] for s in u.src])
        done[u] = u if src == u.src and arg is u.arg else UOp(u.op, u.dtype, src, arg)
    return UOp(Ops.SINK, src=tuple(done[r] for r in roots)), len(done), given


def _placeholder(i: int, buffer: UOp) -> UOp:
    """A BUFFER that stands for another by its number."""
    return UOp(Ops.BUFFER, buffer.dtype, (), BufferArg(buffer.arg.space, -1 - i, buffer.arg.size))


def _unbound(arg: Any) -> Any:
    """The argument of a node, sizes in it without the values of variables."""
    if isinstance(arg, UOp):
        return unbound(arg)
    if not isinstance(arg, tuple):
        return arg
    parts = tuple([_unbound(part) for part in arg])
    return parts if any(a is not b for a, b in zip(parts, arg)) else arg
