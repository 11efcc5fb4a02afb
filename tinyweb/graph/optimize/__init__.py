"""Stage 3: one kernel becomes a faster kernel through a schedule, a tuple of named, checked actions."""

from tinyweb.graph.optimize.actions import (
    Action,
    Bind,
    GroupReduce,
    Reorder,
    ScheduleError,
    Split,
    Stage,
    schedule_from_json,
    schedule_to_json,
)
from tinyweb.graph.optimize.applying import apply, apply_action
from tinyweb.graph.optimize.heuristics import heuristic, optimize
from tinyweb.graph.optimize.merge import merge_reduces

__all__ = [
    "Action", "Bind", "GroupReduce", "Reorder", "ScheduleError", "Split", "Stage", "apply", "apply_action", "heuristic",
    "merge_reduces", "optimize", "schedule_from_json", "schedule_to_json",
]  # fmt: skip
