"""Applying the rules: to a graph, to an expression under a gate, and with ranges put in."""

from __future__ import annotations

from collections.abc import Mapping

from tinyweb.dtype import dtypes
from tinyweb.graph.ir.ops import Ops
from tinyweb.graph.ir.pattern import graph_rewrite, substitute
from tinyweb.graph.ir.uop import Size, UOp
from tinyweb.graph.symbolic.compare import clauses, limits
from tinyweb.graph.symbolic.linear import Terms, from_linear, interval_of, linear
from tinyweb.graph.symbolic.rules import symbolic


def simplify(root: UOp) -> UOp:
    """The canonical, simpler graph of equal value. Time is linear in the nodes not simplified before.

    What has been done to memory that is read stays as it is: others read it, too, and it is done once.
    """
    return graph_rewrite(root, symbolic, keep="_simple", leaf=Ops.AFTER)


def substitute_ranges(expr: UOp, values: Mapping[UOp, Size]) -> UOp:
    """`expr` with ranges (or other nodes) replaced by numbers or expressions, simplified."""
    return simplify(substitute(expr, {r: r.lift(v) for r, v in values.items()}))


# -- validity --------------------------------------------------------------------------------------------------------
def simplify_given(expr: UOp, gate: UOp) -> UOp:
    """`expr` simplified for the case that the bool node `gate` holds; elsewhere the result may differ from `expr`.

    Of a gate itself, the part that another gate leaves open: simplify_given(i < 4 and j < 3, i < 2) is j < 3.
    """
    expr, gate = simplify(expr), simplify(gate)
    known = clauses(gate)
    sums: dict[UOp, tuple[int, int]] = {}
    for clause in known:
        if (about := limits(clause)) is not None:
            x, low, high = about
            a, b = sums.get(x, x.bounds)
            sums[x] = (a if low is None else max(a, low), b if high is None else min(b, high))
    # a clause that occurs in the expression is true there
    expr = _with_facts(expr, known)
    narrowed = _narrow(sums)
    if narrowed is None:
        return expr  # the gate never holds
    below = set(expr.toposort())
    atoms = {x: span for x, span in narrowed.items() if span != x.bounds and x in below}
    if atoms:
        stand_ins = {
            x: UOp(Ops.VARIABLE, x.dtype, (), (f" given {i}", *span)) for i, (x, span) in enumerate(atoms.items())
        }
        inner = simplify(substitute(expr, stand_ins))
        expr = simplify(substitute(inner, {v: x for x, v in stand_ins.items()}))
    for x, span in sums.items():
        if len(linear(x)[0]) > 1:
            expr = _within(expr, x, span)
    return expr


def _with_facts(expr: UOp, known: list[UOp]) -> UOp:
    true, facts = UOp.const(True, dtypes.bool), {}
    for clause in known:
        facts[clause] = true
        facts[simplify(clause.logical_not())] = UOp.const(False, dtypes.bool)
    facts.pop(true, None)
    return simplify(substitute(expr, {u: v for u, v in facts.items() if u.op is not Ops.CONST}))


def _narrow(sums: dict[UOp, tuple[int, int]]) -> dict[UOp, tuple[int, int]] | None:
    """Bounds of the single terms that follow from bounds of sums; None if they contradict each other."""
    out: dict[UOp, tuple[int, int]] = {}
    for _ in range(3):
        before = dict(out)
        for x, (low, high) in sums.items():
            if low > high:
                return None
            terms: Terms = linear(x)[0]
            spans = {t: out.get(t, t.bounds) for t in terms}
            for t, k in terms.items():
                # low ≤ k·t + others ≤ high
                others = [sorted((n * spans[s][0], n * spans[s][1])) for s, n in terms.items() if s is not t]
                least, most = low - sum(o[1] for o in others), high - sum(o[0] for o in others)
                a, b = (-(-least // k), most // k) if k > 0 else (-(most // -k), -least // -k)
                spans[t] = out[t] = (max(spans[t][0], a), min(spans[t][1], b))
                if spans[t][0] > spans[t][1]:
                    return None
        if out == before:
            break
    return out


def _within(expr: UOp, x: UOp, bounds: tuple[int, int]) -> UOp:
    """`expr` where the sum x lies in `bounds`: one term is expressed by the others and a bounded stand-in."""
    terms, constant = linear(x)
    best, cost = expr, _divisions(expr)
    for t, k in terms.items():
        if abs(k) != 1 or cost == 0 or interval_of(terms, constant) == bounds:
            continue
        stand_in = UOp(Ops.VARIABLE, x.dtype, (), (" given", *bounds))
        others = from_linear({s: n for s, n in terms.items() if s is not t}, constant, x.dtype)
        solved = simplify((stand_in - others) * k)
        tried = simplify(substitute(simplify(substitute(expr, {t: solved})), {stand_in: x}))
        if _divisions(tried) < cost:
            best, cost = tried, _divisions(tried)
    return best


def _divisions(expr: UOp) -> int:
    """Nodes that cost: divisions, remainders, comparisons and choices."""
    costly = (Ops.FLOORDIV, Ops.MOD, Ops.WHERE, Ops.LESS, Ops.EQUAL, Ops.MAX)
    return sum(u.op in costly for u in expr.toposort())
