"""Rules of thumb for each kind of target, from the most elaborate to none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize.actions import Action
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.contraction import schedule_contraction
from tinyweb.graph.optimize.for_c import schedule_for_c, schedule_shared
from tinyweb.graph.optimize.for_dot import schedule_for_dots
from tinyweb.graph.optimize.for_gpu import schedule_for_gpu, schedule_threads
from tinyweb.graph.optimize.for_numpy import schedule_for_numpy
from tinyweb.graph.optimize.for_ordered import schedule_ordered
from tinyweb.graph.optimize.for_softmax import schedule_for_softmax
from tinyweb.graph.optimize.fuse import fused
from tinyweb.graph.optimize.merge import merge_reduces
from tinyweb.graph.optimize.partition import serial_axes
from tinyweb.graph.schedule.attention import softmaxes
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target

Rule: TypeAlias = Callable[[], "Sequence[Action] | None"]


def rules(kernel: UOp, target: Target) -> Iterator[Rule]:
    """What to ask for a schedule, one after the other; None means that the rule is not for such kernels.

    The last are plain enough to be right for every kernel: outputs over the hardware, then nothing at all.
    """
    k = Analysis(simplify(merge_reduces(kernel)))
    yield partial(_softmax, k, target)
    if serial_axes(k.kernel):
        yield partial(schedule_ordered, k, target)
    if target.has_threads:
        yield partial(schedule_for_gpu, k, target)
        yield partial(schedule_threads, k, target)
    elif target.language == "c":
        yield partial(schedule_for_dots, k, target)
        yield partial(_contraction, k, target)
        yield partial(schedule_for_c, k, target)
        yield partial(schedule_shared, k, target)
    else:
        yield partial(schedule_for_numpy, k)
    yield tuple


def _softmax(k: Analysis, target: Target) -> list[Action] | None:
    for softmax in softmaxes(k.kernel):
        actions = schedule_for_softmax(k, softmax, target)
        if actions is not None:
            return actions
    return None


def _contraction(k: Analysis, target: Target) -> list[Action] | None:
    fuses, kernel = fused(k.kernel)
    actions = schedule_contraction(Analysis(kernel) if fuses else k, target)
    return None if actions is None else [*fuses, *actions]
