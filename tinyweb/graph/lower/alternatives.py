"""A choice between a gated load and something else becomes a load that has that where its gate is false."""

from __future__ import annotations

from collections import Counter

from tinyweb.graph.ir import Ops, UOp, rebuild
from tinyweb.graph.lower.constructors import is_const, repeated
from tinyweb.graph.symbolic import clauses
from tinyweb.graph.symbolic.compare import negated


def choose_in_loads(sink: UOp) -> UOp:
    """A program's effects with LOADs of (memory, index, gate, otherwise) instead of `gate.where(load, otherwise)`."""
    nodes = sink.toposort()
    users = Counter(s for u in nodes for s in set(u.src))
    idle = _idle(nodes)

    def chosen(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        condition = repeated(u.src[0]) if u.op is Ops.WHERE else None
        if condition is None:
            return None
        for load, other, wanted in ((1, 2, condition), (2, 1, _opposite(condition))):
            if u.src[load].op is not Ops.LOAD or len(u.src[load].src) != 3 or users[u.src[load]] > 1:
                continue
            gate, needed = set(clauses(u.src[load].src[2])), set(clauses(wanted))
            if needed <= gate and gate - needed <= idle:
                zero = is_const(repeated(u.src[other]) or u, 0)
                return src[load] if zero else src[load].replace(src=(*src[load].src, src[other]))
        return None

    return rebuild(nodes, chosen)[sink]


def _opposite(condition: UOp) -> UOp:
    return negated(condition) or condition.logical_not()


def _idle(nodes: list[UOp]) -> set[UOp]:
    """The clauses of all stores' gates: where one is false, nothing that is computed matters."""
    if any(u.op in (Ops.BARRIER, Ops.END) for u in nodes):
        return set()
    gates = [set(clauses(u.src[3])) if len(u.src) > 3 else set() for u in nodes if u.op is Ops.STORE]
    return set.intersection(*gates) if gates else set()
