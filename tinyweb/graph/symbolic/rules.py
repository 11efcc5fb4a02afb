"""The table of algebraic rules: for integer index expressions and gates, and what is exact on floats.

Every rule keeps the value for all values of the free nodes, with one freedom: arithmetic of dtype `index` is taken not
to overflow. Rules that would change the shape of a node (x·0 → 0 where x is an array) do not apply to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce

from tinyweb.dtype import ALL, DType, dtypes
from tinyweb.graph.ir.ops import COMMUTATIVE, ELEMENTWISE, Ops
from tinyweb.graph.ir.pattern import PatternMatcher, Rule, UPat, any_node, constant
from tinyweb.graph.ir.uop import UOp
from tinyweb.graph.symbolic.compare import (
    FALSE,
    MANY_CLAUSES,
    TRUE,
    conjunction,
    equal,
    less,
    less_than_quotient,
    negated,
)
from tinyweb.graph.symbolic.division import LAWS, Law, recombine, residues
from tinyweb.graph.symbolic.fold import compute
from tinyweb.graph.symbolic.linear import cannot_wrap, from_linear, linear, order
from tinyweb.graph.symbolic.reductions import reductions

INTS = tuple(d for d in ALL if d.is_int)
FLOATS = tuple(d for d in ALL if d.is_float)
WHOLE = (*INTS, dtypes.bool)
BOOL = dtypes.bool


def keeps_shape(old: UOp, new: UOp) -> bool:
    """Whether `new` may stand for `old`: equal shapes, or lanes of a kernel, which a value without lanes fits too."""
    return not old.shape or old.shape == new.shape or bool(old.lanes)


def to_constant(u: UOp, value: int | float | bool) -> UOp | None:
    return UOp.const(value, u.dtype) if not u.shape or u.lanes else None


def keep(u: UOp, new: UOp) -> UOp | None:
    return new if keeps_shape(u, new) else None


# -- constants -------------------------------------------------------------------------------------------------------
def fold(u: UOp) -> UOp | None:
    if u.op is Ops.LOOKUP:
        return UOp.const(u.arg.numbers[u.src[0].arg], u.dtype)
    value = compute(u.op, u.dtype, tuple(s.arg for s in _rounded(u.src)), u.src[0].dtype)
    return None if value is None else UOp.const(value, u.dtype)


def _rounded(src: tuple[UOp, ...]) -> Iterator[UOp]:
    """Constants with the value their dtype holds: 0.1 of float32 is not the 0.1 of Python."""
    for s in src:
        if s.dtype.is_float and (value := compute(Ops.CAST, s.dtype, (s.arg,), dtypes.float64)) is not None:
            s = UOp.const(value, s.dtype)
        yield s


def single_value(u: UOp) -> UOp | None:
    low, high = u.bounds
    return to_constant(u, low) if low == high else None


COUNTED = frozenset({Ops.RANGE, Ops.VARIABLE})


def constant_source(u: UOp) -> UOp | None:
    """A loop of one step counts 0, a variable of one value is that value. REDUCE and END go on naming the RANGE."""
    looked_at = u.src[:1] if u.op is Ops.REDUCE else u.src
    fixed: dict[UOp, UOp] = {}
    for s in looked_at:
        if s.op in COUNTED and s.vmin == s.vmax:
            fixed[s] = UOp.const(s.vmin, s.dtype)
    return u.replace(src=(*(fixed.get(s, s) for s in looked_at), *u.src[len(looked_at) :])) if fixed else None


constants: list[Rule] = [
    (UPat(ELEMENTWISE, src=UPat(Ops.CONST), name="u"), fold),
    (UPat(ELEMENTWISE, dtype=WHOLE, name="u"), single_value),
    (UPat(ELEMENTWISE | {Ops.LOAD, Ops.STORE, Ops.REDUCE}, name="u"), constant_source),
    (UPat(Ops.CAST, src=[any_node("x")], name="u"), lambda u, x: x if u.dtype is x.dtype else None),
]  # fmt: skip


# -- sums and products of integers -----------------------------------------------------------------------------------
def canonical_sum(u: UOp) -> UOp | None:
    """One coefficient per term, terms in order, the constant last, constant factors distributed over the sum."""
    if "_is_sum" in u.__dict__ or (u.shape and not u.lanes):
        return None
    terms, number = linear(u)
    if u in terms:  # too long a sum: only move the constant outwards
        return _constant_outwards(u) if u.op is Ops.ADD else None
    changed = True
    while changed:
        changed = False
        if any(t.op is Ops.MOD for t in terms) and (joined := recombine(terms, number)) is not None:
            terms, number = joined
            changed = True
    return from_linear(terms, number, u.dtype)


def _constant_outwards(u: UOp) -> UOp | None:
    a, b = u.src
    if a.op is Ops.CONST:
        return b + a
    if a.op is Ops.ADD and a.src[1].op is Ops.CONST:
        return a.src[0] + (a.src[1].arg + b.arg) if b.op is Ops.CONST else (a.src[0] + b) + a.src[1]
    if b.op is Ops.ADD and b.src[1].op is Ops.CONST:
        return (a + b.src[0]) + b.src[1]
    return None


def canonical_product(u: UOp) -> UOp | None:
    """Factors in order, the constant last. A product of many factors stays one of products: x³² is five squares."""
    factors: list[UOp] = []
    number = 1
    stack = list(u.src)
    while stack:
        f = stack.pop()
        if f.op is Ops.CONST:
            number *= f.arg
        elif f.op is Ops.MUL:
            stack.extend(f.src)
        else:
            factors.append(f)
        if len(factors) + len(stack) > 16:
            factors = [s for s in u.src if s.op is not Ops.CONST]
            number = math.prod(s.arg for s in u.src if s.op is Ops.CONST)
            break
    if not factors:
        return None
    product = reduce(lambda a, b: a * b, sorted(factors, key=order))
    product = product * number if number != 1 else product
    return keep(u, product)


def sorted_sources(u: UOp) -> UOp | None:
    a, b = u.src
    if a.op is Ops.CONST and b.op is not Ops.CONST:
        return u.replace(src=(b, a))
    # sums, products, gates and integer equality have their own order; floats stay as written
    own_order = (Ops.AND, Ops.OR) if a.dtype is BOOL else (Ops.ADD, Ops.MUL, Ops.EQUAL)
    if u.op in own_order or a.dtype.is_float:
        return None
    return u.replace(src=(b, a)) if b.op is not Ops.CONST and b.order_key < a.order_key else None


sums: list[Rule] = [
    (UPat(Ops.NEG, dtype=INTS, src=[any_node("x")]), lambda x: x * -1),
    (UPat(Ops.MUL, dtype=INTS, src=[any_node("x"), constant(value=0)], name="u"), lambda u, x: to_constant(u, 0)),
    (UPat(Ops.ADD, dtype=INTS, src=[any_node("x"), constant(value=0)]), lambda x: x),
    (UPat(Ops.MUL, dtype=INTS, name="u", where=lambda u: u.src[1].op is not Ops.CONST), canonical_product),
    (UPat((Ops.ADD, Ops.MUL), dtype=INTS, name="u"), canonical_sum),
    (UPat(COMMUTATIVE, name="u"), sorted_sources),
]


# -- division --------------------------------------------------------------------------------------------------------
def _by_law(law: Law) -> Rule:
    """The rule for FLOORDIV and MOD that a law of division gives."""

    def apply(u: UOp, x: UOp, d: UOp) -> UOp | None:
        if d.vmin <= 0 or (u.shape and not u.lanes):
            return None
        found = law(x, d)
        return None if found is None else found[0 if u.op is Ops.FLOORDIV else 1]

    apply.__name__, apply.__doc__ = law.__name__, law.__doc__
    return UPat((Ops.FLOORDIV, Ops.MOD), dtype=INTS, src=[any_node("x"), any_node("d")], name="u"), apply


def by_negative(u: UOp, x: UOp, d: UOp) -> UOp | None:
    """x // -c → -x // c and x % -c → -(-x % c)."""
    if d.vmax >= 0 or d.vmin == d.dtype.min or (x.dtype.kind != "index" and x.vmin == x.dtype.min):
        return None
    return (-x) // (-d) if u.op is Ops.FLOORDIV else -((-x) % (-d))


