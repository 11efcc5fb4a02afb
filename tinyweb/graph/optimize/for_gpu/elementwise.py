"""Kernels without reductions."""

from __future__ import annotations

from tinyweb.graph.optimize.for_gpu.plan import WORKGROUP, Plan


def elementwise(plan: Plan) -> None:
    """A vector along the axis that the stores follow, threads along it first."""
    plan.vector_along_stores(plan.k.outputs)
    plan.spread(plan.by_nearness(plan.k.outputs), WORKGROUP)
