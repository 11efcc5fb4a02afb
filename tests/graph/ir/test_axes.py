"""What is asked of ranges, and rebuilding a graph node by node."""

from __future__ import annotations

import pytest

from tests.graph.lower.hand_kernels import axes, param, total
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, Variable, axis_size, lane_count, nested, rebuild, row_major


def test_sizes_and_order() -> None:
    n = Variable("n", 1, 9)
    i, j = axes(4, n)
    assert axis_size(i) == 4 and axis_size(j) is n and nested([j, i]) == [i, j]
    with pytest.raises(ValueError, match="axis i1 is bound to loop and needs a constant size"):
        lane_count(j)


def test_the_number_of_a_step() -> None:
    i, j, k = axes(4, 5, 6)
    assert row_major([i, j, k]).vmax == 4 * 5 * 6 - 1 and row_major([]).arg == 0
    assert row_major([i, j]) is (UOp.const(0, dtypes.index) * 4 + i) * 5 + j


def test_nodes_are_rebuilt_from_the_sources_up() -> None:
    (i,), (r,) = axes(4), axes(8, reduce=True, first=1)
    a = param(1, 32)
    sums = total(a.load(i * 8 + r), r)
    assert sums.with_sources(sums.src) is sums

    def doubled(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return u.with_sources(src) * 2.0 if u.op is Ops.LOAD else None

    out = rebuild(sums.toposort(), doubled)
    assert out[sums] is total(a.load(i * 8 + r) * 2.0, r) and out[i] is i
