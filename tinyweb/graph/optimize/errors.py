"""The error of illegal actions, and looking up an axis by name."""

from __future__ import annotations

from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize.rewrite import loops_of


class ScheduleError(ValueError):
    """An action that does not fit the kernel it is applied to."""


class FallbackWarning(RuntimeWarning):
    """A rule of thumb made a schedule that does not fit its kernel; a simpler one was used."""


def find_axis(kernel: UOp, name: str, stays: bool = False) -> UOp:
    """The RANGE of that name; ScheduleError if there is none, or if it is a loop that fills staged memory, or carries a
    maximum from step to step, and not to stay as it is.
    """
    loops = loops_of(kernel)
    for r in loops.ranges:
        if r.arg.name == name:
            if not stays and any(r in u.src[1:] for u in loops.stages):
                raise ScheduleError(f"axis {name} fills staged memory and stays as it is")
            if not stays and any(r in u.src for u in loops.running):
                raise ScheduleError(f"axis {name} carries a maximum from step to step and stays as it is")
            return r
    raise ScheduleError(
        f"there is no axis {name!r}; the kernel has {', '.join(r.arg.name for r in loops.ranges) or 'none'}"
    )
