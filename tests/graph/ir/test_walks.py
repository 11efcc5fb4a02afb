"""Walks over graphs of any nodes: each node once, in the order that they promise."""

from __future__ import annotations

from itertools import islice

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, Variable, below, in_order, reached

EDGES = {1: [2, 3], 2: [4], 3: [4, 5], 4: [6], 5: [], 6: [], 7: [1]}


def test_all_that_is_reached_comes_once_and_later() -> None:
    found = list(reached([1], EDGES.__getitem__))
    assert sorted(found) == [1, 2, 3, 4, 5, 6] and found[0] == 1 and found.index(6) > found.index(4)
    assert list(reached([], EDGES.__getitem__)) == []
    assert sorted(reached([5, 2], EDGES.__getitem__)) == [2, 4, 5, 6]


def test_a_circle_is_walked_once_and_no_further_than_is_asked() -> None:
    assert sorted(reached([0], lambda n: [(n + 1) % 5])) == [0, 1, 2, 3, 4]
    assert list(islice(reached([0], lambda n: [n + 1]), 3)) == [0, 1, 2]


def test_what_is_needed_comes_before() -> None:
    assert in_order([7], EDGES.__getitem__) == [6, 4, 2, 5, 3, 1, 7]
    assert in_order([5, 4], EDGES.__getitem__) == [5, 6, 4] and in_order([], EDGES.__getitem__) == []
    assert in_order([0], lambda n: [n + 1] if n < 5000 else []) == list(range(5000, -1, -1))


def test_the_order_of_a_graph_is_that_of_its_sources() -> None:
    x, y = Variable("x", 0, 9), Variable("y", 0, 9)
    u = (x + y) * (y + 3) + x
    assert in_order([u], lambda u: u.src) == u.toposort()


def test_below_goes_into_some_nodes() -> None:
    x, y = Variable("x", 0, 9), Variable("y", 0, 9)
    u = (x * 2 + y) * 3 + x // 2
    sums = [n for n in below([u], lambda n: n.op is Ops.ADD) if n.op is not Ops.ADD]
    assert {n.op for n in sums} == {Ops.MUL, Ops.FLOORDIV} and UOp.const(2, dtypes.index) not in sums
