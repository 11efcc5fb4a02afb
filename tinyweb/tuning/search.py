"""Beam search over schedules, by time measured outside.

    found = search(kernel, target, lower, measure, seconds=30)

`lower` makes programs of kernels and `measure` times them: both come from outside, so that imports run one way. Search
begins with the heuristic's schedule, what lies near it, and what can be built from nothing. What cannot be applied,
does not fit the target or lowers to a program seen before is dropped before anything is compiled; a rough estimate
orders the rest. Times are compared as ratios to the heuristic's program, which runs beside the others in every turn.

What comes back is never slower than the heuristic's schedule: at the end the best ones and the heuristic's are timed
again in fresh runs, and the heuristic's stays unless another is clearly faster in each of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from statistics import median
from typing import Protocol

from tinyweb.errors import TinywebError
from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize.action import Schedule
from tinyweb.graph.optimize.actions import apply, finished
from tinyweb.graph.optimize.choose import heuristic, variants
from tinyweb.graph.optimize.cost import refusal
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.tuning.candidates import carry_out, neighbours
from tinyweb.tuning.estimate import estimate, workgroups

BEAM = 4  # schedules whose neighbours are tried next
POOL = 32  # programs that are made in a round, of which a batch is timed
BATCH = 12
RETIMED = 2  # of the beam, that run again beside what is new
LUCKY = 4  # of a batch: chosen whatever the estimate says
TURNS, FINAL_TURNS, FINAL_RUNS = 9, 60, 2
FINALISTS = 3
WORTH = 0.98  # a schedule replaces the heuristic's if it takes at most this part of its time, even at the spread's end
PATIENCE = 3  # rounds without a better schedule
RESERVE = 0.75  # part of the budget after which no round begins: the final runs need the rest
MAX_UOPS = 6000  # of a program, unless the heuristic's is as long


class MeasureError(TinywebError):
    """Nothing could be timed at all, the heuristic's program included."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one program, turn by turn; turn i of all programs ran side by side. `problem` says why there are
    none, or why they do not count: the program crashed, hung, or computed something else than the first one.
    """

    seconds: tuple[float, ...]
    problem: str = ""


class Measure(Protocol):
    """Times programs of one kernel. The first is the reference: the others' results are compared with its results.

    Programs that are clearly slower may get fewer turns. With `fresh` nothing is left of earlier runs (process, memory,
    caches). MeasureError where nothing can be timed.
    """

    def __call__(self, programs: Sequence[Program], turns: int, fresh: bool = False) -> Sequence[Timing]: ...


@dataclass(frozen=True)
class Found:
    """A schedule, its time as part of the heuristic's (1.0: it is the heuristic's), and what it took to find it."""

    schedule: Schedule
    ratio: float
    spread: float
    rounds: int
    timed: int
    problems: int  # programs that crashed, hung or were wrong
    refused: int = 0  # schedules that could not be lowered


@dataclass(eq=False)
class _Candidate:
    schedule: Schedule
    program: Program
    estimate: float
    ratios: list[float] = field(default_factory=list)  # to the heuristic's time, one for each round it ran in

    @property
    def ratio(self) -> float:
        return median(self.ratios)


Report = Callable[[int, int, float], None]  # (rounds done, programs timed, best ratio so far)


def search(
    kernel: UOp,
    target: Target,
    lower: Callable[[UOp, Target], Program],
    measure: Measure,
    seconds: float = 60.0,
    *,
    starts: Iterable[Schedule] = (),
    keep_workgroups: bool = False,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
    report: Report | None = None,
) -> Found:
    """The fastest schedule found within about `seconds`.

    `starts` are further schedules to begin with (one that was found before). With `keep_workgroups` no schedule may
    offer less parallel work than the heuristic's: for measuring with fewer workers than the target has.
    """
    begin = clock()
    space = _Space(kernel, target, lower, keep_workgroups, random.Random(seed))
    baseline = space.baseline
    baseline.ratios.append(1.0)
    beam = [baseline]
    first: list[Schedule] = [*starts, *space.recipes(baseline.schedule)]
    waiting: list[Schedule] = [*space.near(baseline.schedule), *space.near(())]
    rounds = timed = problems = idle = failures = 0
    longest = 0.0  # round so far: the next one may take as long
    while idle < PATIENCE and failures < 2 and (now := clock()) - begin + longest < RESERVE * seconds:
        batch = space.batch(first, waiting)
        if not batch:
            break
        rounds += 1
        again = [c for c in beam if c is not baseline][:RETIMED]  # a lucky turn must not lead the search astray
        tried = [*again, *batch]
        try:
            reference, *timings = measure([baseline.program, *(c.program for c in tried)], TURNS)
        except MeasureError:
            failures += 1
            continue
        failures, timed, best = 0, timed + len(batch), beam[0].ratio
        for candidate, timing in zip(tried, timings, strict=True):
            if timing.problem or not timing.seconds:
                problems += 1
            else:
                candidate.ratios.append(compare(timing, reference)[0])
        beam = sorted([*beam, *(c for c in batch if c.ratios)], key=lambda c: c.ratio)[:BEAM]
        idle = 0 if beam[0].ratio < best - 0.005 else idle + 1
        first = [s for c in beam for s in space.recipes(c.schedule)]
        waiting = [s for c in beam for s in space.near(c.schedule)]
        longest = max(longest, clock() - now)
        if report:
            report(rounds, timed, beam[0].ratio)
    finalists = [c for c in beam if c.ratio < 1.0][:FINALISTS]
    return Found(*_confirmed(baseline, finalists, measure), rounds, timed, problems, space.refused)


def _confirmed(baseline: _Candidate, finalists: list[_Candidate], measure: Measure) -> tuple[Schedule, float, float]:
    """Of the finalists the one that is clearly faster in every fresh run, else the heuristic's schedule."""
    worst: dict[int, tuple[float, float]] = {i: (0.0, 0.0) for i in range(len(finalists))}
    for _ in range(FINAL_RUNS if finalists else 0):
        chosen = sorted(worst)
        try:
            programs = [baseline.program, *(finalists[i].program for i in chosen)]
            reference, *timings = measure(programs, FINAL_TURNS, fresh=True)
        except MeasureError:
            return baseline.schedule, 1.0, 0.0
        for i, timing in zip(chosen, timings, strict=True):
            middle, spread = compare(timing, reference) if timing.seconds else (1.0, 0.0)
            if timing.problem or middle + spread > WORTH:
                del worst[i]
            else:
                worst[i] = max(worst[i], (middle, spread))
        if not worst:
            break
    if not worst:
        return baseline.schedule, 1.0, 0.0
    best = min(worst, key=lambda i: worst[i])
    return finalists[best].schedule, *worst[best]


