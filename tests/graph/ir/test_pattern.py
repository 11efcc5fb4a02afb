"""Patterns, tables of rules, and the walk over a graph."""

from __future__ import annotations

import pytest

from tests.graph.ir.graphs import F32, INDEX, const, loop, param, tensor_graph
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import (
    Ops,
    PatternMatcher,
    UOp,
    UPat,
    any_node,
    as_index,
    below,
    constant,
    graph_rewrite,
    substitute,
)

i, j = loop("i", 10), loop("j", 5, 1)


def all_matches(pattern: UPat, u: UOp) -> list[dict[str, UOp]]:
    return list(pattern.match(u, {}))


def test_ops_dtypes_and_args() -> None:
    assert all_matches(UPat(Ops.ADD), i + 1) and not all_matches(UPat(Ops.MUL), i + 1)
    assert all_matches(UPat((Ops.ADD, Ops.MUL), dtype=INDEX), i + 1)
    assert not all_matches(UPat(Ops.ADD, dtype=F32), i + 1)
    assert all_matches(UPat(None, dtype=(INDEX, F32)), i)
    assert all_matches(constant(value=1), as_index(1)) and not all_matches(constant(value=1), as_index(2))
    assert not all_matches(UPat(Ops.ADD, where=lambda u: u.src[0] is j), i + 1)


