"""What all threads would compute alike of the sums they exchange, one of them computes for the others.

A row's maximum, or its mean and the reciprocal of its deviation, are one number for all threads of the row: putting
together partial results and what follows from them takes as many operations as a thread has for its part of a short
row. So the first thread does it alone, and the others read its result from shared memory, behind one more barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import ELEMENTWISE, Ops, Space, StageArg, UOp, rebuild, specials_of, users
from tinyweb.graph.lower.exchange import in_every_thread
from tinyweb.graph.lower.groups import free_loops
from tinyweb.graph.target import Target

LEAST = 8  # operations of each thread that are worth a barrier
TYPES = frozenset({dtypes.float32, dtypes.int32, dtypes.uint32, dtypes.index, dtypes.bool})


def broadcast(kernel: UOp, target: Target) -> UOp:
    """The kernel with shared memory for values that follow from exchanges alone, where those are worth it."""
    if not target.has_threads or target.subgroups:  # subgroups combine what they have without memory
        return kernel
    nodes = kernel.toposort()
    common = _common(nodes)
    work = sum(_work(u) for u in common)
    if work < LEAST or any(u.dtype not in TYPES for u in common):
        return kernel
    above = users([kernel])
    used = {u: [x for x in above[u] if common.get(x) is not of] for u, of in common.items()}
    if any(x.op is Ops.RANGE for beyond in used.values() for x in beyond):
        return kernel
    first: set[UOp] = set()  # what only the first thread's stores are made of
    shared = {t for of in common.values() for t in of.src[1:]}
    for u in reversed(nodes):
        alike = u.op in ELEMENTWISE and specials_of(u).isdisjoint(shared)
        if alike and all(x in first or _stores(x, u) for x in above[u]):
            first.add(u)
    if all(x in first or _stores(x, u) for u, beyond in used.items() for x in beyond):
        return kernel

    alone: dict[UOp, UOp] = {}  # what the first thread has while it is at it

    def told(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u not in common:
            return None
        of = common[u]
        alone[u] = u.with_sources(tuple(alone[s] if common.get(s) is of else x for s, x in zip(u.src, src)))
        return _shared(alone[u]) if used[u] else None

    return rebuild(nodes, told)[kernel]


def _shared(value: UOp) -> UOp:
    """A value of the first thread, as all read it."""
    word = value.cast(dtypes.uint32) if value.dtype is dtypes.bool else value
    read = UOp(Ops.STAGE, word.dtype, (word,), StageArg(Space.SHARED)).load(UOp.const(0, dtypes.index))
    return read.equal(1) if value.dtype is dtypes.bool else read


def _common(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
    """Nodes that follow from what one exchange has summed, and that exchange: those that follow from several are left
    out, for the first thread goes through a loop of its own behind each.
    """
    found: dict[UOp, UOp] = {}
    waits: set[UOp] = set()  # for sums or memory
    for u in nodes:
        if u.op in (Ops.REDUCE, Ops.STAGE) or not waits.isdisjoint(u.src):
            waits.add(u)
        if free_loops(u):  # what is exchanged in each step of a loop all threads know
            continue
        origin: UOp | None = None
        if u.op is Ops.REDUCE and any(t.op is Ops.SPECIAL for t in u.src[1:]):
            origin = u
        elif u.op in ELEMENTWISE and len(of := {found.get(s) for s in u.src if s in waits}) == 1:
            origin = of.pop()
        if origin is not None and specials_of(u) <= specials_of(origin):
            found[u] = origin
    return found


def _work(u: UOp) -> int:
    """Operations of a thread, about."""
    if u.op is Ops.REDUCE:
        return in_every_thread(prod(int(t.src[0].arg) for t in u.src[1:] if t.op is Ops.SPECIAL))
    return u.dtype not in (dtypes.index, dtypes.bool)


def _stores(x: UOp, u: UOp) -> bool:
    """Whether a node stores a value to one place for all threads, which the first of them does."""
    return x.op is Ops.STORE and specials_of(x.src[1]) <= specials_of(u)
