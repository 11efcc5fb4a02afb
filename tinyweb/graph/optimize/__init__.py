"""One kernel becomes a faster kernel by a schedule: a tuple of named, checked actions."""

from tinyweb.graph.optimize.actions import Action, Bind, GroupReduce, Reorder, Schedule, ScheduleError, Split, from_json, to_json
from tinyweb.graph.optimize.apply import apply, optimize
from tinyweb.graph.optimize.heuristic import heuristic
from tinyweb.graph.optimize.merge import merge_reduces

__all__ = [
    "Action", "Bind", "GroupReduce", "Reorder", "Schedule", "ScheduleError", "Split", "apply", "from_json", "heuristic",
    "merge_reduces", "optimize", "to_json",
]  # fmt: skip