def smaller_residues(u: UOp, x: UOp, d: UOp) -> UOp | None:
    return None if d.arg <= 0 or (u.shape and not u.lanes) else residues(x, d)


divisions: list[Rule] = [
    (UPat(Ops.FLOORDIV, dtype=INTS, src=[any_node("x"), constant(value=1)]), lambda x: x),
    (UPat(Ops.MOD, dtype=INTS, src=[any_node("x"), constant(value=1)], name="u"), lambda u, x: to_constant(u, 0)),
    (UPat((Ops.FLOORDIV, Ops.MOD), dtype=INTS, src=[any_node("x"), any_node("d")], name="u"), by_negative),
    *map(_by_law, LAWS),
    (UPat(Ops.MOD, dtype=INTS, src=[any_node("x"), constant("d")], name="u"), smaller_residues),
]


# -- maximum, bits ---------------------------------------------------------------------------------------------------
def maximum(u: UOp, x: UOp, y: UOp) -> UOp | None:
    if x is y or x.vmin >= y.vmax:
        return keep(u, x)
    return keep(u, y) if y.vmin >= x.vmax else None


def _nested(op: Ops) -> Rule:
    """(x op c) op d → x op (c op d)."""

    def joined(x: UOp, c: UOp, d: UOp) -> UOp:
        return x.alu(op, c.alu(op, d))

    return UPat(op, dtype=WHOLE, src=[UPat(op, src=[any_node("x"), constant("c")]), constant("d")]), joined


