"""Operations of arithmetic that compiled kernels execute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

from benchmarks.count.program import operations
from tinyweb import Tensor
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import Target
from tinyweb.tracing import Plan, capture

MANY = 1 << 20
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "max": lambda x, y: x.maximum(y),
    "relu": lambda x, y: x.relu(),
    "sqrt": lambda x, y: x.sqrt(),
    "exp": lambda x, y: x.exp(),
    "log": lambda x, y: x.log(),
    "log1p": lambda x, y: x.log1p(),
    "sin": lambda x, y: x.sin(),
    "tanh": lambda x, y: x.tanh(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "erf": lambda x, y: x.erf(),
    "gelu": lambda x, y: x.gelu(),
    "pow": lambda x, y: x.abs().pow(y),
    "nan_choice": lambda x, y: x.isnan().where(y, x),
    "half": lambda x, y: x.half().float(),
    "erfc": lambda x, y: x.erfc(),
    "divide_by_constant": lambda x, y: x / 3,
    "divide_by_row": lambda x, y: x.reshape(1024, -1) / y[:1024].reshape(1024, 1),
    "int": lambda x, y: x.int(),
    "modulo": lambda x, y: x.bitcast("int32") % 1001,
    "key": lambda x, y: x._order_keys(False)[0],  # an integer in the order of the floats, NaN being the largest
}
"""What is needed of a function is what we take for one of its values: polynomials are not held against a kernel."""


def executed(plan: Plan, target: Target) -> int:
    """By all launches of a plan."""
    return sum(operations(program_for(call.kernel, target)) for call in plan.calls)


def total(needed: Counter[str], target: Target) -> int:
    """What is needed, as one number of operations."""
    return sum(count * (_cost(name, target) if name else 1) for name, count in needed.items())


@cache
def _cost(name: str, target: Target) -> int:
    """Operations of one value of a function."""
    plan = capture(lambda: FUNCTIONS[name](Tensor.empty(MANY), Tensor.empty(MANY)).realize())
    return round(executed(plan, target) / MANY)
