"""Schedules applied to kernels."""

from __future__ import annotations

from collections.abc import Iterable

from tinyweb.graph.ir import KernelInfo, UOp
from tinyweb.graph.ir.kernel_spec import kernel_spec
from tinyweb.graph.ir.spec import verify
from tinyweb.graph.optimize.action import Action
from tinyweb.graph.optimize.merge import prepared
from tinyweb.graph.symbolic import simplify


def apply(kernel: UOp, schedule: Iterable[Action]) -> UOp:
    """The kernel after all actions; ScheduleError at the first that does not fit.

    Reductions that can share a loop are merged first: actions then name the ranges of the first of them.
    """
    whole = prepared(kernel)
    verify("merging reductions", whole, kernel_spec)
    actions = tuple(schedule)
    return finished(kernel, applied(whole, actions), actions)


def applied(kernel: UOp, actions: Iterable[Action]) -> UOp:
    """A prepared kernel, or what earlier actions have made of one, after further ones."""
    for action in actions:
        kernel = action.apply(kernel)
        verify(str(action), kernel, kernel_spec)
    return kernel


def finished(kernel: UOp, scheduled: UOp, actions: Iterable[Action]) -> UOp:
    """What `apply` returns once all actions have made `scheduled` of `kernel`."""
    info = kernel.arg if isinstance(kernel.arg, KernelInfo) else KernelInfo()
    lines = (*info.schedule, *(str(a) for a in actions))
    out = simplify(scheduled).replace(arg=KernelInfo(info.name, lines))
    verify("optimize", out, kernel_spec)
    return out
