"""Nodes: interning, shapes, ranges, order; and sizes."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys

import pytest

from tests.graph.ir.graphs import (
    BOOL,
    F32,
    INDEX,
    buffer,
    const,
    kernel_graph,
    loop,
    param,
    reshape,
    start,
    tensor_graph,
)
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import (
    AxisKind,
    Ops,
    UOp,
    Variable,
    as_index,
    size_add,
    size_max,
    size_mul,
    size_prod,
    size_sub,
    toposort,
    users,
)

i, j = loop("i", 10), loop("j", 5, 1)


def test_equal_nodes_are_one() -> None:
    assert (i + j * 3) is (i + j * 3)
    assert UOp.const(1, INDEX) is not UOp.const(1, dtypes.int32)
    assert UOp.const(0.0, F32) is not UOp.const(-0.0, F32)
    assert UOp.const(float("nan"), F32) is UOp.const(float("nan"), F32)


def test_constants_wrap() -> None:
    assert UOp.const(300, dtypes.uint8).arg == 44
    assert UOp.const(200, dtypes.int8).arg == -56
    assert UOp.const(1, BOOL).arg is True
    assert UOp.const(2, F32).arg == 2.0 and isinstance(UOp.const(2, F32).arg, float)


def test_nodes_that_nobody_holds_are_freed() -> None:
    name = "only here"
    before = len(UOp._interned)
    u = loop(name, 3) * 17 + 5
    assert len(UOp._interned) > before
    del u
    gc.collect()
    assert len(UOp._interned) <= before


def test_pickling_keeps_identity() -> None:
    root = kernel_graph()
    assert pickle.loads(pickle.dumps(root)) is root


def test_deep_graphs_need_no_deep_stack() -> None:
    x: UOp = i
    for n in range(20000):
        x = x + (n % 7)
    assert x.bounds[0] == sum(n % 7 for n in range(20000))
    assert x.ranges == {i}
    assert x.shape == () and x.lanes == ()
    assert x.order_key[2] == 20002
    assert len(x.toposort()) == len(set(x.toposort()))


def test_toposort_and_users() -> None:
    root = tensor_graph()
    order = root.toposort()
    place = {u: n for n, u in enumerate(order)}
    assert len(place) == len(order)
    assert all(place[s] < place[u] for u in order for s in u.src)
    assert toposort([root, root.src[0]]) == order
    for u, of in users([root]).items():
        assert all(u in n.src for n in of) and len(of) == len(set(of))


# -- shapes -----------------------------------------------------------------------------------------------------------
def test_shapes_of_tensors() -> None:
    x = reshape(buffer(0, 12), 3, 4)
    assert x.shape == (3, 4)
    assert UOp(Ops.PERMUTE, F32, (x,), (1, 0)).shape == (4, 3)
    assert UOp(Ops.PAD, F32, (x,), ((1, 2), (0, 3))).shape == (6, 7)
    assert UOp(Ops.SHRINK, F32, (x,), ((1, 3), (0, 4))).shape == (2, 4)
    assert UOp(Ops.REDUCE, F32, (x,), (Ops.ADD, (1,))).shape == (3, 1)
    assert (x + 1.0).shape == (3, 4) and (x < 1.0).shape == (3, 4)
    take = UOp(Ops.TAKE, F32, (x, UOp(Ops.IOTA, dtypes.int32, (), 7)), 0)
    assert take.shape == (7, 4)
    symbolic = UOp(Ops.SHRINK, F32, (x,), ((0, start), (0, 4)))
    assert symbolic.shape == (start, 4)
    assert UOp(Ops.SHRINK, F32, (x,), ((start, size_add(start, 2)), (0, 4))).shape == (2, 4)


def test_lanes_are_the_shape_of_kernel_nodes() -> None:
    lane, rows = loop("v", 4, 5, AxisKind.VECTOR), loop("u", 8, 2, AxisKind.UNROLL)
    data = param(0, 1000)
    x = data.load(i * 32 + rows * 4 + lane)
    assert x.lanes == (rows, lane) and x.shape == (8, 4)
    assert (x * data.load(i)).shape == (8, 4)
    assert data.load(i).shape == ()
    total = UOp(Ops.REDUCE, F32, (x, loop("r", 3, 9, reduce=True), lane), Ops.ADD)
    assert total.lanes == (rows,) and total.shape == (8,)
    assert x.ranges == {i, rows, lane}
    assert total.ranges == {i, rows}


def test_vectors_of_programs() -> None:
    vector = UOp(Ops.LOAD, F32, (param(0, 8), as_index(0)), 4)
    assert vector.shape == (4,) and (vector + vector).shape == (4,)
    assert UOp(Ops.LANE, F32, (vector,), 1).shape == ()
    assert UOp(Ops.STACK, F32, (const(1.0), const(2.0))).shape == (2,)


# -- order ------------------------------------------------------------------------------------------------------------
def test_order_is_from_the_outer_loops_in() -> None:
    nodes = [j * 2, start, i, j, start * 2, i * 3]
    assert sorted(nodes, key=lambda u: u.order_key) == [start, start * 2, i, i * 3, j, j * 2]
    assert (i + j).order_key > j.order_key


def test_order_is_the_same_in_every_run() -> None:
    code = (
        "from tests.graph.ir.graphs import *\n"
        "from tests.graph.symbolic.oracle import *\n"
        "import random\n"
        "nodes = [u for s in range(20) for u in Maker(random.Random(s), index_leaves()).integer(3).toposort()]\n"
        "print([hash_free for u in nodes for hash_free in [u.order_key]])\n"
    )
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, text=True, timeout=120).stdout for _ in range(2)]
    assert runs[0] == runs[1] and len(runs[0]) > 1000


def test_order_tells_different_nodes_apart() -> None:
    nodes = {u for root in (tensor_graph(), kernel_graph()) for u in root.toposort()}
    assert len({u.order_key for u in nodes}) == len(nodes)


# -- sizes ------------------------------------------------------------------------------------------------------------
def test_sizes_are_canonical() -> None:
    n = Variable("n", 1, 10)
    assert size_add(2, 3) == 5
    assert size_sub(size_add(n, 3), n) == 3
    assert size_mul(size_add(n, 1), 4) is size_add(size_mul(4, n), 4)
    assert size_mul(n, start) is size_mul(start, n)
    assert size_prod([2, n, 3]) is size_mul(n, 6)
    assert size_prod([]) == 1
    assert size_add(n.bind(4), 1) is size_add(n, 1), "a shape speaks of the variable, not of its value"
    assert size_max(size_mul(size_add(n, 1), 4)) == 44
    assert size_mul(size_add(n, start), size_sub(n, start)) is size_sub(size_mul(n, n), size_mul(start, start))


def test_variables_have_bounds() -> None:
    n = Variable("n", 2, 10)
    assert n.bounds == (2, 10)
    assert (n * -3 + 1).bounds == (-29, -5)
    with pytest.raises(ValueError, match=r"within \[2, 10\], got 11"):
        n.bind(11)
    with pytest.raises(ValueError, match="above maximum"):
        Variable("m", 3, 2)
    with pytest.raises(TypeError, match="only a Variable"):
        (n + 1).bind(3)


def test_floats_have_no_bounds() -> None:
    with pytest.raises(TypeError, match="no integer bounds"):
        _ = const(1.0).bounds


def test_bounds_of_vectors() -> None:
    pair = UOp(Ops.STACK, INDEX, (i, j + 20))
    assert pair.bounds == (0, 24) and (pair + pair).bounds == (0, 48)
    assert UOp(Ops.LANE, INDEX, (pair,), 1).bounds == (0, 24)


def test_an_overflow_leaves_nothing_known() -> None:
    x = UOp(Ops.VARIABLE, dtypes.int8, (), ("x", 0, 100))
    assert (x + x).bounds == (-128, 127)
    assert (x + 27).bounds == (27, 127)


def test_bounds_of_a_choice_between_what_was_compared() -> None:
    x, y = Variable("x", 0, 100), Variable("y", 5, 20)
    assert (x < y).where(x, y).bounds == (0, 20) and (x < y).where(y, x).bounds == (5, 100)
    assert (x < 10).where(x, y).bounds == (0, 20) and (x < 10).where(x, x + 1).bounds == (0, 101)
    assert (x < 10).where(y, x).bounds == (5, 100) and (y < x).where(x, y).bounds == (0, 100)