def compare(timing: Timing, reference: Timing) -> tuple[float, float]:
    """The median of the ratios of paired turns, and how far off it may be: half its 95 % confidence interval, which two
    of the ratios in order bound (the binomial distribution says which).
    """
    ratios = sorted(a / b for a, b in zip(timing.seconds, reference.seconds) if b > 0)
    n = len(ratios)
    if not n:
        return float("inf"), 0.0
    reach = ceil(0.98 * sqrt(n))
    low, high = max((n - 1) // 2 - reach, 0), min(n // 2 + reach, n - 1)
    return median(ratios), (ratios[high] - ratios[low]) / 2


class _Space:
    """The schedules of one kernel: which were seen, and which programs they came to."""

    def __init__(
        self,
        kernel: UOp,
        target: Target,
        lower: Callable[[UOp, Target], Program],
        keep_workgroups: bool,
        choice: random.Random,
    ):
        self.kernel, self.target, self.lower, self.choice = kernel, target, lower, choice
        self.schedules: set[Schedule] = set()
        self.programs: set[str] = set()
        self.workgroups = 0
        self.longest = MAX_UOPS
        self.refused = 0  # by lowering
        self.left: list[_Candidate] = []  # of recipes, which no batch had room for
        schedule = heuristic(kernel, target)
        program = lower(apply(kernel, schedule), target)
        self.baseline = _Candidate(schedule, program, estimate(program, target))
        self.chosen: dict[Schedule, dict[str, int]] = {schedule: {}}  # for those that recipes made
        self.schedules.add(schedule)
        self.programs.add(program.name)
        self.longest = max(MAX_UOPS, 2 * len(program.uops))
        if keep_workgroups:
            # four blocks for every worker are as good as more
            self.workgroups = min(workgroups(program), 4 * max(target.parallel_threads, 1))

    def near(self, schedule: Schedule) -> Iterable[Schedule]:
        return neighbours(self.kernel, schedule, self.target)

    def recipes(self, schedule: Schedule) -> Iterable[Schedule]:
        """What the recipe that made a schedule makes with one choice made otherwise."""
        if schedule in self.chosen:
            for other, chosen in variants(self.kernel, self.target, self.chosen[schedule]):
                self.chosen.setdefault(other, chosen)
                yield other

    def batch(self, first: Iterable[Schedule], waiting: Iterable[Schedule]) -> list[_Candidate]:
        """Programs to time: what comes first, then mostly those of which the estimate thinks most."""
        made = self.left + self._pool(dict.fromkeys(first), POOL - len(self.left))
        pending = list(dict.fromkeys(waiting))
        self.choice.shuffle(pending)
        pool = self._pool(pending, POOL - len(made))
        for candidates in (made, pool):
            candidates.sort(key=lambda c: c.estimate)
        chosen, self.left = made[: BATCH - LUCKY], made[BATCH - LUCKY :]
        promising, others = pool[: BATCH - LUCKY - len(chosen)], pool[BATCH - LUCKY - len(chosen) :]
        return chosen + promising + self.choice.sample(others, min(LUCKY, len(others)))

    def _pool(self, proposed: Iterable[Schedule], room: int) -> list[_Candidate]:
        """So many programs of what is proposed, at most."""
        pool: list[_Candidate] = []
        for one in proposed:
            if len(pool) >= room:
                break
            candidate = self._new(one)
            if candidate is not None:
                pool.append(candidate)
        return pool

    def _new(self, proposed: Schedule) -> _Candidate | None:
        """What a proposal comes to, unless that is nothing, nothing new, or too much."""
        schedule, scheduled = carry_out(self.kernel, proposed)
        if schedule in self.schedules:
            return None
        self.schedules.add(schedule)
        if refusal(scheduled, self.target):
            return None
        try:
            program = self.lower(finished(self.kernel, scheduled, schedule), self.target)
        except Exception:  # a limit that only lowering sees; and no defect of lowering shall end hours of tuning
            self.refused += 1
            return None
        if program.name in self.programs or len(program.uops) > self.longest or workgroups(program) < self.workgroups:
            return None
        self.programs.add(program.name)
        return _Candidate(schedule, program, estimate(program, self.target))
