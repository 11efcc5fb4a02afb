"""What the actions of schedules have in common: what is legal, and how one prints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from math import prod
from typing import Any, ClassVar, TypeAlias

from tinyweb.graph.ir import AxisKind, UOp, axis_size
from tinyweb.graph.optimize.rewrite import loops_of

WALKED = AxisKind.LOOP, AxisKind.GRID  # kinds of axes for a step of which something is kept
MAX_STAGED = 1 << 16  # elements that are kept for a step of a loop


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


@dataclass(frozen=True)
class Action:
    """A transformation of a kernel. Its fields are names of axes, numbers, choices, or tuples of names: they are
    printed, and written to JSON, as they are declared. It is called by its class.
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.name = re.sub("([a-z])([A-Z])", r"\1_\2", cls.__name__).lower()

    def __str__(self) -> str:
        """One line. Fields that have their defaults are left out; `at` and others with a default are named."""
        parts = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value == f.default:
                continue
            named = f.default is not MISSING or f.name == "at"
            if value is True:
                parts.append(f.name)
            else:
                text = f"p{value}" if f.name == "param" else _text(value, named)
                parts.append(f"{f.name}={text}" if named else text)
        return f"{self.name}({', '.join(parts)})"

    def apply(self, kernel: UOp) -> UOp:
        """The kernel after it; ScheduleError saying what does not fit."""
        raise NotImplementedError

    # -- what is legal ---------------------------------------------------------------------------------------------
    def require(self, fits: object, why: str) -> None:
        """ScheduleError, which says why, unless something holds."""
        if not fits:
            raise ScheduleError(f"{self}: {why}")

    def require_loop(self, r: UOp) -> None:
        """A RANGE that is not bound yet."""
        self.require(r.arg.kind is AxisKind.LOOP, f"the axis is bound to {r.arg.kind.name.lower()} already")

    def require_place(self, at: UOp) -> None:
        """A RANGE for a step of which sums are kept."""
        fits = at.arg.kind in WALKED and not at.arg.reduce
        self.require(fits, "sums are kept for a step of an output loop or of the grid")

    def require_small(self, axes: Iterable[UOp]) -> None:
        """Of what is kept for all steps of axes there are no more elements than memory is meant for."""
        sizes = [axis_size(r) for r in axes]
        constant = [n for n in sizes if isinstance(n, int)]
        self.require(constant == sizes, "the size of what is kept must be constant; split the axes first")
        self.require(prod(constant) <= MAX_STAGED, f"{prod(constant)} elements are more than {MAX_STAGED}")


Schedule: TypeAlias = "tuple[Action, ...]"


def _text(value: Any, named: bool) -> str:
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]" if named and len(value) > 1 else ", ".join(map(str, value))
    return str(value)