def mask(x: UOp, c: UOp) -> UOp | None:
    """A mask of ones that x fits in does nothing."""
    return x if x.vmin >= 0 and c.arg & (c.arg + 1) == 0 and x.vmax <= c.arg else None


def shift_again(u: UOp, x: UOp, a: UOp, b: UOp) -> UOp | None:
    total = a.arg + b.arg
    return x.alu(u.op, total) if a.arg >= 0 and b.arg >= 0 and total < u.dtype.bits else None


shift = (Ops.SHL, Ops.SHR)
bits: list[Rule] = [
    (UPat(Ops.MAX, dtype=INTS, src=[any_node("x"), any_node("y")], name="u"), maximum),
    *map(_nested, (Ops.MAX, Ops.AND, Ops.OR, Ops.XOR)),
    (UPat(Ops.AND, dtype=INTS, src=[any_node("x"), constant("c")]), mask),
    (UPat(Ops.AND, dtype=INTS, src=[any_node("x"), constant(value=0)], name="u"), lambda u, x: to_constant(u, 0)),
    (UPat(Ops.AND, dtype=INTS, src=[any_node("x"), constant(value=-1)]), lambda x: x),
    (UPat((Ops.OR, Ops.XOR), dtype=INTS, src=[any_node("x"), constant(value=0)]), lambda x: x),
    (UPat(shift, dtype=INTS, src=[any_node("x"), constant(value=0)]), lambda x: x),
    (UPat((Ops.AND, Ops.OR), dtype=WHOLE, src=[any_node("x"), any_node("x")]), lambda x: x),
    (UPat(Ops.XOR, dtype=WHOLE, src=[any_node("x"), any_node("x")], name="u"), lambda u, x: to_constant(u, 0)),
    *((UPat(op, dtype=INTS, src=[UPat(op, src=[any_node("x"), constant("a")]), constant("b")], name="u"), shift_again)
      for op in shift),
]  # fmt: skip


# -- bool ------------------------------------------------------------------------------------------------------------
def NOT(name: str) -> UPat:
    return UPat(Ops.XOR, dtype=BOOL, src=[any_node(name), constant(value=True)])


def both(op: Ops, a: UPat, b: UPat) -> UPat:
    return UPat(op, dtype=BOOL, src=[a, b], name="u")


def disjunction(u: UOp) -> UOp | None:
    """Terms once, in order; a term and its negation together are everything."""
    terms: dict[UOp, None] = {}
    stack = [u]
    while stack:
        t = stack.pop()
        if t.op is Ops.OR and len(terms) < MANY_CLAUSES:
            stack.extend(t.src)
        else:
            terms[t] = None
    if any(negated(t) in terms for t in terms):
        return to_constant(u, True)
    return keep(u, reduce(lambda a, b: a | b, sorted(terms, key=order)))


