"""The schedules near a schedule: what search tries next.

Nothing here knows the actions of the language. A schedule is varied in the fields its actions are declared with (a
number doubled, a choice made differently), in the axes it names, by leaving actions out, and by what each class of
actions proposes (`candidates`, see actions.py). What is proposed may be illegal: `carry_out` keeps of it what applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from enum import Enum
from typing import Any

from tinyweb.graph.ir import AxisKind, UOp
from tinyweb.graph.optimize.action import Action, Schedule
from tinyweb.graph.optimize.actions import ACTIONS, Split
from tinyweb.graph.optimize.errors import ScheduleError
from tinyweb.graph.optimize.merge import prepared
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.target import Target

BLOCKED = (32, 64, 128, 256)  # steps of an axis that a whole schedule is moved into


def carry_out(kernel: UOp, proposed: Iterable[Action]) -> tuple[Schedule, UOp]:
    """The actions that apply one after the other, those that do not left out, and the kernel they make."""
    kernel, kept = prepared(kernel), list[Action]()
    for action in proposed:
        try:
            kernel = action.apply(kernel)
        except ScheduleError:
            continue
        kept.append(action)
    return tuple(kept), kernel


def neighbours(kernel: UOp, schedule: Schedule, target: Target) -> Iterator[Schedule]:
    """Schedules a step away from `schedule`; illegal ones among them, and ones that come to the same."""
    axes = [r.arg.name for r in ranges_of(prepared(kernel))]
    for i, action in enumerate(schedule):
        for other in _varied(action, target):
            yield *schedule[:i], other, *schedule[i + 1 :]
        yield schedule[:i] + schedule[i + 1 :]
        if i + 1 < len(schedule):
            yield *schedule[:i], schedule[i + 1], action, *schedule[i + 2 :]
    for i, a in enumerate(axes):
        yield tuple(action for action in schedule if not _names(action, a))
        for b in axes[i + 1 :]:
            yield tuple(_renamed(action, {a: b, b: a}) for action in schedule)
        if schedule:
            for f in BLOCKED:
                yield _blocked(schedule, a, f)
    yield from _proposals(kernel, (), schedule, target)
    if schedule:
        yield from _proposals(kernel, schedule, (), target)
        # what is bound last is often the grid, which leaves no loop to work on
        yield from _proposals(kernel, schedule[:-1], schedule[-1:], target)


def _proposals(kernel: UOp, before: Schedule, after: Schedule, target: Target) -> Iterator[Schedule]:
    """What every class of actions proposes for the kernel once `before` is done; `after` follows."""
    _, scheduled = carry_out(kernel, before)
    for kind in ACTIONS.values():
        for step in kind.candidates(scheduled, target):
            yield *before, *step, *after


def _varied(action: Action, target: Target) -> Iterator[Action]:
    """The action with one of its fields changed."""
    for f in fields(action):
        for value in _near(f.name, getattr(action, f.name), target):
            yield replace(action, **{f.name: value})


def _near(name: str, value: Any, target: Target) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, Enum):
        yield from (v for v in type(value) if v is not value and v not in (AxisKind.LOOP, AxisKind.ORDERED))
    elif isinstance(value, int) and name == "dim":
        yield from (d for d in range(max(target.grid_dims, len(target.thread_dims))) if d != value)
    elif isinstance(value, int) and value > 1:
        near = (2 * value, value // 2, value + value // 2, value * 3 // 4, value + 1, value - 1, 4 * value, value // 4)
        yield from (n for n in dict.fromkeys(near) if n > 1)
    elif isinstance(value, tuple):
        for i in range(len(value) - 1):
            yield *value[:i], value[i + 1], value[i], *value[i + 2 :]


# -- names of axes ---------------------------------------------------------------------------------------------
def _names(action: Action, axis: str) -> bool:
    """Whether an action speaks of an axis, or of a part of it."""
    return any(n == axis or n.startswith(f"{axis}.") for n in _axes(action))


def _axes(action: Action) -> list[str]:
    found: list[str] = []
    for f in fields(action):
        value = getattr(action, f.name)
        found += [value] if isinstance(value, str) else list(value) if isinstance(value, tuple) else []
    return [n for n in found if isinstance(n, str)]


def _renamed(action: Action, table: dict[str, str]) -> Action:
    """The action on other axes: `table` maps the kernel's own axes; parts follow them."""

    def renamed(name: str) -> str:
        whole = max((a for a in table if name == a or name.startswith(f"{a}.")), key=len, default=None)
        return name if whole is None else table[whole] + name[len(whole) :]

    changed: dict[str, Any] = {}
    for f in fields(action):
        value = getattr(action, f.name)
        if isinstance(value, str):
            changed[f.name] = renamed(value)
        elif isinstance(value, tuple):
            changed[f.name] = tuple(renamed(n) if isinstance(n, str) else n for n in value)
    return replace(action, **changed)


def _blocked(schedule: Schedule, axis: str, factor: int) -> Schedule:
    """The schedule within blocks of an axis: whatever it does to the axis, it does inside of a block."""
    return (Split(axis, factor), *(_renamed(a, {axis: f"{axis}.1"}) for a in schedule))
