"""One kernel becomes a faster kernel by a schedule: a tuple of named, checked actions."""

from tinyweb.graph.optimize.action import Action, FallbackWarning, Schedule, ScheduleError
from tinyweb.graph.optimize.actions import Bind, Peel, Reorder, Split, apply, from_json, to_json
from tinyweb.graph.optimize.choose import heuristic, optimize, optimize_then
from tinyweb.graph.optimize.divide import Divide
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.hoist import Hoist
from tinyweb.graph.optimize.merge import prepared
from tinyweb.graph.optimize.online import Online
from tinyweb.graph.optimize.prefetch import Prefetch
from tinyweb.graph.optimize.reuse import Reuse
from tinyweb.graph.optimize.stage import Stage
from tinyweb.graph.optimize.tensorize import Factor, RFactor, Tensorize

__all__ = [
    "Action",
    "Bind",
    "Divide",
    "Factor",
    "FallbackWarning",
    "Fuse",
    "Hoist",
    "Online",
    "Peel",
    "Prefetch",
    "RFactor",
    "Reorder",
    "Reuse",
    "Schedule",
    "ScheduleError",
    "Split",
    "Stage",
    "Tensorize",
    "apply",
    "from_json",
    "heuristic",
    "optimize",
    "optimize_then",
    "prepared",
    "to_json",
]  # fmt: skip
