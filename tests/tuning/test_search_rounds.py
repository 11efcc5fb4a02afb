"""The rounds of a search, with programs that are nothing but names and times that are made up."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

import pytest

from tests.graph.optimize.families import elementwise
from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize import Schedule, Split, heuristic
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target
from tinyweb.tuning.search import Found, MeasureError, Timing, compare, search

CPU = cpu_target(8, 2)
KERNEL = elementwise(40)
USUAL = heuristic(KERNEL, CPU)


class Programs:
    """What lowers: one name for each schedule; a grid and a length that the schedule says."""

    def __init__(self, grid: Callable[[str], int] = lambda s: 1, length: Callable[[str], int] = lambda s: 0):
        self.grid, self.length = grid, length
        self.of: dict[str, tuple[str, ...]] = {}

    def __call__(self, kernel: UOp, target: Target) -> Program:
        text = "; ".join(kernel.arg.schedule)
        name = f"p{len(self.of)}"
        self.of[name] = kernel.arg.schedule
        one = UOp.const(0, kernel.src[0].src[1].dtype)
        return Program(name, (one,) * self.length(text), (), (), (self.grid(text), 1, 1), (1, 1, 1), 0)


class Measured:
    """Times by name and number of the call; what was asked."""

    def __init__(self, seconds: Callable[[str, int], float | str], cost: float = 1.0):
        self.seconds, self.cost, self.now = seconds, cost, 0.0
        self.calls: list[tuple[tuple[str, ...], int, bool]] = []

    def __call__(self, programs: Sequence[Program], turns: int, fresh: bool = False) -> list[Timing]:
        self.calls.append((tuple(p.name for p in programs), turns, fresh))
        self.now += self.cost
        out = []
        for p in programs:
            found = self.seconds(p.name, len(self.calls))
            out.append(Timing((), found) if isinstance(found, str) else Timing((found,) * turns))
        return out

    def clock(self) -> float:
        return self.now


def found(measure: Measured, seconds: float = 1000.0, lower: Programs | None = None, **options) -> Found:
    return search(KERNEL, CPU, lower or Programs(), measure, seconds, clock=measure.clock, **options)


def steady(name: str, call: int) -> float:
    """The later a program was made, the faster it is: there is always something better."""
    return 1.0 - 0.003 * int(name[1:])


def test_a_round() -> None:
    """Twelve programs beside the usual one, nine turns; at the end three finalists, twice, sixty turns, afresh."""
    measure = Measured(steady)
    result = found(measure, seconds=4.0)
    first, second, *rest, before, last = measure.calls
    assert len(first[0]) == 13 and first[0][0] == "p0" and first[1:] == (9, False)
    # two of the best run again
    assert len(second[0]) == 15 and set(second[0][1:3]) < set(first[0])
    assert before[1:] == last[1:] == (60, True) and not any(fresh for *_, fresh in rest)
    assert before == last and len(last[0]) == 4 and last[0][0] == "p0"
    assert result.rounds == len(measure.calls) - 2 and result.timed == 12 * result.rounds
    assert result.problems == result.refused == 0
    best = max(int(n[1:]) for n in last[0])
    assert result.ratio == pytest.approx(1.0 - 0.003 * best) and result.spread == 0.0


def test_a_round_begins_only_if_it_may_end_in_time() -> None:
    """Three quarters of the time are for rounds, and the next may take as long as the longest."""
    for seconds, rounds in ((4.0, 2), (4.1, 3), (0.0, 0)):
        assert found(Measured(steady), seconds=seconds).rounds == rounds


def test_patience() -> None:
    """Three rounds without anything better end it; a gain of half a percent is nothing better."""
    assert found(Measured(lambda name, call: 1.0)).rounds == 3
    for gain, rounds in ((0.004, 3), (0.02, 5)):
        better = 1.0 - gain
        best = Measured(partial(lambda to, name, call: to if call >= 2 and name != "p0" else 1.0, better))
        assert found(best).rounds == rounds


def test_a_measure_that_fails() -> None:
    """Once is bad luck; twice in a row ends the search, and once at the end leaves the usual schedule."""

    class Failing(Measured):
        def __init__(self, when: Callable[[int, bool], bool]):
            super().__init__(steady)
            self.when = when

        def __call__(self, programs: Sequence[Program], turns: int, fresh: bool = False) -> list[Timing]:
            out = super().__call__(programs, turns, fresh)
            if self.when(len(self.calls), fresh):
                raise MeasureError("no device")
            return out

    always = Failing(lambda call, fresh: True)
    assert found(always) == Found(USUAL, 1.0, 0.0, 2, 0, 0) and len(always.calls) == 2
    once = Failing(lambda call, fresh: call in (1, 3))
    result = found(once, seconds=8.0)
    assert result.ratio < 0.95 and result.rounds == 5 and result.timed == 3 * 12
    at_the_end = Failing(lambda call, fresh: fresh)
    result = found(at_the_end, seconds=4.0)
    assert (result.schedule, result.ratio, result.spread) == (USUAL, 1.0, 0.0) and at_the_end.calls[-1][2]


def test_problems_are_counted_and_never_chosen() -> None:
    measure = Measured(lambda name, call: 1.0 if name == "p0" else "crashed" if int(name[1:]) % 2 else 0.5)
    programs = Programs()
    result = found(measure, seconds=2.0, lower=programs)
    assert result.problems == sum(int(n[1:]) % 2 for names, *_, fresh in measure.calls if not fresh for n in names)
    assert result.ratio == 0.5
    assert int(next(n for n, s in programs.of.items() if s == tuple(map(str, result.schedule)))[1:]) % 2 == 0
    hung = found(Measured(lambda name, call: "hung" if call > 1 and name != "p0" else steady(name, call)), seconds=8.0)
    assert hung.ratio == 1.0 and hung.schedule == USUAL


@pytest.mark.parametrize(("ratio", "kept"), [(0.97, True), (0.98, True), (0.985, False), (1.1, False)])
def test_what_is_worth_it(ratio: float, kept: bool) -> None:
    """Two percent, in every run."""
    result = found(Measured(lambda name, call: 1.0 if name == "p0" else ratio), seconds=3.0)
    assert (result.schedule != USUAL) == kept and result.ratio == (pytest.approx(ratio) if kept else 1.0)
    second = Measured(lambda name, call: 1.0 if name == "p0" or call > 2 else ratio)
    assert found(second, seconds=2.0).ratio == 1.0


def test_the_worse_of_two_runs_counts() -> None:
    measure = Measured(lambda name, call: 1.0)
    fresh = count()
    measure.seconds = lambda name, call: (
        1.0 if name == "p0" else (0.5 if next(fresh) < 3 else 0.7) if measure.calls[-1][2] else 0.4
    )
    assert found(measure, seconds=2.0).ratio == pytest.approx(0.7)


def test_schedules_that_are_given_are_tried_and_nothing_twice() -> None:
    given: Schedule = (Split("i0", 5), Split("i0.1", 5))
    for starts in ([given, given], []):
        measure, programs = Measured(lambda name, call: 1.0), Programs()
        search(elementwise(3), CPU, programs, measure, 1.4, clock=measure.clock, starts=starts)
        assert len(set(programs.of.values())) == len(programs.of)
        assert (tuple(map(str, given)) in programs.of.values()) == bool(starts)


def test_what_is_no_longer_than_twice_the_usual_program() -> None:
    for usual, longest in ((10, 6000), (4000, 8000)):
        for length, fits in ((longest, True), (longest + 1, False)):
            usual_text = "; ".join(map(str, USUAL))
            lower = Programs(length=lambda s, n=length, u=usual, t=usual_text: u if s == t else n)  # type: ignore[misc]
            measure = Measured(lambda name, call: 1.0)
            found(measure, seconds=1.4, lower=lower)
            assert bool(measure.calls) == fits


@pytest.mark.parametrize(("usual", "needed"), [(3, 3), (100, 8), (8, 8)])
def test_parallel_work_that_is_kept(usual: int, needed: int) -> None:
    """As much as the usual program has, but four for each of two workers are enough."""
    usual_text = "; ".join(map(str, USUAL))
    for grid, fits in ((needed - 1, False), (needed, True)):
        lower = Programs(grid=lambda s, n=grid: usual if s == usual_text else n)  # type: ignore[misc]
        measure = Measured(lambda name, call: 1.0)
        found(measure, seconds=1.4, lower=lower, keep_workgroups=True)
        assert bool(measure.calls) == fits
        found(measure, seconds=1.4, lower=Programs(grid=lower.grid))
        assert measure.calls


def test_what_cannot_be_lowered_is_counted() -> None:
    def lower(kernel: UOp, target: Target) -> Program:
        if kernel.arg.schedule != tuple(map(str, USUAL)):
            raise IndexError("a defect")
        return Programs()(kernel, target)

    measure = Measured(lambda name, call: 1.0)
    result = search(KERNEL, CPU, lower, measure, 9.0, clock=measure.clock)
    assert result.refused > 50 and result.schedule == USUAL and not measure.calls and result.rounds == 0


def test_the_seed_chooses_and_reports_are_made() -> None:
    said: list[tuple[int, int, float]] = []
    by_seed: list[tuple[Schedule, ...]] = []
    for seed in (1, 1, 2):
        programs = Programs()
        found(Measured(steady), seconds=1.4, lower=programs, seed=seed, report=lambda *of: said.append(of))
        by_seed.append(tuple(programs.of.values()))  # type: ignore[arg-type]
    assert by_seed[0] == by_seed[1] != by_seed[2] and set(by_seed[0]) != set(by_seed[2])
    assert all(rounds == 1 and timed == 12 and ratio < 1 for rounds, timed, ratio in said) and len(said) == 3
    # by default the seed is 0
    one, other = Programs(), Programs()
    found(Measured(steady), seconds=1.4, lower=one)
    found(Measured(steady), seconds=1.4, lower=other, seed=0)
    assert one.of == other.of


def test_a_kernel_of_one_element() -> None:
    """Axes of one step are gone after an action: what proposes further ones copes with that."""
    measure = Measured(lambda name, call: 1.0)
    assert search(elementwise(1), CPU, Programs(), measure, 10.0, clock=measure.clock).ratio == 1.0


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 5, 9, 10, 60, 61])
def test_the_spread_of_ratios(turns: int) -> None:
    """Half the distance of the two ratios in order whose ranks are about a normal deviate from the middle."""
    chance = random.Random(turns)
    reference = Timing(tuple(chance.uniform(1, 2) for _ in range(turns)))
    ratios = [chance.uniform(0.5, 0.6) for _ in range(turns)]
    timing = Timing(tuple(a * b for a, b in zip(ratios, reference.seconds)))
    ordered = sorted(a / b for a, b in zip(timing.seconds, reference.seconds))
    reach = next(n for n in range(100) if n >= 0.98 * turns**0.5)
    low, high = max((turns - 1) // 2 - reach, 0), min(turns // 2 + reach, turns - 1)
    middle = (ordered[(turns - 1) // 2] + ordered[turns // 2]) / 2
    assert compare(timing, reference) == pytest.approx((middle, (ordered[high] - ordered[low]) / 2))
    assert compare(timing, Timing((0.0,) * turns)) == (float("inf"), 0.0)
