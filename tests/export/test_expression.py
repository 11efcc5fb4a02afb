"""Sizes as JSON trees, evaluated as a loader evaluates them."""

from collections.abc import Mapping
from typing import Any

import pytest

from tinyweb.dtype import dtypes
from tinyweb.export.expression import expression
from tinyweb.graph.ir import Ops, UOp, Variable, size_add, size_mul, size_sub


def evaluate(tree: Any, values: Mapping[str, int]) -> int:
    if isinstance(tree, int):
        return tree
    if "var" in tree:
        return values[tree["var"]]
    a, b = (evaluate(t, values) for t in tree["args"])
    return {"add": a + b, "mul": a * b, "floordiv": a // b if b else 0, "mod": a % b if b else 0, "max": max(a, b)}[
        tree["op"]
    ]


def test_numbers_and_variables() -> None:
    assert expression(7) == 7
    assert expression(UOp.const(7, dtypes.index)) == 7
    start = Variable("start_pos", 0, 511)
    assert expression(start) == {"var": "start_pos"}
    assert expression(start.bind(3)) == {"var": "start_pos"}


@pytest.mark.parametrize("start", [0, 1, 7, 64, 511])
@pytest.mark.parametrize("count", [1, 8, 63])
def test_what_a_loader_computes(start: int, count: int) -> None:
    s, c = Variable("start_pos", 0, 511), Variable("count", 1, 64)
    values = {"start_pos": start, "count": count}
    end = size_add(s, c)
    assert isinstance(end, UOp)
    assert evaluate(expression(end), values) == start + count
    assert evaluate(expression((end + 63) // 64), values) == (start + count + 63) // 64
    assert evaluate(expression(end % 8), values) == (start + count) % 8
    assert evaluate(expression(size_mul(end, 3)), values) == 3 * (start + count)
    assert evaluate(expression(size_sub(s, c)), values) == start - count
    assert evaluate(expression(size_sub(s, c) // 4), values) == (start - count) // 4  # type: ignore[operator]
    assert evaluate(expression(s.maximum(c)), values) == max(start, count)


def test_what_has_no_spelling() -> None:
    with pytest.raises(NotImplementedError, match="XOR"):
        expression(UOp(Ops.XOR, dtypes.index, (Variable("a", 0, 3), UOp.const(1, dtypes.index))))
