"""Operations of arithmetic that compiled kernels execute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

from tinyweb import Tensor
from tinyweb.device import Device
from tinyweb.graph.ir import COMPARISON, ELEMENTWISE, Ops, UOp, size_max
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.tracing import Plan, capture

MANY = 1024
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "max": lambda x, y: x.maximum(y),
    "relu": lambda x, y: x.relu(),
    "exp": lambda x, y: x.exp(),
    "log": lambda x, y: x.log(),
    "log1p": lambda x, y: x.log1p(),
    "sin": lambda x, y: x.sin(),
    "tanh": lambda x, y: x.tanh(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "erf": lambda x, y: x.erf(),
    "gelu": lambda x, y: x.gelu(),
    "pow": lambda x, y: x.abs().pow(y),
    "half": lambda x, y: x.half().float(),
}
"""What is needed of a function is what we take for one of its values: polynomials are not held against a kernel."""


def operations(program: Program) -> int:
    """Those on values: not of addresses, of masks alone, or that only name the same bits otherwise.

    A multiply-add is two, a dot product of small integers two for each pair, and a vector as many as it has lanes.
    Loops whose number of steps is known only when they run count with the most they may have.
    """
    trips, total = math.prod(map(size_max, program.grid)) * math.prod(program.workgroup), 0
    above: list[int] = []
    for u in program.uops:
        if u.op is Ops.RANGE:
            above.append(trips)
            trips *= size_max(u.src[0])
        elif u.op is Ops.END:
            trips = above.pop()
        else:
            total += trips * _each(u)
    return total


def _each(u: UOp) -> int:
    if u.op is Ops.DOT:
        return 2 * math.prod(map(size_max, u.src[1].shape))
    values = u.src[0].dtype if u.op in COMPARISON else u.dtype
    if u.op not in ELEMENTWISE or u.op is Ops.BITCAST or values.kind in ("index", "bool"):
        return 0
    return (2 if u.op is Ops.MULADD else 1) * math.prod(map(size_max, u.shape))


def executed(plan: Plan, target: Target) -> int:
    """By all launches of a plan."""
    return sum(operations(program_for(call.kernel, target)) for call in plan.calls)


def total(needed: Counter[str]) -> int:
    """What is needed, as one number of operations."""
    return sum(count * (_cost(name) if name else 1) for name, count in needed.items())


@cache
def _cost(name: str) -> int:
    """Operations of one value of a function."""
    plan = capture(lambda: FUNCTIONS[name](Tensor.empty(MANY), Tensor.empty(MANY)).realize())
    return round(executed(plan, Device["CPU"].runtime.target) / MANY)
