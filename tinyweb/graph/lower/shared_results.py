"""What neighbours would compute alike of several sums that they have exchanged, each of them computes for another sum.

Behind an exchange in registers every thread has all of the sums, and the first stores what follows from them, a sigmoid
of each score, while the others compute the same. So the first few threads choose a sum each, and what follows is
computed, and stored, for this one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import ELEMENTWISE, Neighbours, Ops, Space, UOp, below, lane_count, substitute
from tinyweb.graph.lower.constructors import both, index_const, tile_index
from tinyweb.graph.lower.groups import free_loops
from tinyweb.graph.symbolic import clauses, simplify

LEAST = 8  # operations that follow from each sum, from which it is worth choosing one


def share_results(stores: Sequence[UOp], buffer: Callable[[Space, DType, int], UOp]) -> list[UOp]:
    """The stores, those of many operations divided among neighbours; `buffer` makes memory."""
    return [_shared(s, buffer) if s.op is Ops.STORE and len(s.src) == 4 and s.arg is None else s for s in stores]


def _shared(store: UOp, buffer: Callable[[Space, DType, int], UOp]) -> UOp:
    memory, index, value, gate = store.src
    nodes = list(below([value], lambda u: u.op in ELEMENTWISE or _reads_argument(u)))
    sums = [u for u in nodes if u.op is Ops.SUBGROUP and isinstance(u.arg, Neighbours)]
    known = all(not u.lanes or u in sums or u.op in ELEMENTWISE or _reads_argument(u) or not u.src[1:] for u in nodes)
    if not sums or not known or memory.dtype.bits < 8:
        return store
    count = sums[0].arg.count
    thread = UOp(Ops.SPECIAL, dtypes.index, (index_const(count),), ("thread", 0))
    places: dict[UOp, UOp] = {}
    taken = 1
    for r in index.lanes:
        if taken * lane_count(r) <= count and any(r in u.lanes for u in sums):
            places[r] = simplify(thread // taken % lane_count(r))
            taken *= lane_count(r)
    first, terms = simplify(thread.equal(0)), clauses(gate)
    work = sum(u.op in ELEMENTWISE and u.dtype.kind not in ("index", "bool") for u in nodes)
    if taken == 1 or work < LEAST * len(sums) or first not in terms:
        return store
    table = places | {u: _chosen(u, places, buffer) for u in sums}
    among = None if taken == count else simplify(thread < taken)
    for term in terms:
        among = both(among, substitute(term, table)) if term is not first else among
    return memory.store(substitute(index, table), substitute(value, table), among)


def _reads_argument(u: UOp) -> bool:
    return u.op is Ops.LOAD and u.src[0].buffer.op is Ops.PARAM


def _chosen(u: UOp, places: dict[UOp, UOp], buffer: Callable[[Space, DType, int], UOp]) -> UOp:
    """Of the sums in a tile the one at a thread's place."""
    index, size = tile_index(u.lanes)
    memory = buffer(Space.REGISTER, u.dtype, size)
    held = memory.after(memory.after(*free_loops(u)).store(index, u))
    axes = [r for r in u.lanes if r in places]
    steps = [{r: index_const(i) for r, i in zip(axes, at)} for at in product(*(range(lane_count(r)) for r in axes))]
    chosen, *others = [held.load(simplify(substitute(index, at))) for at in steps]
    for at, load in zip(steps[1:], others):
        here = None
        for r, i in at.items():
            here = both(here, places[r].equal(i))
        chosen = load if here is None else simplify(here).where(load, chosen)
    return chosen
