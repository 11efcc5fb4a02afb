"""One sensible schedule per kind of target."""

from __future__ import annotations

from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize.actions import Action, Schedule
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.for_c import schedule_for_c
from tinyweb.graph.optimize.for_dot import schedule_for_dots
from tinyweb.graph.optimize.for_gpu import schedule_for_gpu
from tinyweb.graph.optimize.for_numpy import schedule_for_numpy
from tinyweb.graph.optimize.for_softmax import schedule_for_softmax
from tinyweb.graph.optimize.merge import merge_reduces
from tinyweb.graph.optimize.online import softmaxes
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target


def heuristic(kernel: UOp, target: Target) -> Schedule:
    """A schedule for `kernel` on `target`; what it returns is legal there."""
    analysis = Analysis(simplify(merge_reduces(kernel)))
    actions: list[Action] | None
    for softmax in softmaxes(analysis.kernel):
        actions = schedule_for_softmax(analysis, softmax, target)
        if actions is not None:
            return tuple(actions)
    if target.has_threads:
        actions = schedule_for_gpu(analysis, target)
    elif target.language == "c":
        actions = schedule_for_dots(analysis, target) or schedule_for_c(analysis, target)
    else:
        actions = schedule_for_numpy(analysis)
    return tuple(actions)