def scalar(rule: Callable[[UOp], UOp | None]) -> Callable[[UOp], UOp | None]:
    return lambda u: None if u.shape and not u.lanes else rule(u)


x, y, z = any_node("x"), any_node("y"), any_node("z")
booleans: list[Rule] = [
    (both(Ops.AND, x, constant(value=True)), lambda u, x: x),
    (both(Ops.AND, x, constant(value=False)), lambda u, x: to_constant(u, False)),
    (both(Ops.OR, x, constant(value=False)), lambda u, x: x),
    (both(Ops.OR, x, constant(value=True)), lambda u, x: to_constant(u, True)),
    (both(Ops.XOR, x, constant(value=False)), lambda u, x: x),
    (both(Ops.XOR, NOT("x"), constant(value=True)), lambda u, x: x),
    (both(Ops.XOR, NOT("x"), y), lambda u, x, y: (x ^ y).logical_not()),
    (both(Ops.XOR, UPat(Ops.OR, src=[x, y]), constant(value=True)),
     lambda u, x, y: x.logical_not() & y.logical_not()),
    (both(Ops.AND, x, UPat(Ops.OR, src=[x, y])), lambda u, x, y: keep(u, x)),
    (both(Ops.OR, x, UPat(Ops.AND, src=[x, y])), lambda u, x, y: keep(u, x)),
    (both(Ops.AND, NOT("x"), UPat(Ops.OR, src=[x, y])), lambda u, x, y: x.logical_not() & y),
    (both(Ops.OR, NOT("x"), UPat(Ops.AND, src=[x, y])), lambda u, x, y: x.logical_not() | y),
    (both(Ops.OR, UPat(Ops.LESS, src=[UPat(dtype=INTS, name="x"), y]), UPat(Ops.EQUAL, src=[x, y])),
     lambda u, x, y: x <= y),
    (UPat(Ops.AND, dtype=BOOL, name="u"), scalar(conjunction)),
    (UPat(Ops.OR, dtype=BOOL, name="u"), disjunction),
    (UPat(Ops.MUL, dtype=BOOL, src=[x, y]), lambda x, y: x & y),
    (UPat((Ops.MAX, Ops.ADD), dtype=BOOL, src=[x, y]), lambda x, y: x | y),
]  # fmt: skip


# -- comparisons -----------------------------------------------------------------------------------------------------
def _on(dtype: DType | tuple[DType, ...], name: str) -> UPat:
    return UPat(None, dtype=dtype, name=name)


def _compared(function: Callable[[UOp, UOp], UOp | None]) -> Callable[[UOp, UOp, UOp], UOp | None]:
    def apply(u: UOp, x: UOp, y: UOp) -> UOp | None:
        return None if u.shape and not u.lanes else function(x, y)

    apply.__name__, apply.__doc__ = function.__name__, function.__doc__
    return apply


comparisons: list[Rule] = [
    (UPat(Ops.LESS, src=[_on(INTS, "x"), _on(INTS, "y")], name="u"), _compared(less)),
    (UPat(Ops.EQUAL, name="u"), lambda u: _compared(equal)(u, *u.src) if u.src[0].dtype.is_int else None),
    (UPat(Ops.LESS, src=[UPat(Ops.FLOORDIV, src=[x, constant("c")]), constant("d")]), less_than_quotient),
    (UPat(Ops.LESS, src=[_on(BOOL, "x"), _on(BOOL, "y")]), lambda x, y: x.logical_not() & y),
    (UPat(Ops.EQUAL, src=[_on(BOOL, "x"), constant(value=True)]), lambda x: x),
    (UPat(Ops.EQUAL, src=[_on(BOOL, "x"), constant(value=False)]), lambda x: x.logical_not()),
    (UPat(Ops.EQUAL, src=[_on(BOOL, "x"), _on(BOOL, "x")], name="u"), lambda u, x: to_constant(u, True)),
]


