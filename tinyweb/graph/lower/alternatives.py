"""A choice between a gated load and something else becomes a load that has that where its gate is false; one between
two loads of the same memory, as of what is rotated, becomes one load, whose address is chosen."""

from __future__ import annotations

from collections import Counter

from tinyweb.graph.ir import Ops, UOp, rebuild, toposort
from tinyweb.graph.lower.constructors import is_const, repeated
from tinyweb.graph.symbolic import clauses
from tinyweb.graph.symbolic.compare import negated


def choose_in_loads(sink: UOp) -> UOp:
    """A program's effects with LOADs of (memory, index, gate, otherwise) instead of `gate.where(load, otherwise)`, and
    of (memory, condition.where(index, other index), gate) instead of choices between two."""
    nodes = sink.toposort()
    users = Counter(s for u in nodes for s in set(u.src))
    idle = _idle(nodes)

    def chosen(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        condition = repeated(u.src[0]) if u.op is Ops.WHERE else None
        if condition is None:
            return None
        if both := _either(condition, src) if all(users[s] == 1 for s in u.src[1:]) else None:
            return both
        for load, other, wanted in ((1, 2, condition), (2, 1, _opposite(condition))):
            if u.src[load].op is not Ops.LOAD or len(u.src[load].src) != 3 or users[u.src[load]] > 1:
                continue
            gate, needed = set(clauses(u.src[load].src[2])), set(clauses(wanted))
            if needed <= gate and gate - needed <= idle:
                zero = is_const(repeated(u.src[other]) or u, 0)
                return src[load] if zero else src[load].replace(src=(*src[load].src, src[other]))
        return None

    return rebuild(nodes, chosen)[sink]


def _either(condition: UOp, src: tuple[UOp, ...]) -> UOp | None:
    """One load for two of the same memory with gates, where it follows from no memory which of them is chosen."""
    one, other = src[1:]
    loads = one.op is other.op is Ops.LOAD and len(one.src) == len(other.src) == 3
    if not loads or one.src[0] is not other.src[0] or one.shape != other.shape:
        return None
    if any(u.op is Ops.LOAD for u in toposort([condition, one.src[2], other.src[2]])):
        return None
    index = condition.where(one.src[1], other.src[1])
    gate = (condition & one.src[2]) | (_opposite(condition) & other.src[2])
    return one.replace(src=(one.src[0], index, gate))


def _opposite(condition: UOp) -> UOp:
    return negated(condition) or condition.logical_not()


def _idle(nodes: list[UOp]) -> set[UOp]:
    """The clauses of all stores' gates: where one is false, nothing that is computed matters."""
    if any(u.op in (Ops.BARRIER, Ops.END) for u in nodes):
        return set()
    gates = [set(clauses(u.src[3])) if len(u.src) > 3 else set() for u in nodes if u.op is Ops.STORE]
    return set.intersection(*gates) if gates else set()
