"""Reductions of which one step counts: what is their identity in all others is computed without a loop."""

from __future__ import annotations

import math

from tinyweb.dtype import dtypes
from tinyweb.graph.ir.axes import identity
from tinyweb.graph.ir.ops import AxisKind, Ops
from tinyweb.graph.ir.pattern import Rule, UPat, rebuild
from tinyweb.graph.ir.uop import UOp
from tinyweb.graph.symbolic.compare import TRUE, clauses
from tinyweb.graph.symbolic.linear import from_linear, isolated


def chosen_step(u: UOp) -> UOp | None:
    """A reduction of what is its identity in all steps of a loop but one, r == e, is that step, where there is one."""
    for r in u.src[1:] if isinstance(u.arg, Ops) else ():
        if r.op is not Ops.RANGE or r.arg.kind is not AxisKind.LOOP:
            continue
        for clause in deciding(u.src[0], identity(u.arg, u.dtype).arg, signed=False):
            if (e := _solved(clause, r)) is not None:
                return _step(u, r, e, clause)
    return None


def _step(u: UOp, r: UOp, e: UOp, clause: UOp) -> UOp:
    """What a reduction is where the loop r is at e, as a clause says; its loads read nothing where it never is."""
    inside = (e >= 0) & (e <= (r.src[0] - 1).cast(e.dtype))
    changed = {r: e.cast(dtypes.index), clause: TRUE}

    def at(n: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if n.op is not Ops.LOAD or r not in n.ranges:
            return changed.get(n)
        return n.with_sources((*src[:2], inside if len(src) == 2 else src[2] & inside))

    body = rebuild(u.src[0].toposort(), at)[u.src[0]]
    neutral = identity(u.arg, u.dtype)
    value = body if {*clauses(inside)} <= {*deciding(body, neutral.arg, signed=False)} else inside.where(body, neutral)
    value = value + 0.0 if u.arg is Ops.ADD and u.dtype.is_float else value  # no sum is -0.0
    rest = tuple(o for o in u.src[1:] if o is not r)
    return u.replace(src=(value, *rest)) if rest else value


def deciding(u: UOp, neutral: float | int | bool, signed: bool = True) -> list[UOp]:
    """Conditions each of which, where it is false, makes a value `neutral`; 0 is +0.0, where its sign counts."""
    if u.op is Ops.LOAD:
        own = [u] if u.dtype is dtypes.bool and not neutral else []
        return [*own, *clauses(u.src[2])] if len(u.src) > 2 and neutral == 0 else own
    if u.dtype is dtypes.bool and not neutral:
        return [d for c in clauses(u) for d in (deciding(c, neutral) if c.op is Ops.LOAD else [c])]
    signed = signed and u.dtype.is_float
    if u.op is Ops.WHERE and u.src[2].op is Ops.CONST and u.src[2].arg == neutral:
        minus_zero = signed and neutral == 0 and math.copysign(1.0, u.src[2].arg) < 0
        return [] if minus_zero else [*clauses(u.src[0]), *deciding(u.src[1], neutral, signed)]
    if neutral == 0 and (u.op is Ops.CAST or (u.op is Ops.NEG and not signed)):
        return deciding(u.src[0], 0, signed)
    if u.op is Ops.MUL and neutral == 0:
        a, b = (deciding(s, 0, signed) for s in u.src)
        # zero times an infinity is none
        return [c for c in a if c in b] if u.dtype.is_float else a + b
    return []


def _solved(clause: UOp, r: UOp) -> UOp | None:
    """e where an equation says that the loop r is at e, and e does not vary with r."""
    if clause.op is not Ops.EQUAL or r not in clause.ranges:
        return None
    parts, like = isolated(clause.src[0], clause.src[1], r), clause.src[0].dtype
    if parts is None or parts[0] not in (1, -1) or r.vmax > like.max:
        return None
    k, terms, constant = parts
    return from_linear({t: -k * n for t, n in terms.items()}, -k * constant, like)


reductions: list[Rule] = [(UPat(Ops.REDUCE, name="u"), chosen_step)]
