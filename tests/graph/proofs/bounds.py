"""Proofs that a kernel or a program stays inside its memory: `check_bounds`.

For every LOAD and STORE Z3 shows that the index lies in the memory (all lanes of it) whenever the gate holds, for all
values of loops, hardware indices and variables, and for whatever was read from memory on the way. Of a program also
that no division it contains meets a negative numerator or a divisor that is not positive, that the arithmetic of an
index stays within 32 bits, and, where the target asks for it, that wide accesses are aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

import z3

from tests.graph.proofs.prove import Unproven, cases, solve
from tests.graph.proofs.terms import Numbers
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.ir.printer import brief
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target

TRUE = UOp.const(True, dtypes.bool)
GROWS = (Ops.ADD, Ops.MUL, Ops.MULADD, Ops.NEG, Ops.SHL)


class OutOfBounds(AssertionError):
    """An access that leaves its memory: which, and for which values."""


@dataclass(frozen=True)
class Access:
    """`lanes` elements from `index` on of memory of `size` elements, if `gate` holds."""

    node: UOp
    index: UOp
    gate: UOp
    size: int
    lanes: int

    @property
    def key(self) -> tuple[UOp, UOp, int, int]:
        return self.index, self.gate, self.size, self.lanes


def accesses(nodes: Sequence[UOp]) -> Iterator[Access]:
    """Of a kernel, or of a program in its order: what is in a loop happens where that has a step."""
    steps: dict[UOp, UOp] = {}  # by RANGE that is open, if it may have no step: that it has one
    program = any(u.op is Ops.END for u in nodes)
    for u in nodes:
        if u.op is Ops.RANGE and program and u.src[0].op is not Ops.CONST:
            steps[u] = u.src[0] >= 1
        elif u.op is Ops.END:
            steps.pop(u.src[-1], None)
        entered = reduce(and_, steps.values(), TRUE)
        if u.op is Ops.LOAD:
            lanes = u.arg if isinstance(u.arg, int) else 1
            gate = u.src[2] if len(u.src) > 2 else TRUE
            if isinstance(u.arg, int) and gate.shape:
                for i in range(lanes):
                    yield Access(u, u.src[1] + i, lane_of(gate, i) & entered, memory_size(u.src[0]), 1)
            else:
                yield Access(u, u.src[1], gate & entered, memory_size(u.src[0]), lanes)
        elif u.op is Ops.STORE:
            # lanes of a kernel are values of a RANGE; a vector of a program is one access
            shape = () if u.src[2].lanes else u.src[2].shape
            lanes = shape[0] if shape and isinstance(shape[0], int) else 1
            gate = u.src[3] & entered if len(u.src) > 3 else entered
            yield Access(u, u.src[1], gate, memory_size(u.src[0]), lanes)


def lane_of(value: UOp, i: int) -> UOp:
    """A lane of what is computed with vectors, as it is computed for that lane alone."""
    if not value.shape:
        return value
    return value.src[i] if value.op is Ops.STACK else value.replace(src=tuple(lane_of(s, i) for s in value.src))


def memory_size(memory: UOp) -> int:
    if memory.op is Ops.STAGE:
        return int(memory.arg.strides([int(r.src[0].arg) for r in memory.src[1:]])[1])
    return int(memory.buffer.arg.size)


def check_bounds(graph: UOp | Program, target: Target | None = None, effort: int = 200) -> int:
    """The number of accesses proven; OutOfBounds for one that leaves its memory, Unproven where Z3 cannot tell.

    `effort`: the limit for each claim, in millions of Z3's steps.
    """
    nodes = list(graph.uops) if isinstance(graph, Program) else graph.toposort()
    proven = 0
    for access in {a.key: a for a in accesses(nodes)}.values():
        _inside(access, effort)
        if target is not None and target.language == "wgsl" and access.lanes > 1:
            _aligned(access, effort)
        proven += 1
    if isinstance(graph, Program):
        for u in nodes:
            if u.op in (Ops.FLOORDIV, Ops.MOD):
                _divides(u, effort)
        _never_overflows(accesses(nodes), effort)
    return proven


def _refuted(what: str, u: UOp, gate: UOp, roots: tuple[UOp, ...], claim: object, effort: int) -> None:
    """Raises if `claim`, a function of the terms of `roots`, can hold together with the gate."""
    assert callable(claim)
    for gate_case, *root_cases in cases(gate, *roots):
        for elements in (False, True):  # what was loaded twice as two values, then as one
            terms = Numbers(elements)
            values = [terms(r) for r in root_cases]
            model = solve(terms, terms(gate_case), claim(*values), effort=effort)
            if model is None:
                break
        else:
            assert model is not None
            free = {str(d): model[d] for d in model.decls()}
            shown = ", ".join(f"{name.split('$')[0]}={value}" for name, value in sorted(free.items()))
            given = "" if gate is TRUE else f"\n  gate {brief(gate, 6)}"
            raise OutOfBounds(f"{what}: {brief(u, 6)}\n  index {brief(roots[0], 9)}{given}\n  at {shown}")


def _inside(a: Access, effort: int) -> None:
    what = f"{a.lanes} element(s) at this index may leave memory of {a.size}"
    _refuted(what, a.node, a.gate, (a.index,), lambda i: z3.Or(i < 0, i + a.lanes > a.size), effort)


def _aligned(a: Access, effort: int) -> None:
    _refuted(f"not a multiple of {a.lanes}", a.node, a.gate, (a.index,), lambda i: i % a.lanes != 0, effort)


def _divides(u: UOp, effort: int) -> None:
    if u.shape:
        return
    _refuted("a division of program form may see these", u, TRUE, u.src, lambda a, d: z3.Or(a < 0, d <= 0), effort)


def arithmetic(value: UOp) -> list[UOp]:
    """What is computed for it; where it is read from is an access with a gate of its own."""
    done: dict[UOp, None] = {}
    left = [value]
    while left:
        u = left.pop()
        if u not in done:
            done[u] = None
            left += () if u.op is Ops.LOAD else u.src
    return list(done)


def _never_overflows(every: Iterable[Access], effort: int) -> None:
    """An index where its gate holds, and a gate always, are computed without wrapping around."""
    wanted = {(u, a.gate): None for a in every for u in arithmetic(a.index)}
    wanted |= {(u, TRUE): None for _, gate in [*wanted] for u in arithmetic(gate)}
    for u, gate in wanted:
        # what interval arithmetic already shows needs no solver (that it is right is proven elsewhere)
        if u.dtype is dtypes.index and u.op in GROWS and u.bounds == (u.dtype.min, u.dtype.max):
            out = "index arithmetic leaves 32 bits"
            _refuted(out, u, gate, (u,), lambda i: z3.Or(i < -(2**31), i >= 2**31), effort)


__all__ = ["OutOfBounds", "Unproven", "check_bounds"]
