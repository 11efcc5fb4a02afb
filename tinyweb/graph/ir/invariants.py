"""Invariants: what a spec's tables are made of, and the invariants that hold in every stage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tinyweb.dtype import dtypes
from tinyweb.graph.ir.ops import COMPARISON, ELEMENTWISE, TRANSCENDENTAL, UNARY, Ops
from tinyweb.graph.ir.uop import Size, UOp, size_sub

Node: TypeAlias = Callable[[UOp], bool]
Whole: TypeAlias = Callable[[Sequence[UOp]], "tuple[UOp, str] | None"]


@dataclass(frozen=True)
class Invariant:
    """`text` says what `holds` checks of every node with one of `ops`."""

    ops: frozenset[Ops]
    text: str
    holds: Node = lambda u: True


@dataclass(frozen=True)
class Spec:
    """A stage's invariants. `whole` look at all nodes with one of the ops `seen_whole` (of a program: at all, in order)
    and name a culprit and the rule it breaks.
    """

    name: str
    invariants: tuple[Invariant, ...]
    whole: tuple[Whole, ...] = ()
    seen_whole: frozenset[Ops] = frozenset(Ops)
    ordered: bool = False  # the graph is given as a list of all its nodes
    _by_op: dict[Ops, list[Invariant]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def checked(self) -> str:
        """Where a node keeps that it breaks no invariant of this spec."""
        return f"checked {self.name}"

    def invariants_of(self, op: Ops) -> list[Invariant]:
        if op not in self._by_op:
            self._by_op[op] = [invariant for invariant in self.invariants if op in invariant.ops]
        return self._by_op[op]


# -- small predicates ------------------------------------------------------------------------------------------------
def needs(ops: Ops | Collection[Ops], text: str, holds: Node = lambda u: True) -> Invariant:
    return Invariant(frozenset({ops} if isinstance(ops, Ops) else ops), text, holds)


def sources(*counts: int) -> Node:
    return lambda u: len(u.src) in counts


def no_void_sources(u: UOp) -> bool:
    return all(s.dtype is not dtypes.void for s in u.src)


def alike(u: UOp) -> bool:
    """All sources have the dtype of the result."""
    return all(s.dtype is u.dtype for s in u.src)


def is_count(s: Size) -> bool:
    """A size: a number, or an index expression that may be one; not negative."""
    return s >= 0 if isinstance(s, int) else isinstance(s, UOp) and s.dtype is dtypes.index and s.vmax >= 0


def maybe_at_most(a: Size, b: Size) -> bool:
    """a ≤ b, or it depends on the variables."""
    d = size_sub(b, a)
    return d >= 0 if isinstance(d, int) else d.vmax >= 0


def same_sizes(a: Sequence[Size], b: Sequence[Size]) -> bool:
    return len(a) == len(b) and all(x is y or x == y for x, y in zip(a, b))


def is_axes(axes: Any, rank: int) -> bool:
    return (
        isinstance(axes, tuple)
        and len(set(axes)) == len(axes)
        and all(isinstance(a, int) and 0 <= a < rank for a in axes)
    )


def constant_fits(u: UOp) -> bool:
    if u.dtype.kind == "bool":
        return type(u.arg) is bool
    if u.dtype.is_float:
        return type(u.arg) is float
    return u.dtype.is_int and type(u.arg) is int and u.dtype.min <= u.arg <= u.dtype.max


def size_expression(u: UOp) -> bool:
    """Made of constants, variables, loops and integer arithmetic alone: known before a loop begins."""
    allowed = (Ops.CONST, Ops.VARIABLE, Ops.RANGE, *ELEMENTWISE)
    return u.dtype is dtypes.index and all(n.op in allowed for n in u.toposort())


def looks_up(u: UOp) -> bool:
    numbers, x = u.arg.numbers, u.src[0]
    inside = x.dtype.is_int and x.vmin >= 0 and x.vmax < len(numbers)
    return u.dtype is dtypes.int32 and len(numbers) in (2, 4, 8, 16) and inside


# -- all stages: leaves and elementwise operations -------------------------------------------------------------------
FLOAT_ONLY = (Ops.RECIPROCAL, Ops.SQRT, Ops.FLOOR, Ops.TRUNC, Ops.ROUND, Ops.DIV, *sorted(TRANSCENDENTAL))
INT_ONLY = (Ops.FLOORDIV, Ops.MOD, Ops.SHL, Ops.SHR)
SAME_TYPE = (Ops.NEG, Ops.ADD, Ops.MUL, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR, *FLOAT_ONLY, *INT_ONLY)
ONE = tuple(sorted(UNARY))
THREE = (Ops.WHERE, Ops.MULADD)
TWO = tuple(ELEMENTWISE - set(ONE) - set(THREE))

common: tuple[Invariant, ...] = (
    needs(Ops.CONST, "a CONST has no sources and an arg of its dtype: bool, float, or an int in range",
        lambda u: not u.src and constant_fits(u)),
    needs(Ops.VARIABLE, "a VARIABLE is of dtype index and has arg (name, min, max) with min ≤ max",
        lambda u: u.dtype is dtypes.index and not u.src and isinstance(u.arg[0], str) and u.arg[1] <= u.arg[2]),
    needs(ONE, "this operation has one source", sources(1)),
    needs(TWO, "this operation has two sources", sources(2)),
    needs(THREE, "this operation has three sources", sources(3)),
    needs(ELEMENTWISE - {Ops.LOOKUP}, "an elementwise operation has no arg; EXP2 may have digits, MULADD \"once\"",
        lambda u: u.arg is None or (u.op is Ops.EXP2 and type(u.arg) is int and u.arg > 0)
        or (u.op is Ops.MULADD and u.arg == "once")),
    needs(Ops.LOOKUP, "LOOKUP is int32, of an integer within a table of 2, 4, 8 or 16 numbers", looks_up),
    needs(ELEMENTWISE, "an elementwise operation has a value, and so have its sources",
        lambda u: u.dtype is not dtypes.void and no_void_sources(u)),
    needs(SAME_TYPE, "the sources have the dtype of the result", alike),
    needs(FLOAT_ONLY, "this operation is for floats", lambda u: u.dtype.is_float),
    needs(INT_ONLY, "this operation is for integers", lambda u: u.dtype.is_int),
    needs((Ops.NEG, Ops.ADD, Ops.MULADD), "arithmetic is not for bool", lambda u: u.dtype is not dtypes.bool),
    needs((Ops.AND, Ops.OR, Ops.XOR), "bit operations are for integers and bool", lambda u: not u.dtype.is_float),
    needs(COMPARISON, "a comparison gives bool, of two sources of one dtype",
        lambda u: u.dtype is dtypes.bool and u.src[0].dtype is u.src[1].dtype),
    needs(Ops.WHERE, "WHERE has a bool condition and branches of its own dtype",
        lambda u: u.src[0].dtype is dtypes.bool and u.src[1].dtype is u.dtype and u.src[2].dtype is u.dtype),
    needs(Ops.BITCAST, "a BITCAST keeps the number of bits", lambda u: u.dtype.bits == u.src[0].dtype.bits),
)  # fmt: skip