# -- choices ---------------------------------------------------------------------------------------------------------
def choice(c: UPat, a: UPat, b: UPat, dtype: DType | tuple[DType, ...] | None = None) -> UPat:
    return UPat(Ops.WHERE, src=[c, a, b], dtype=dtype, name="u")


def chosen_maximum(u: UOp, x: UOp, y: UOp) -> UOp | None:
    """x < y ? y : x of integers."""
    return keep(u, x.maximum(y))


c, p, q = any_node("c"), any_node("p"), any_node("q")
choices: list[Rule] = [
    (choice(constant(value=True), x, y), lambda u, x, y: keep(u, x)),
    (choice(constant(value=False), x, y), lambda u, x, y: keep(u, y)),
    (choice(c, x, x), lambda u, c, x: keep(u, x)),
    (choice(NOT("c"), x, y), lambda u, c, x, y: c.where(y, x)),
    (choice(c, UPat(Ops.WHERE, src=[c, x, p]), y), lambda u, c, x, p, y: keep(u, c.where(x, y))),
    (choice(c, x, UPat(Ops.WHERE, src=[c, p, y])), lambda u, c, x, p, y: keep(u, c.where(x, y))),
    (choice(c, UPat(Ops.WHERE, src=[p, x, y]), y), lambda u, c, p, x, y: keep(u, (c & p).where(x, y))),
    (choice(c, UPat(Ops.WHERE, src=[p, y, x]), y), lambda u, c, p, x, y: keep(u, (c & p.logical_not()).where(x, y))),
    (choice(c, x, UPat(Ops.WHERE, src=[p, x, y])), lambda u, c, p, x, y: keep(u, (c | p).where(x, y))),
    (choice(c, constant(value=True), constant(value=False), BOOL), lambda u, c: keep(u, c)),
    (choice(c, constant(value=False), constant(value=True), BOOL), lambda u, c: keep(u, c.logical_not())),
    (choice(c, x, constant(value=False), BOOL), lambda u, c, x: keep(u, c & x)),
    (choice(c, constant(value=True), x, BOOL), lambda u, c, x: keep(u, c | x)),
    (choice(UPat(Ops.LESS, src=[x, y]), y, x, INTS), chosen_maximum),
]


# -- casts -----------------------------------------------------------------------------------------------------------
def holds(inner: DType, x: UOp) -> bool:
    """Whether `inner` represents every value of x exactly."""
    of = x.dtype
    if of.is_float:
        return inner.is_float and inner.mantissa >= of.mantissa and inner.bias >= of.bias
    if inner.is_float:
        exact = 1 << inner.mantissa + 1
        return -exact <= x.vmin and x.vmax <= exact
    return inner.kind != "bool" and inner.min <= x.vmin and x.vmax <= inner.max


def cast_twice(u: UOp, x: UOp, inner: UOp) -> UOp | None:
    # integers wrap around where floats do not: a float must fit the integer it becomes
    whole = inner.dtype.is_float and not x.dtype.is_float and u.dtype.is_int
    if holds(inner.dtype, x) and not (whole and not holds(u.dtype, x)):
        return x.cast(u.dtype)
    # truncating integers twice is truncating them once
    if x.dtype.is_int and inner.dtype.is_int and u.dtype.is_int and u.dtype.bits <= inner.dtype.bits:
        return x.cast(u.dtype)
    return None


def cast_to_index(u: UOp, x: UOp) -> UOp | None:
    """Of integers that do not wrap around: what follows of an address from loops is told of indices."""
    fits = u.dtype is dtypes.index and x.dtype.is_int and all(holds(u.dtype, s) for s in (x, *x.src))
    exact = fits and (x.op is Ops.MAX or cannot_wrap(x))
    return x.replace(dtype=u.dtype, src=tuple(s.cast(u.dtype) for s in x.src)) if exact else None


def compared_before_cast(u: UOp) -> UOp | None:
    """What was an integer of 32 bits is compared with a constant as one: 64 bits are two words on most targets."""
    types = {s.src[0].dtype for s in u.src if s.op is Ops.CAST}
    t = types.pop() if len(types) == 1 else dtypes.bool
    if not t.is_int or t.bits > 32:
        return None
    if not all(holds(s.dtype, s.src[0]) if s.op is Ops.CAST else t.min <= s.arg <= t.max for s in u.src):
        return None
    return u.replace(src=tuple(s.src[0] if s.op is Ops.CAST else s.replace(dtype=t) for s in u.src))


