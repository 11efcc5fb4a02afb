"""What the actions of schedules have in common: how one prints, and that it proposes nothing to search by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any, ClassVar, TypeAlias

from tinyweb.graph.ir import AxisKind, UOp
from tinyweb.graph.optimize.errors import ScheduleError
from tinyweb.graph.target import Target


@dataclass(frozen=True)
class Action:
    """A transformation of a kernel. Its fields are names of axes, numbers, choices, or tuples of names: they are
    printed, and written to JSON, as they are declared.
    """

    name: ClassVar[str]

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

    def check_unbound(self, r: UOp) -> None:
        """ScheduleError where a RANGE is no loop any more."""
        if r.arg.kind is not AxisKind.LOOP:
            raise ScheduleError(f"{self}: the axis is bound to {r.arg.kind.name.lower()} already")


Schedule: TypeAlias = "tuple[Action, ...]"


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name.lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
