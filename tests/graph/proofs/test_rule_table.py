"""Every rule of the table, found by walking the table itself, is proven: each time it applies to a node, Z3 finds no
values of the free nodes for which the result is another.

Index arithmetic is proven over mathematical integers within the bounds of loops and variables, data types as
bit-vectors that wrap around, floats as IEEE floats. A rule that no instance here reaches fails by its name.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice, product

import pytest
import z3

from tests.graph.proofs.instances import (
    Instances,
    accesses,
    casts,
    divided,
    every_small_instance,
    float_instance,
    is_legal,
    large_leaves,
)
from tests.graph.proofs.prove import Unproven, prove_same, solve
from tests.graph.proofs.terms import Numbers, differ
from tests.graph.symbolic.oracle import assert_same, show
from tinyweb.dtype import ALL, DType, dtypes
from tinyweb.graph.ir import Ops, UOp, UPat
from tinyweb.graph.ir.pattern import Rule
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.symbolic.reductions import reductions
from tinyweb.graph.symbolic.rules import floats, integer_rules, memory, symbolic

NEEDED, ENOUGH = 5, 10  # proofs per rule and dtype
TYPES = (dtypes.index, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32)
SIGNED = (dtypes.index, dtypes.int8, dtypes.int32)
# rules that by what they say cannot apply to all of TYPES
APPLIES_TO: dict[str, tuple[DType, ...]] = {
    "by_negative": SIGNED, "AND(x, -1)": SIGNED, "by_symbolic": (dtypes.index,), "CAST(x)": TYPES,
    "compared_before_cast": TYPES[1:],
}  # fmt: skip


def text(pattern: UPat) -> str:
    """A pattern as an expression."""
    if pattern.ops == frozenset({Ops.CONST}):
        return pattern.name or str(pattern.arg)
    if pattern.ops is None:
        return pattern.name or "_"
    names = sorted(op.name for op in pattern.ops)
    inside = ", ".join(map(text, pattern.src or ([pattern.every] if pattern.every else ())))
    return f"{'|'.join(names[:4])}{'|…' if len(names) > 4 else ''}{f'({inside})' if inside else ''}"


def name_of(rule: Rule) -> str:
    pattern, function = rule
    return text(pattern) if function.__name__ == "<lambda>" else function.__name__


def numbered(rules: list[Rule]) -> list[object]:
    return [pytest.param(r, id=f"{i}:{name_of(r)}") for i, r in enumerate(rules)]


def test_the_tables_are_all_there_is() -> None:
    # of reductions: tests/graph/symbolic/test_reductions.py
    proven = integer_rules + floats + memory + reductions
    assert list(symbolic.rules) == proven, "a table of rules without proofs"


def result(rule: Rule, u: UOp) -> UOp | None:
    """What the rule makes of a node."""
    pattern, function = rule
    for names in pattern.match(u, {}):
        out: UOp | None = function(**names)
        if out is not None and out is not u:
            assert out.dtype is u.dtype, (show(u), show(out))
            return out
    return None


def simple_below(u: UOp) -> UOp:
    """The node as a rule meets it in a rewrite: with simple sources."""
    return u.replace(src=tuple(simplify(s) for s in u.src)) if u.src else u


def candidates(rule: Rule, dtype: DType) -> Iterator[UOp]:
    pattern, _ = rule
    for seed in range(100):
        maker = Instances(random.Random(seed), large_leaves(dtype))
        u = maker.instance(pattern, {})
        if u is not None:
            yield from (u, simple_below(u))
            if pattern.ops == frozenset({Ops.CAST}) and dtype.is_int:
                yield u.replace(dtype=dtypes.index)
    if pattern.ops is not None and pattern.ops <= {Ops.CAST, Ops.BITCAST}:
        yield from casts(dtype, [d for d in ALL if d.is_int or d is dtypes.bool])
    for seed in range(60):
        maker = Instances(random.Random(seed), large_leaves(dtype))
        for root in (*divided(maker), maker.integer(2), maker.boolean(2)):
            for u in root.toposort():
                if pattern.ops is None or u.op in pattern.ops:
                    yield from (u, simple_below(u))


@pytest.mark.parametrize("rule", numbered(integer_rules))
def test_integer_rule(rule: Rule) -> None:
    proofs: Counter[DType] = Counter()
    for dtype in APPLIES_TO.get(name_of(rule), TYPES):
        seen: set[UOp] = set()
        gave_up = 0
        for u in candidates(rule, dtype):
            if proofs[dtype] >= ENOUGH or gave_up > 2:
                break
            if u in seen or not is_legal(u):
                continue
            seen.add(u)
            out = result(rule, u)
            if out is None:
                continue
            try:
                prove_same(u, out, effort=10)
                proofs[dtype] += 1
            except Unproven:
                assert_same(u, out, most=3000)
                gave_up += 1
        assert proofs[dtype] >= NEEDED, f"{name_of(rule)} of {dtype.name}: {proofs[dtype]} proofs, {gave_up} open"


# -- all there is of a narrow type -----------------------------------------------------------------------------------
def small_instances(rule: Rule, dtype: DType, spans: list[tuple[int, int]]) -> Iterator[tuple[UOp, UOp]]:
    for u in every_small_instance(rule[0], dtype, spans):
        out = result(rule, u)
        if out is not None:
            yield u, out


@pytest.mark.parametrize("rule", numbered(integer_rules))
def test_integer_rule_on_all_values_of_four_bits(rule: Rule) -> None:
    for dtype in (dtypes.int4, dtypes.uint4):
        low, high = int(dtype.min), int(dtype.max)
        spans = [(low, high), (0, 7), (low + 1, low + 6)]
        for u, out in islice(small_instances(rule, dtype, spans), 30):
            assert_same(u, out)


@pytest.mark.slow
@pytest.mark.parametrize("rule", numbered(integer_rules))
def test_integer_rule_on_all_values_and_constants_of_four_bits(rule: Rule) -> None:
    for dtype in (dtypes.int4, dtypes.uint4):
        everything = range(int(dtype.min), int(dtype.max) + 1)
        spans = [(a, b) for a, b in product(everything, everything) if a <= b]
        for u, out in small_instances(rule, dtype, spans):
            assert_same(u, out)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_int], ids=lambda d: d.name)
@pytest.mark.parametrize("rule", numbered(integer_rules))
def test_integer_rule_of_every_type(rule: Rule, dtype: DType) -> None:
    proven = 0
    for u in islice(candidates(rule, dtype), 600):
        if proven < 12 and is_legal(u) and (out := result(rule, u)) is not None:
            try:
                prove_same(u, out, effort=10)
            except Unproven:
                assert_same(u, out, most=3000)
            proven += 1


# -- casts, floats, memory -------------------------------------------------------------------------------------------
def cast_chains(types: list[DType]) -> Iterator[tuple[Rule, UOp, UOp]]:
    rules = [r for r in integer_rules if r[0].ops in (frozenset({Ops.CAST}), frozenset({Ops.BITCAST}))]
    for dtype in types:
        for u in casts(dtype, types):
            for rule in rules:
                if (out := result(rule, u)) is not None:
                    yield rule, u, out


SMALL_FLOATS = [dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.float16, dtypes.bfloat16, dtypes.float32]


def check_chains(types: list[DType]) -> int:
    proven = 0
    for _, u, out in cast_chains(types):
        if any(n.dtype.is_float and n.dtype.name not in FLOAT_NAMES for n in u.toposort()):
            continue
        prove_same(u, out, effort=600)
        proven += 1
    return proven


FLOAT_NAMES = {"float16", "bfloat16", "float32", "float64"}


def test_casts_of_casts_through_floats() -> None:
    assert check_chains(SMALL_FLOATS) > 100


@pytest.mark.slow
def test_casts_of_casts_through_all_types() -> None:
    assert check_chains([d for d in ALL if d.kind != "index"]) > 400


# Z3 takes the square of the digits: many times as long for 32 bits as for 16
FLOATS = [
    pytest.param(dtypes.float16, id="float16"),
    pytest.param(dtypes.float32, id="float32", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rule", numbered(floats))
def test_float_rule(rule: Rule, dtype: DType) -> None:
    proofs = 0
    for seed in range(200):
        u = float_instance(rule[0], dtype, random.Random(seed), {})
        if u is None or proofs >= NEEDED:
            continue
        out = result(rule, u)
        if out is not None:
            prove_same(u, out, effort=600)
            proofs += 1
    assert proofs >= NEEDED, f"{name_of(rule)} of {dtype.name}: {proofs} proofs"


class Accesses(Numbers):
    """Loads are a function of their index, and zero where their gate is false; a store is whether, where and what."""

    def looks_into(self, u: UOp) -> tuple[UOp, ...]:
        return u.src if u.op is Ops.LOAD else u.src[1:] if u.op is Ops.STORE else ()

    def one(self, u: UOp, src: list[z3.ExprRef]) -> z3.ExprRef:
        if u.op is Ops.CONST and u.dtype.is_float:
            return z3.RealVal(u.arg)
        if u.op is Ops.LOAD:
            held = z3.Function(f"memory{u.src[0].arg.slot}", z3.IntSort(), z3.RealSort())(src[1])
            return z3.If(src[2], held, 0) if len(src) > 2 else held
        if u.op is Ops.STORE:
            done = z3.Function("stored", z3.IntSort(), z3.RealSort(), z3.IntSort())(src[0], src[1])
            return z3.If(src[2], done, -1) if len(src) > 2 else done
        return super().one(u, src)


@pytest.mark.parametrize("rule", numbered(memory))
def test_memory_rule(rule: Rule) -> None:
    proofs = 0
    for seed in range(20):
        for u in accesses(random.Random(seed)):
            out = result(rule, u)
            if out is not None:
                terms = Accesses()
                model = solve(terms, differ(terms(u), terms(out)))
                assert model is None, f"{show(u)}  →  {show(out)}: {model}"
                proofs += 1
    assert proofs >= NEEDED, f"{name_of(rule)}: {proofs} proofs"


def test_an_unsound_rule_is_found() -> None:
    """The proofs are no formality: rules that are nearly right are refused."""
    from tinyweb.graph.ir import any_node, constant

    x, y = any_node("x"), any_node("y")
    wrong: list[Rule] = [
        (UPat(Ops.FLOORDIV, src=[UPat(Ops.ADD, src=[x, constant("c")]), constant("d")]),
         lambda x, c, d: x // d + c // d),
        (UPat(Ops.MAX, dtype=dtypes.uint32, src=[x, constant(value=0)]), lambda x: x + 1),
        (UPat(Ops.LESS, src=[x, y]), lambda x, y: (x - y) < 0),
        (UPat(Ops.XOR, src=[UPat(Ops.AND, src=[x, y]), UPat(Ops.CONST, arg=True)]),
         lambda x, y: x.logical_not() & y.logical_not()),
    ]  # fmt: skip
    for rule in wrong:
        with pytest.raises(AssertionError):
            test_integer_rule(rule)