TWO_WORDS = (dtypes.int64, dtypes.uint64)
casts: list[Rule] = [
    (UPat((Ops.LESS, Ops.EQUAL), src=UPat((Ops.CAST, Ops.CONST), dtype=TWO_WORDS), name="u"), compared_before_cast),
    (UPat(Ops.CAST, src=[UPat((Ops.ADD, Ops.MUL, Ops.MAX), name="x")], name="u"), cast_to_index),
    (UPat(Ops.CAST, src=[UPat(Ops.CAST, src=[any_node("x")], name="inner")], name="u"), cast_twice),
    (UPat(Ops.BITCAST, src=[UPat(Ops.BITCAST, src=[any_node("x")])], name="u"), lambda u, x: x.bitcast(u.dtype)),
]


# -- floats: only what is exact, also for NaN, infinities and the sign of zero ---------------------------------------
def never_minus_zero(u: UOp) -> bool:
    """Whether a float value is certainly not -0.0, so that adding +0.0 does nothing."""
    if u.op is Ops.CONST:
        return u.arg != 0 or math.copysign(1, u.arg) > 0
    if u.op is Ops.CAST:
        return not u.src[0].dtype.is_float
    if u.op is Ops.ADD:  # -0.0 is only the sum of two of them
        return any(s.op is Ops.CONST and never_minus_zero(s) for s in u.src)
    return u.op is Ops.EXP2 or (u.op is Ops.MUL and u.src[0] is u.src[1])


def plus_zero(x: UOp, zero: UOp) -> UOp | None:
    return x if zero.arg == 0 and (math.copysign(1, zero.arg) < 0 or never_minus_zero(x)) else None


def divide_by_power(x: UOp, c: UOp) -> UOp | None:
    """x / 2^k is x · 2^-k, exactly."""
    limit = 2.0 ** min(14, c.dtype.bias - 1)
    power = math.isfinite(c.arg) and abs(math.frexp(c.arg)[0]) == 0.5 and 1 / limit <= abs(c.arg) <= limit
    return x.alu(Ops.MUL, 1 / c.arg) if power else None


floats: list[Rule] = [
    (UPat(Ops.ADD, dtype=FLOATS, src=[any_node("x"), constant("zero")]), plus_zero),
    (UPat(Ops.MUL, dtype=FLOATS, src=[any_node("x"), constant(value=1)]), lambda x: x),
    (UPat(Ops.MUL, dtype=FLOATS, src=[any_node("x"), constant(value=-1)]), lambda x: -x),
    (UPat(Ops.NEG, dtype=FLOATS, src=[UPat(Ops.NEG, src=[any_node("x")])]), lambda x: x),
    (UPat(Ops.DIV, dtype=FLOATS, src=[any_node("x"), constant("c")]), divide_by_power),
    (UPat(Ops.MAX, dtype=FLOATS, src=[any_node("x"), any_node("x")]), lambda x: x),
    (UPat(Ops.LESS, src=[_on(FLOATS, "x"), _on(FLOATS, "x")], name="u"), lambda u, x: to_constant(u, False)),
]


# -- memory ----------------------------------------------------------------------------------------------------------
def open_gate(u: UOp, gate: UOp) -> UOp | None:
    """A gate that always holds is none; what is loaded behind one that never holds is zero."""
    if gate is TRUE:
        return u.replace(src=u.src[:-1])
    return to_constant(u, 0) if gate is FALSE and u.op is Ops.LOAD else None


memory: list[Rule] = [
    (UPat(Ops.LOAD, src=[any_node(), any_node(), constant("gate")], name="u"), open_gate),
    (UPat(Ops.STORE, src=[any_node(), any_node(), any_node(), constant("gate")], name="u"), open_gate),
]


integer_rules: list[Rule] = constants + sums + divisions + bits + booleans + comparisons + choices + casts
symbolic = PatternMatcher(integer_rules + floats + memory + reductions)
