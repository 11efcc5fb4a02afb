"""The words of the schedule language. A schedule is a tuple of actions; each is data, prints as one line, round-trips JSON.

Axes are called by the names of their RANGEs ("i0", "r1"); a split names its parts "i0.0" (outer) and "i0.1" (inner).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

from tinyweb.graph.ir import AxisKind, Space


class ScheduleError(ValueError):
    """An action that cannot be applied to this kernel."""


@dataclass(frozen=True)
class Split:
    """axis = outer · factor + inner. Where the factor does not divide the size, the rest is gated."""

    word: ClassVar[str] = "split"
    axis: str
    factor: int

    def __str__(self) -> str:
        return f"split({self.axis}, {self.factor})"


@dataclass(frozen=True)
class Reorder:
    """Put these axes (all output or all reduce axes, any subset) in this nesting order, in the places they now take."""

    word: ClassVar[str] = "reorder"
    axes: tuple[str, ...]

    def __str__(self) -> str:
        return f"reorder({', '.join(self.axes)})"


@dataclass(frozen=True)
class Bind:
    """Let hardware or lanes carry out an axis: grid, thread (with a dimension), unroll, vector; loop takes it back."""

    word: ClassVar[str] = "bind"
    axis: str
    kind: AxisKind
    dim: int = 0

    def __str__(self) -> str:
        where = f".{'xyz'[self.dim]}" if self.kind in (AxisKind.GRID, AxisKind.THREAD) else ""
        return f"bind({self.axis}, {self.kind.name.lower()}{where})"


@dataclass(frozen=True)
class GroupReduce:
    """Share a reduce axis among `threads` threads of a workgroup: inner part on threads, partial results through shared
    memory."""

    word: ClassVar[str] = "group_reduce"
    axis: str
    threads: int
    dim: int = 0

    def __str__(self) -> str:
        return f"group_reduce({self.axis}, {self.threads}, {'xyz'[self.dim]})"


@dataclass(frozen=True)
class Stage:
    """Copy what one step of loop `at` reads of parameter `param` into nearer memory first, and read it from there."""

    word: ClassVar[str] = "stage"
    param: int
    at: str
    space: Space

    def __str__(self) -> str:
        return f"stage(param {self.param}, at={self.at}, {self.space.name.lower()})"


Action: TypeAlias = Split | Reorder | Bind | GroupReduce | Stage
_WORDS: dict[str, type[Any]] = {c.word: c for c in (Split, Reorder, Bind, GroupReduce, Stage)}


def schedule_to_json(schedule: Sequence[Action]) -> str:
    """One line of JSON that `schedule_from_json` reads back."""

    def plain(v: Any) -> Any:
        return v.name.lower() if isinstance(v, AxisKind | Space) else v

    return json.dumps([{"do": a.word} | {k: plain(v) for k, v in asdict(a).items()} for a in schedule])


def schedule_from_json(text: str) -> tuple[Action, ...]:
    """The schedule of a line of JSON; ScheduleError naming what is wrong in it."""
    out: list[Action] = []
    try:
        for item in json.loads(text):
            fields = dict(item)
            kind = _WORDS[fields.pop("do")]
            if "kind" in fields:
                fields["kind"] = AxisKind[fields["kind"].upper()]
            if "space" in fields:
                fields["space"] = Space[fields["space"].upper()]
            if "axes" in fields:
                fields["axes"] = tuple(fields["axes"])
            out.append(kind(**fields))
    except (KeyError, TypeError, ValueError) as e:
        raise ScheduleError(f"this is no schedule in JSON ({e}): {text[:200]}") from None
    return tuple(out)
