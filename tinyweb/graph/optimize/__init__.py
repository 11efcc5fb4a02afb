"""One kernel becomes a faster kernel by a schedule: a tuple of named, checked actions."""

from tinyweb.graph.optimize.actions import (
    Action,
    Bind,
    GroupReduce,
    Peel,
    Reorder,
    Schedule,
    Split,
    from_json,
    to_json,
)
from tinyweb.graph.optimize.apply import apply, optimize
from tinyweb.graph.optimize.errors import ScheduleError
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.heuristic import heuristic
from tinyweb.graph.optimize.hoist import Hoist
from tinyweb.graph.optimize.merge import merge_reduces
from tinyweb.graph.optimize.online import Online
from tinyweb.graph.optimize.raised import Raise
from tinyweb.graph.optimize.stage import Stage
from tinyweb.graph.optimize.tensorize import Spread

__all__ = [
    "Action", "Bind", "Fuse", "GroupReduce", "Hoist", "Online", "Peel", "Raise", "Reorder", "Schedule",
    "ScheduleError", "Split", "Spread", "Stage", "apply", "from_json", "heuristic", "merge_reduces", "optimize",
    "to_json",
]  # fmt: skip
