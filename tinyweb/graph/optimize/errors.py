"""The error of illegal actions, and looking up an axis by name."""

from __future__ import annotations

from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.optimize.rewrite import ranges_of


class ScheduleError(ValueError):
    """An action that does not fit the kernel it is applied to."""


def find_axis(kernel: UOp, name: str) -> UOp:
    """The RANGE of that name; ScheduleError if there is none, or if it is a loop that fills staged memory."""
    ranges = ranges_of(kernel)
    for r in ranges:
        if r.arg.name == name:
            if any(u.op is Ops.STAGE and r in u.src[1:] for u in kernel.toposort()):
                raise ScheduleError(f"axis {name} fills staged memory and stays as it is")
            return r
    raise ScheduleError(f"there is no axis {name!r}; the kernel has {', '.join(r.arg.name for r in ranges) or 'none'}")
