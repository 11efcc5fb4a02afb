"""Rules of thumb for each family of targets, from the most elaborate to none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.contraction import schedule_contraction
from tinyweb.graph.optimize.for_c import schedule_for_c
from tinyweb.graph.optimize.for_dot import schedule_for_dots
from tinyweb.graph.optimize.for_gpu import schedule_for_gpu, schedule_threads
from tinyweb.graph.optimize.for_numpy import schedule_for_numpy
from tinyweb.graph.optimize.for_ordered import schedule_ordered
from tinyweb.graph.optimize.for_softmax import schedule_for_softmax, schedule_whole_rows

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
