"""One sensible schedule per kind of target."""

from __future__ import annotations

from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize.actions import Schedule
from tinyweb.graph.target import Target


def heuristic(kernel: UOp, target: Target) -> Schedule:
    """A schedule for `kernel` on `target`."""
    return ()
