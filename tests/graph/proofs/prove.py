"""Z3 asked whether two expressions are the same, in the way that answers soonest."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import z3

from tests.graph.proofs.terms import Numbers, Terms, Words, differ
from tests.graph.symbolic.oracle import show
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, substitute, toposort

MANY_CASES = 400  # combinations of values of the variables that are put in one by one


class Unproven(Exception):
    """Z3 found neither a proof nor a counterexample with the effort it was given."""


def is_nonlinear(u: UOp) -> bool:
    """Whether arithmetic on integers is beyond what Z3 decides well: products and divisors that are no constants."""
    if not u.dtype.is_int or len(u.src) != 2:
        return False
    constants = [s.op is Ops.CONST for s in u.src]
    return (u.op is Ops.MUL and not any(constants)) or (u.op in (Ops.FLOORDIV, Ops.MOD) and not constants[1])


def cases(*roots: UOp) -> Iterator[tuple[UOp, ...]]:
    """The expressions with every combination of values of those variables that make them nonlinear (if they are few):
    to prove each is to prove all."""
    nodes = toposort(roots)
    inside: dict[UOp, None] = {}
    for u in nodes:
        if is_nonlinear(u):
            sides = u.src if u.op is Ops.MUL else u.src[1:]
            small = [[v for v in s.toposort() if v.op in (Ops.VARIABLE, Ops.RANGE)] for s in sides]
            # one linear side is enough: the one with fewer combinations
            for v in min(small, key=lambda vs: prod(1 + v.vmax - v.vmin for v in vs)):
                inside.update(dict.fromkeys(n for n in v.toposort() if n.op in (Ops.VARIABLE, Ops.RANGE)))
    chosen = [v for v in nodes if v in inside]
    if prod(1 + v.vmax - v.vmin for v in chosen) > MANY_CASES:
        yield roots
        return
    for values in product(*(range(v.vmin, v.vmax + 1) for v in chosen)):
        known = dict(zip(chosen, values))
        if all(v.op is Ops.VARIABLE or known[v] < _size(v.src[0], known) for v in chosen):
            table = {v: UOp.const(n, v.dtype) for v, n in known.items()}
            yield tuple(substitute(r, table) for r in roots)


def _size(size: UOp, known: dict[UOp, int]) -> int:
    from tinyweb.graph.symbolic import evaluate

    return int(evaluate(size, {v: n for v, n in known.items() if v in set(size.toposort())}))


def needs_words(*roots: UOp) -> bool:
    """Whether bits, floats or wrap-around come in, which bit-vectors describe and numbers describe badly."""
    bits = (Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.BITCAST, Ops.CAST)
    return any(
        u.dtype.is_float or (u.dtype.kind in ("int", "uint")) or (u.op in bits and u.dtype.kind == "index")
        for u in toposort(roots)
    )


def solve(terms: Terms, *claims: z3.BoolRef, effort: int = 50) -> z3.ModelRef | None:
    """A model of the claims and the terms' facts, None if there is none; Unproven if Z3 gives up.

    `effort`: millions of steps of Z3's own count, of which a processor takes about seven in a second: a machine that is
    slow, or busy, proves as much as another.
    """
    solver = z3.Solver()
    solver.set("rlimit", effort * 1_000_000)
    solver.add(*terms.facts, *claims)
    answer = solver.check()
    if answer == z3.unknown:
        raise Unproven(solver.reason_unknown())
    return solver.model() if answer == z3.sat else None


def prove_same(before: UOp, after: UOp, given: UOp | None = None, effort: int = 50) -> None:
    """AssertionError with the values of the free nodes (of those where `given` holds) that tell the two apart."""
    condition = UOp.const(True, dtypes.bool) if given is None else given
    if needs_words(before, after, condition):
        _prove(Words(), before, after, condition, effort)
        return
    for a, b, g in cases(before, after, condition):
        _prove(Numbers(), a, b, g, effort)


_GROWS = (Ops.ADD, Ops.MUL, Ops.MULADD, Ops.NEG, Ops.FLOORDIV, Ops.SHL)


def _may_overflow(u: UOp) -> bool:
    return u.bounds == (u.dtype.min, u.dtype.max)


def _prove(terms: Terms, before: UOp, after: UOp, given: UOp, effort: int) -> None:
    if before is after:
        return
    claims = [differ(terms(before), terms(after)), terms(given)]
    if isinstance(terms, Numbers):
        # index arithmetic is taken not to overflow: what does is not to be preserved
        wide = (u for u in before.toposort() if u.dtype.kind == "index" and u.op in _GROWS and _may_overflow(u))
        claims += [z3.And(terms(u) >= -(2**31), terms(u) < 2**31) for u in wide]
    model = solve(terms, *claims, effort=effort)
    if model is not None:
        gives = [model.eval(terms.known[u], model_completion=True) for u in (before, after)]
        raise AssertionError(f"{show(before)}  →  {show(after)}: {gives[0]} became {gives[1]} at {model}")