def test_sources() -> None:
    x, y = any_node("x"), any_node("y")
    assert all_matches(UPat(Ops.FLOORDIV, src=[x, y]), i // j) == [{"x": i, "y": j}]
    both = all_matches(UPat(Ops.ADD, src=[x, y]), i + j)
    assert both == [{"x": i, "y": j}, {"x": j, "y": i}], "commutative operations match both ways round"
    assert not all_matches(UPat(Ops.ADD, src=[x]), i + j)
    store = param(0, 4).store(as_index(0), const(1.0))
    assert all_matches(UPat(Ops.STORE, src=[x], rest=True), store) == [{"x": param(0, 4)}]
    assert all_matches(UPat(Ops.ADD, src=UPat(Ops.RANGE)), i + j) and not all_matches(
        UPat(Ops.ADD, src=UPat(Ops.RANGE)), i + 1
    )


def test_a_name_stands_for_one_node() -> None:
    pattern = UPat(Ops.ADD, src=[UPat(Ops.MUL, src=[any_node("x"), constant("c")]), any_node("x")], name="u")
    assert all_matches(pattern, i * 3 + i) == [{"u": i * 3 + i, "x": i, "c": as_index(3)}]
    assert all_matches(pattern, i + i * 3), "in either order"
    assert not all_matches(pattern, i * 3 + j)


def test_the_first_rule_that_changes_something_wins() -> None:
    table = PatternMatcher(
        [
            (UPat(Ops.ADD, name="u"), lambda u: u),
            (UPat(Ops.ADD, src=[any_node("x"), constant(value=0)]), lambda x: None),
            (UPat(None, name="u"), lambda u: as_index(7) if u.op is Ops.ADD else None),
            (UPat(Ops.ADD, src=[any_node("x"), constant(value=0)]), lambda x: x),
        ]
    )
    assert table.rewrite(i + 0) is as_index(7)
    assert table.rewrite(i * 2) is None


def test_tables_add_up_and_take_a_context() -> None:
    first = PatternMatcher([(UPat(Ops.CONST, name="c"), lambda c, ctx: ctx.get(c))])
    both = first + PatternMatcher([(UPat(Ops.MUL, src=[any_node("x"), any_node("y")]), lambda x, y: x + y)])
    assert graph_rewrite(i * 2, both, ctx={as_index(2): as_index(5)}) is i + 5


def test_rewriting_goes_on_until_nothing_applies() -> None:
    halve = PatternMatcher(
        [(UPat(Ops.CONST, dtype=INDEX, name="c"), lambda c: as_index(c.arg // 2) if c.arg > 3 else None)]
    )
    assert graph_rewrite(i * 100 + 9, halve) is loop("i", 2) * 3 + 2


def test_results_can_be_kept_on_the_nodes() -> None:
    asked: list[UOp] = []

    def rule(u: UOp) -> UOp | None:
        asked.append(u)
        return u.src[0] * 3 if u.src[1] is as_index(2) else None

    table = PatternMatcher([(UPat(Ops.MUL, name="u"), rule)])
    first = graph_rewrite(i * 2 + j * 5, table, keep="_thrice")
    assert first is i * 3 + j * 5 and asked == [j * 5, i * 2, i * 3]
    assert graph_rewrite(i * 2 + 1, table, keep="_thrice") is i * 3 + 1
    assert graph_rewrite(first, table, keep="_thrice") is first
    assert len(asked) == 3, "no node twice"


PATTERNS = [
    UPat(Ops.ADD),
    UPat((Ops.ADD, Ops.MUL), dtype=INDEX, name="u"),
    UPat(None, dtype=(INDEX, F32), name="u"),
    UPat(Ops.ADD, src=[any_node("x"), any_node("y")]),
    UPat(Ops.ADD, src=[any_node("x"), any_node("x")], name="u"),
    UPat(Ops.FLOORDIV, src=[any_node("x"), constant("c")]),
    UPat((Ops.ADD, Ops.FLOORDIV), src=[any_node("x"), UPat((Ops.RANGE, Ops.CONST), name="y")]),
    UPat(None, src=[any_node("x"), UPat(None, src=[any_node("y"), any_node("z")], name="w")]),
    UPat(Ops.ADD, src=[UPat(Ops.MUL, src=[any_node("x"), constant("c")]), any_node("x")], name="u"),
    UPat(Ops.ADD, src=[UPat(Ops.MUL, src=[any_node("x"), any_node("y")]), UPat(None, src=[any_node("y")], rest=True)]),
    UPat(Ops.ADD, src=[UPat(Ops.ADD, src=[any_node("x"), constant("c", 1)], name="v"), constant("d")], name="u"),
    UPat(Ops.MUL, src=UPat((Ops.RANGE, Ops.CONST)), name="u"),
    UPat(None, src=UPat(Ops.RANGE, name="r"), name="u"),
    UPat(Ops.STORE, src=[any_node("x")], rest=True),
    UPat(Ops.STORE, src=[any_node(), any_node("i"), UPat(Ops.CONST, dtype=F32, name="c")]),
    UPat(Ops.ADD, name="u", where=lambda u: u.src[1].op is Ops.CONST),
    UPat(Ops.RANGE, src=[], name="u"),
    UPat(Ops.CONST, src=[], name="u", arg=0),
]  # fmt: skip
NODES = [
    *(i * 3 + i + 1 + 2).toposort(), *(i * j + j * (i + 1)).toposort(), *((i + j) // 4 + (j + j)).toposort(), i * j,
    *param(0, 4).store(as_index(0), const(1.0)).toposort(), const(1.0) + const(0.0), (i + 1) + (j + 1),
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_compiled_rules_match_as_patterns_do(pattern: UPat) -> None:
    """In the same order, with the same names; a rule that declines is asked about every other way."""
    for u in NODES:
        tried: list[dict[str, UOp]] = []

        def rule(tried: list[dict[str, UOp]] = tried, **names: UOp) -> None:
            tried.append(names)

        assert PatternMatcher([(pattern, rule)]).rewrite(u) is None
        assert tried == all_matches(pattern, u), u


def test_new_nodes_are_rewritten_too() -> None:
    table = PatternMatcher(
        [
            (UPat(Ops.MUL, src=[any_node("x"), constant("c")]), lambda x, c: (x + c) + c),
            (UPat(Ops.ADD, src=[any_node("x"), constant(value=2)]), lambda x: x.maximum(9)),
        ]
    )
    assert graph_rewrite(i * 2, table) is i.maximum(9).maximum(9)


def test_rules_that_go_in_a_circle_are_refused() -> None:
    swap = PatternMatcher([(UPat(Ops.ADD, src=[any_node("x"), any_node("y")]), lambda x, y: y + x)])
    with pytest.raises(RuntimeError, match="circle"):
        graph_rewrite(i + j, swap)
    grow = PatternMatcher([(UPat(Ops.RANGE, name="u"), lambda u: u + 1)])
    with pytest.raises(RuntimeError, match="circle"):
        graph_rewrite(i * 2, grow)


def test_deep_graphs() -> None:
    x: UOp = i
    for _ in range(5000):
        x = x.alu(Ops.XOR, 5)
    table = PatternMatcher([(UPat(Ops.XOR, src=[any_node("x"), any_node("y")]), lambda x, y: x + y)])
    assert len(graph_rewrite(x, table).toposort()) == len(x.toposort())


def test_what_lies_below() -> None:
    """Each node once, users first, and nothing that only what is not gone into has."""
    product, both = i * j, i * j + i
    everything = list(below([both], lambda u: True))
    assert everything[0] is both and sorted(everything, key=id) == sorted(both.toposort(), key=id)
    assert list(below([both, both], lambda u: u.op is not Ops.MUL)).count(product) == 1
    assert j not in list(below([both], lambda u: u.op is not Ops.MUL)) and list(below([], lambda u: True)) == []


def test_substitute() -> None:
    assert substitute(i * 4 + j, {i: j}) is j * 4 + j
    assert substitute(i * 4 + i, {i: i + 1}) is (i + 1) * 4 + (i + 1), "replacements are not looked into"
    assert substitute(i * 4, {i * 4: j, i: j + 1}) is j, "outermost first"
    root = tensor_graph()
    assert substitute(root, {}) is root
    assert substitute(const(1.0), {const(1.0): const(2.0)}) is const(2.0)
    assert substitute(i.cast(dtypes.int32), {i: j}) is j.cast(dtypes.int32)


def naive_substitute(u: UOp, table: dict[UOp, UOp]) -> UOp:
    return table[u] if u in table else u.replace(src=tuple(naive_substitute(s, table) for s in u.src))


def test_substitute_finds_what_was_made_before_and_after() -> None:
    """Nodes older than what is looked for are not walked: they must be found all the same wherever they may be."""
    late = loop("made last", 3)
    early = i * 4 + j
    root = (early + late) // (j + 2) + (late * i) % 7
    new = loop("new", 5)
    for u in root.toposort():
        if u.dtype is INDEX:
            assert substitute(root, {u: new}) is naive_substitute(root, {u: new}), u
            assert substitute(early, {u: new}) is naive_substitute(early, {u: new}), u
            assert substitute(root, {u: new, late: i}) is naive_substitute(root, {u: new, late: i}), u
