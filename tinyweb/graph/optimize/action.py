"""What the actions of schedules have in common: how one prints, and that it proposes nothing to search by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from math import prod
from typing import Any, ClassVar, TypeAlias

from tinyweb.graph.ir import AxisKind, UOp, axis_size
from tinyweb.graph.optimize.errors import ScheduleError
from tinyweb.graph.target import Target

MAX_STAGED = 1 << 16  # elements that are kept for a step of a loop


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
            if value is True:
                parts.append(f.name)
            else:
                text = f"p{value}" if f.name == "param" else _text(value)
                parts.append(text if f.default is MISSING and f.name != "at" else f"{f.name}={text}")
        return f"{self.name}({', '.join(parts)})"

    def apply(self, kernel: UOp) -> UOp:
        """The kernel after it; ScheduleError saying what does not fit."""
        raise NotImplementedError

    @staticmethod
    def candidates(kernel: UOp, target: Target) -> Iterator[Schedule]:
        """Steps worth trying on a kernel, each a short tuple of actions; they may be illegal."""
        return iter(())

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
        fits = at.arg.kind in (AxisKind.LOOP, AxisKind.GRID) and not at.arg.reduce
        self.require(fits, "sums are kept for a step of an output loop or of the grid")

    def require_small(self, axes: Iterable[UOp]) -> None:
        """Of what is kept for all steps of axes there are no more elements than memory is meant for."""
        sizes = [axis_size(r) for r in axes]
        constant = [n for n in sizes if isinstance(n, int)]
        self.require(constant == sizes, "the size of what is kept must be constant; split the axes first")
        self.require(prod(constant) <= MAX_STAGED, f"{prod(constant)} elements are more than {MAX_STAGED}")


Schedule: TypeAlias = "tuple[Action, ...]"


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name.lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
