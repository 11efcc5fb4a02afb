"""The schedules near a schedule: what search tries next.

A schedule is varied in the fields its actions are declared with (a number doubled, a choice made differently), in the
axes it names, by leaving actions out, and by one action more: of every class, with what a kernel and a target have for
its fields (`offers`). What comes of all this may be illegal: `carry_out` keeps of it what applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, replace
from enum import Enum
from functools import reduce
from itertools import combinations, product
from typing import Any

from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.optimize.action import Action, Schedule, ScheduleError
from tinyweb.graph.optimize.actions import ACTIONS, Bind, Peel, Split
from tinyweb.graph.optimize.instructions import INSTRUCTIONS
from tinyweb.graph.optimize.merge import prepared
from tinyweb.graph.optimize.rewrite import loads_summed, loops_of, ranges_of
from tinyweb.graph.optimize.stage import axes_of
from tinyweb.graph.optimize.tensorize import Tensorize
from tinyweb.graph.symbolic import borders
from tinyweb.graph.target import Target

BLOCKED = (32, 64, 128, 256)  # steps of an axis that a whole schedule is moved into
FACTORS = (2, 4, 6, 8, 16, 32, 64, 128, 256)  # steps of a block, lanes, threads


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
    """One action more for the kernel once `before` is done, or an action on a part of an axis; `after` follows."""
    _, scheduled = carry_out(kernel, before)
    actions = list(every(scheduled, target))
    single = [action for (action,) in _distinct(scheduled, ((a,) for a in actions))]
    for action in single:
        yield *before, action, *after
        if isinstance(action, Bind) and action.kind is not AxisKind.GRID:
            inner = replace(action, axis=f"{action.axis}.1")
            blocks = (a for a in single if isinstance(a, Split | Peel) and a.axis == action.axis)
            yield from ((*before, split, inner, *after) for split in blocks)
    matched = ((a, INSTRUCTIONS[a.instruction].steps) for a in actions if isinstance(a, Tensorize))
    for steps in _distinct(scheduled, (_blocked((a,), a.axis, n) for a, n in matched)):
        yield *before, *steps, *after


def _distinct(kernel: UOp, proposed: Iterable[Schedule]) -> Iterator[Schedule]:
    """What is legal, each making another kernel; of an axis more than one block is left."""
    sizes, found = {r.arg.name: r.src[0].vmax for r in ranges_of(kernel)}, {kernel}
    for steps in proposed:
        first = steps[0]
        if not isinstance(first, Split | Peel) or first.factor < sizes[first.axis]:
            try:
                made = reduce(lambda k, action: action.apply(k), steps, kernel)
            except ScheduleError:
                continue
            if made not in found:
                found.add(made)
                yield steps


def every(kernel: UOp, target: Target) -> Iterator[Action]:
    """Actions of every class, with all that is offered for fields as they are declared. Other fields have their
    defaults; a class that needs more is only varied where a heuristic uses it.
    """
    offered = offers(kernel, target)
    for kind in ACTIONS.values():
        values: dict[str, Iterable[Any]] = {}
        for f in fields(kind):
            declared = f"{f.name}: {f.type}" + ("" if f.default is MISSING else f" = {f.default!r}")
            if f.default is MISSING or declared in offered:
                values[f.name] = offered.get(declared, ())
        yield from (kind(**dict(zip(values, chosen))) for chosen in product(*values.values()))


def offers(kernel: UOp, target: Target) -> dict[str, Iterable[Any]]:
    """What may stand in fields of actions, by how they are declared."""
    loops, loads = loops_of(kernel), loads_summed(kernel)
    filled = {r for u in loops.stages for r in u.src[1:]}
    free = [r for r in loops.ranges if r not in filled and r.arg.kind is AxisKind.LOOP]
    grid = [r for r in loops.ranges if r.arg.kind is AxisKind.GRID]
    axes, places = ([r.arg.name for r in rs] for rs in (free, (*grid, *free)))
    operands = {(u.src[0], tuple(sorted(axes_of(u)))) for u in loads}
    several = {a for p, a in operands if sum(p is other for other, _ in operands) > 1}
    threads = [AxisKind.THREAD] if target.thread_dims else []
    return {
        "axis: str": axes, "inner: str": axes, "at: str": places, "at: str = ''": ["", *places],
        "axes: tuple[str, ...]": [(b, a) for a, b in combinations(axes, 2)] + [(a,) for a in axes],
        "axes: tuple[str, ...] = ()": [(), *sorted(several)],
        "at: tuple[int, ...]": {at for r in free if (at := borders(kernel.toposort(), r))},
        "factor: int": FACTORS, "overlap: bool = False": (False, True), "block: int": (32, 64, 128),
        "kind: AxisKind": [AxisKind.VECTOR, AxisKind.UNROLL, AxisKind.GRID, *threads],
        "dim: int = 0": range(max(target.grid_dims, len(target.thread_dims))),
        "across: int": (16,), "split: int = 1": (1, 4, 16), "together: int = 1": (1, 2),
        "param: int": dict.fromkeys(u.arg.slot for u in kernel.toposort() if u.op is Ops.PARAM),
        "space: Space": target.staging_spaces, "instruction: str": target.instructions,
        "ahead: int": [target.prefetch_bytes] if target.prefetch_bytes else [],
    }  # fmt: skip


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
