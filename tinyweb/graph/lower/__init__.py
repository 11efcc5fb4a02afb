"""One kernel becomes a linear program for a target."""

from __future__ import annotations

from tinyweb.graph.ir import UOp
from tinyweb.graph.lower.assemble import lower
from tinyweb.graph.lower.program_cache import kept
from tinyweb.graph.optimize import Schedule, optimize_then
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target

__all__ = ["lower", "program_for"]


def program_for(kernel: UOp, target: Target, found: Schedule | None = None) -> Program:
    """The kernel optimised and lowered: by the schedule that search has found, if there is one, and by a simpler one
    where lowering refuses the first. Raises as `lower`.

    What was made before, by whatever process, is read from the cache on disk.
    """
    target = target.fitted(kernel)
    return kept(
        kernel, target, found, lambda: optimize_then(kernel, target, lambda scheduled: lower(scheduled, target), found)
    )
