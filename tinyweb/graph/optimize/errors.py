"""The error of illegal actions, and looking up an axis by name."""

from __future__ import annotations

from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize.rewrite import ranges_of


class ScheduleError(ValueError):
    """An action that does not fit the kernel it is applied to."""


def find_axis(kernel: UOp, name: str) -> UOp:
    """The RANGE of that name; ScheduleError if there is none."""
    ranges = ranges_of(kernel)
    for r in ranges:
        if r.arg.name == name:
            return r
    raise ScheduleError(f"there is no axis {name!r}; the kernel has {', '.join(r.arg.name for r in ranges) or 'none'}")
