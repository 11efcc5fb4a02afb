"""Comparisons of integers, and conjunctions of them (gates).

Canonical comparisons have the innermost term on the left with a positive coefficient, the constant on the right, and no
common factor: 32 > 8·a becomes a < 4, a ≥ 5 becomes not (a < 5).
"""

from __future__ import annotations

from functools import reduce
from math import gcd

from tinyweb.dtype import dtypes
from tinyweb.graph.ir.ops import Ops
from tinyweb.graph.ir.uop import UOp
from tinyweb.graph.symbolic.linear import Terms, add_scaled, fits, from_linear, interval_of, linear, order, proves_less

TRUE, FALSE = UOp.const(True, dtypes.bool), UOp.const(False, dtypes.bool)
MANY_CLAUSES = 32  # longer conjunctions are left as written


def _difference(a: UOp, b: UOp) -> tuple[Terms, int] | None:
    """(terms, limit) with a < b ⟺ Σ terms < limit as numbers; None where wraparound forbids it."""
    (left, c), (right, d) = linear(a), linear(b)
    if not (fits(left, c, a.dtype) and fits(right, d, b.dtype)):
        return None
    terms = dict(left)
    add_scaled(terms, right, -1)
    return terms, d - c


def less(a: UOp, b: UOp) -> UOp | None:
    """The canonical form of a < b on integers; None if it is that already."""
    found = _difference(a, b)
    if found is None:
        return FALSE if a is b else None
    terms, limit = found
    low, high = interval_of(terms)
    if high < limit:
        return TRUE
    if low >= limit:
        return FALSE
    if a.dtype.kind == "index":
        if proves_less(a, b):
            return TRUE
        if proves_less(b - 1, a):
            return FALSE
    terms, limit = _without_small_rest(terms, limit)
    if terms[max(terms, key=order)] < 0:
        # -x < c  ⟺  not (x < 1 - c)
        sides = _two_sides({t: -k for t, k in terms.items()}, 1 - limit, a)
        return None if sides is None else sides[0].alu(Ops.LESS, sides[1]).logical_not()
    sides = _two_sides(terms, limit, a)
    return None if sides is None else sides[0].alu(Ops.LESS, sides[1])


def _without_small_rest(terms: Terms, limit: int) -> tuple[Terms, int]:
    """8·a + v < 32 ⟺ a < 4 where 0 ≤ v < 8; also divides by a common factor."""
    for g in sorted({abs(k) for k in terms.values()} | {gcd(*terms.values())}, reverse=True):
        if g == 1:
            break
        low, high = interval_of({t: k for t, k in terms.items() if k % g})
        shift = low // g
        if high // g != shift:
            continue
        # g·A + rest < limit with low ≤ rest ≤ high, both within [0, g) after the shift
        low, high, bound = low - shift * g, high - shift * g, limit - shift * g
        inside = bound % g
        if high < inside or low >= inside:
            reduced = {t: k // g for t, k in terms.items() if k % g == 0}
            return _without_small_rest(reduced, bound // g + (1 if high < inside else 0))
    return terms, limit


def _two_sides(terms: Terms, limit: int, like: UOp) -> tuple[UOp, UOp] | None:
    left = {t: k for t, k in terms.items() if k > 0}
    right = {t: -k for t, k in terms.items() if k < 0}
    if not (fits(left, 0, like.dtype) and fits(right, limit, like.dtype)):
        return None
    return from_linear(left, 0, like.dtype), from_linear(right, limit, like.dtype)


def equal(a: UOp, b: UOp) -> UOp | None:
    """The canonical form of a == b on integers; None if it is that already."""
    if a is b:
        return TRUE
    if a.vmax < b.vmin or b.vmax < a.vmin:
        return FALSE
    found = _difference(a, b)
    if found is None:
        return None
    terms, constant = found
    low, high = interval_of(terms)
    if not low <= constant <= high:
        return FALSE
    if low == high:
        return TRUE
    if a.dtype.kind == "index" and (proves_less(a, b) or proves_less(b, a)):
        return FALSE
    g = gcd(*terms.values())
    if constant % g:
        return FALSE
    terms, constant = {t: k // g for t, k in terms.items()}, constant // g
    if terms[max(terms, key=order)] < 0:
        terms, constant = {t: -k for t, k in terms.items()}, -constant
    sides = _two_sides(terms, constant, a)
    return None if sides is None else sides[0].equal(sides[1])


def less_than_quotient(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """x // c < d ⟺ x < c·d for constants c > 0 and d."""
    product = c.arg * d.arg
    return x.alu(Ops.LESS, product) if c.arg > 0 and x.dtype.min <= product <= x.dtype.max else None


# -- conjunctions ----------------------------------------------------------------------------------------------------
def clauses(gate: UOp) -> list[UOp]:
    """The terms of a conjunction, each once."""
    out: dict[UOp, None] = {}
    stack = [gate]
    while stack:
        u = stack.pop()
        if u.op is Ops.AND and u.dtype.kind == "bool":
            stack.extend(reversed(u.src))
        else:
            out[u] = None
    return list(out)


def negated(u: UOp) -> UOp | None:
    """y where u is not y."""
    return u.src[0] if u.op is Ops.XOR and u.dtype.kind == "bool" and u.src[1] is TRUE else None


def limits(clause: UOp) -> tuple[UOp, int | None, int | None] | None:
    """(x, low, high) where the clause says low ≤ x ≤ high of an integer x; None for other clauses."""
    inner = negated(clause)
    u = clause if inner is None else inner
    if len(u.src) != 2 or not u.src[0].dtype.is_int or u.src[1].op is not Ops.CONST:
        return None
    x, c = u.src[0], int(u.src[1].arg)
    if u.op is Ops.LESS:
        return (x, None, c - 1) if inner is None else (x, c, None)
    return (x, c, c) if u.op is Ops.EQUAL and inner is None else None


def conjunction(gate: UOp) -> UOp | None:
    """A conjunction without repeated, implied or contradicting clauses, in canonical order."""
    found = clauses(gate)
    if len(found) > MANY_CLAUSES:
        return None
    if FALSE in found:
        return FALSE
    intervals: dict[UOp, tuple[int, int]] = {}
    kept: dict[UOp, None] = {}
    for clause in found:
        if negated(clause) in found:
            return FALSE
        about = limits(clause)
        if about is None:
            kept[clause] = None
            continue
        x, low, high = about
        a, b = intervals.get(x, x.bounds)
        intervals[x] = (a if low is None else max(a, low), b if high is None else min(b, high))
    for x, (a, b) in intervals.items():
        if a > b:
            return FALSE
        if a == b:
            kept[x.equal(a)] = None
            continue
        if a > x.vmin:
            kept[(x < a).logical_not()] = None
        if b < x.vmax:
            kept[x < b + 1] = None
    kept.pop(TRUE, None)
    return reduce(lambda p, q: p & q, sorted(kept, key=order)) if kept else TRUE
