"""GPUs: a file for each kind of kernel, and one for the steps they are made of."""

from __future__ import annotations

from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.for_gpu.elementwise import elementwise
from tinyweb.graph.optimize.for_gpu.plan import WORKGROUP, Plan
from tinyweb.graph.optimize.for_gpu.reduction import reduction


def schedule_for_gpu(b: Builder) -> bool:
    """Any kernel on a GPU."""
    plan = Plan(b.k, b.target)
    if b.k.heavy is None:
        elementwise(plan)
    else:
        reduction(plan, b.k.heavy)
    plan.grid()
    b.do(*plan.actions)
    return True


def schedule_threads(b: Builder) -> bool:
    """A thread for each output."""
    plan = Plan(b.k, b.target)
    plan.spread(plan.by_nearness(b.k.outputs), WORKGROUP)
    plan.grid()
    b.do(*plan.actions)
    return True
