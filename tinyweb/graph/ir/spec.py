"""What each stage may contain: three specs (`tensor_spec`, `kernel_spec`, `program_spec`, a module each), tables of
invariants that `check` checks and, if SPEC is set, `verify`.

An invariant is a set of ops and what must be true of every node with one of them. An op for which a stage has no
invariant is not allowed there. Beyond single nodes a spec has invariants of the whole: unique names, contiguous slots,
definition before use.

The environment variable SPEC, read once: 0 nothing, 1 every stage is checked, 2 also printed as Python and built again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from tinyweb.graph.ir.invariants import Spec
from tinyweb.graph.ir.printer import brief, from_python, to_python
from tinyweb.graph.ir.uop import UOp, toposort


class SpecError(ValueError):
    """A graph breaks a rule of its stage; the message names the node, the rule and where the node stands."""


def check(graph: UOp | Sequence[UOp], spec: Spec) -> None:
    """SpecError at the first node that breaks an invariant of `spec`. A program is given as the list of its nodes."""
    roots = [graph] if isinstance(graph, UOp) else list(graph)
    nodes = roots if spec.ordered else toposort(roots)
    checked = spec.checked
    for u in nodes:
        if u.__dict__.get(checked) is spec:  # nodes never change, and later graphs are made of earlier ones
            continue
        invariants = spec.invariants_of(u.op)
        if not invariants:
            raise _error(spec, u, f"{u.op.name} is not allowed here", nodes)
        for rule in invariants:
            try:
                fine = rule.holds(u)
            except (IndexError, KeyError, ValueError, TypeError, AttributeError, AssertionError):
                fine = False  # the node is too malformed even to be looked at
            if not fine:
                raise _error(spec, u, rule.text, nodes)
        u.__dict__[checked] = spec
    seen = [u for u in nodes if u.op in spec.seen_whole or u is nodes[-1]] if spec.whole else []
    for look in spec.whole:
        found = look(seen)
        if found is not None:
            raise _error(spec, found[0], found[1], nodes)


def _error(spec: Spec, u: UOp, text: str, nodes: Sequence[UOp]) -> SpecError:
    user = next((n for n in nodes if any(s is u for s in n.src)), None)
    where = "" if user is None else f"\n  used by {brief(user, 2)}"
    return SpecError(f"{spec.name}: {text}\n  at {brief(u)}{where}")


@cache
def spec_level() -> int:
    """The environment variable SPEC: 0 (off), 1 (check every stage) or 2 (also print and rebuild); read once."""
    value = os.environ.get("SPEC", "0")
    if value not in ("0", "1", "2"):
        raise ValueError(f"SPEC is {value!r}; it must be 0 (off), 1 (check every stage) or 2 (also print and rebuild)")
    return int(value)


def verify(stage_name: str, graph: UOp | Sequence[UOp], spec: Spec) -> None:
    """What a stage calls on its result: does nothing unless SPEC is set."""
    level = spec_level()
    if level == 0:
        return
    try:
        check(graph, spec)
    except SpecError as e:
        raise SpecError(f"after {stage_name}: {e}") from None
    if level > 1:
        roots = graph if isinstance(graph, UOp) else tuple(graph)
        if from_python(to_python(roots)) != roots:
            raise SpecError(
                f"after {stage_name}: the graph printed as Python is not the same graph when it is built again"
            )
