"""GPUs: a file for each kind of kernel, and one for the steps they are made of."""

from __future__ import annotations

from tinyweb.graph.optimize.actions import Action
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.for_gpu.elementwise import elementwise
from tinyweb.graph.optimize.for_gpu.plan import WORKGROUP, Plan
from tinyweb.graph.optimize.for_gpu.reduction import reduction
from tinyweb.graph.target import Target


def schedule_for_gpu(k: Analysis, target: Target) -> list[Action]:
    """Actions for a kernel on a GPU."""
    plan = Plan(k, target)
    if k.heavy is None:
        elementwise(plan)
    else:
        reduction(plan, k.heavy)
    plan.grid()
    return plan.actions


def schedule_threads(k: Analysis, target: Target) -> list[Action]:
    """A thread for each output."""
    plan = Plan(k, target)
    plan.spread(plan.by_nearness(k.outputs), WORKGROUP)
    plan.grid()
    return plan.actions
