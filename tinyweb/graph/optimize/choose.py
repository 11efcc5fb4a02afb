"""Which schedule a kernel gets: one that search has found, if there is one, else that of the first rule that holds.

Rules go from the most elaborate to the empty schedule, which is always legal. One whose actions do not fit the kernel,
or whose result is refused later, is a defect of the rule, and of nobody's call: the next one takes its place, and a
`FallbackWarning` says what happened. Where graphs are checked (SPEC, as in all tests) it is an error instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias, TypeVar

from tinyweb.graph.ir import UOp
from tinyweb.graph.ir.spec import spec_level
from tinyweb.graph.optimize.action import FallbackWarning, Schedule, ScheduleError
from tinyweb.graph.optimize.actions import apply, finished
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.builder import Builder, Choices
from tinyweb.graph.optimize.contraction import schedule_contraction
from tinyweb.graph.optimize.cost import excess, refusal
from tinyweb.graph.optimize.digest import describe
from tinyweb.graph.optimize.for_c import schedule_for_c
from tinyweb.graph.optimize.for_dot import schedule_for_dots
from tinyweb.graph.optimize.for_gpu import schedule_for_gpu, schedule_threads
from tinyweb.graph.optimize.for_numpy import schedule_for_numpy
from tinyweb.graph.optimize.for_ordered import schedule_ordered
from tinyweb.graph.optimize.for_softmax import schedule_for_softmax, schedule_whole_rows
from tinyweb.graph.optimize.merge import prepared
from tinyweb.graph.target import Target

T = TypeVar("T")
Rule: TypeAlias = Callable[[Builder], bool]  # whether the rule is for such kernels: it has made their schedule then


def as_it_is(b: Builder) -> bool:
    """No actions: right for every kernel."""
    return True


# what to ask, one after the other, by `Target.family`; the last are plain enough to be right for every kernel
RULES: dict[str, tuple[Rule, ...]] = {
    "vectors": (
        schedule_for_softmax, schedule_ordered, schedule_for_dots, schedule_contraction, schedule_for_c, as_it_is,
    ),
    "threads": (
        schedule_for_softmax, schedule_whole_rows, schedule_for_gpu, schedule_threads, as_it_is,
    ),
    "arrays": (schedule_ordered, schedule_for_numpy, as_it_is),
}  # fmt: skip


def optimize(kernel: UOp, target: Target, found: Schedule | None = None) -> UOp:
    """The kernel under the schedule that search once found for it on `target`, else under the heuristic's."""
    return optimize_then(kernel, target, lambda scheduled: scheduled, found)


def optimize_then(kernel: UOp, target: Target, make: Callable[[UOp], T], found: Schedule | None = None) -> T:
    """What `make` (lowering) makes of the optimised kernel; what it cannot be made of gives way to a simpler schedule.

    Raises what the first rule's result raises where all fail: then it is not for the schedule.
    """
    if found is not None:
        try:
            return make(_checked(apply(kernel, found), target, refusal))
        except ValueError:
            pass  # found for a language of schedules, or a compiler, that has changed since
    return _by_rules(kernel, target, make)[1]


def heuristic(kernel: UOp, target: Target) -> Schedule:
    """The schedule for `kernel` on `target` by rules of thumb; what it returns is legal there."""
    return _by_rules(kernel, target, lambda scheduled: scheduled)[0]


def variants(kernel: UOp, target: Target, chosen: Choices) -> Iterator[tuple[Schedule, dict[str, int]]]:
    """Schedules of the rule that makes the heuristic's, each with one choice made otherwise than in `chosen`, and what
    was chosen for it. Search begins with them: what they change belongs together.
    """
    k = Analysis(prepared(kernel))
    for rule in RULES[target.family]:
        b = Builder(k, target, chosen)
        if b.follow(partial(rule, b)):
            break
    else:
        return
    for what, count in b.offered.items():
        for number in range(count):
            other = Builder(k, target, {**chosen, what: number})
            if number != chosen.get(what) and other.follow(partial(rule, other)):
                yield other.actions, dict(other.chosen)


def _by_rules(kernel: UOp, target: Target, make: Callable[[UOp], T]) -> tuple[Schedule, T]:
    failed: Exception | None = None
    broken: Schedule = ()
    k = Analysis(prepared(kernel))
    for rule in RULES[target.family]:
        b = Builder(k, target)
        try:
            if not rule(b):
                continue
            made = make(_checked(finished(kernel, b.kernel, b.actions), target, excess))
        except MemoryError:
            raise
        except Exception as error:  # whatever it is, a plainer program is better than none
            if failed is None:
                failed, broken = error, b.actions
            continue
        if failed is not None:
            _report(kernel, target, failed, broken, b.actions)
        return b.actions, made
    try:
        raise failed or AssertionError("there is no rule")
    finally:
        del failed  # else the error's traceback, and with it what callers hold, would wait for the garbage collector


def _checked(scheduled: UOp, target: Target, check: Callable[[UOp, Target], str]) -> UOp:
    if wrong := check(scheduled, target):
        raise ScheduleError(wrong)
    return scheduled


def _report(kernel: UOp, target: Target, error: Exception, broken: Schedule, used: Schedule) -> None:
    first, second = ("; ".join(map(str, s)) or "nothing" for s in (broken, used))
    text = (
        f"the usual schedule of a kernel does not fit, so a simpler one, maybe a slower one, is used: a defect of "
        f"tinyweb, please report it.\n  kernel: {describe(kernel)}\n  target: {target.name}\n  schedule: {first}\n  "
        f"{type(error).__name__}: {error}\n  used instead: {second}"
    )
    if spec_level():
        raise ScheduleError(text) from error
    warnings.warn(text, FallbackWarning, stacklevel=2)
