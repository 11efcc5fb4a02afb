"""Rows of measurements: what is done, by whom, against whom, and what ratio is wanted.

    Row(
        name="matmul-f32-1024-2t", group="kernels", work="f32 matmul 1024³, 2 threads",
        ours=Side("tinyweb", Worker.of("benchmarks.native.kernels:Matmul", size=1024, threads=2)),
        peers=(Peer(Side("NumPy", Worker.of("benchmarks.native.kernels:NumpyMatmul", size=1024, threads=2)),
                    target=0.9, check=close(1e-5)),),
        unit=Unit("GFLOP/s", amount=2 * 1024**3 / 1e9),
    )

Measuring a row: every side is set up in a process of its own, its result is compared with ours, all are warmed up, and
then they take turns, in alternating order, so that what disturbs the machine disturbs all alike. A figure is the median
of a side's turns; a ratio is the median of the peer's time over ours in turns that were neighbours (above 1: we are
faster), with an interval that the median of many more turns would lie in.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from benchmarks.contestant import Arrays
from benchmarks.worker import Process, Worker, WorkerError

Check: TypeAlias = Callable[[Arrays, Arrays], "str | None"]
"""(our result, the peer's) -> None where they agree, else how they differ."""

TURNS, LEAST_TURNS, TURN_SECONDS, WARM_SECONDS = 9, 3, 0.1, 0.3
PAUSE_SECONDS = 0.15  # between turns: threads of OpenBLAS spin for 0.11 s after their last work
MAX_REPEAT = 10_000
CONFIDENCE = 0.95  # of a ratio's interval, where there are turns enough for it


@dataclass(frozen=True)
class Unit:
    """How a time is shown: as `amount` per second (a rate), or as seconds times `scale`."""

    name: str
    amount: float | None = None
    scale: float = 1.0

    def figure(self, seconds: float) -> float:
        return self.scale * seconds if self.amount is None else self.amount / seconds


MILLISECONDS = Unit("ms", scale=1e3)
SECONDS = Unit("s")


@dataclass(frozen=True)
class Side:
    """Someone who does the work: a name for tables, a process, and which of its tasks."""

    name: str
    worker: Worker
    task: str = "run"


@dataclass(frozen=True)
class Peer:
    """A side we are measured against. `target`: our speed over its speed is to be at least this.

    `check` compares results before anything is timed; None only for a bound, which computes nothing.
    """

    side: Side
    target: float
    check: Check | None


@dataclass(frozen=True)
class Row:
    """One line of the table.

    `priority`: of rows that were measured equally long ago, those of 1 come first, then 2 and 3. `seconds` is what the
    row is expected to cost, setup included. Timing ends after `turns`, or once it has taken `timing_seconds` and three
    turns are complete.
    """

    name: str
    group: str
    work: str
    ours: Side
    peers: tuple[Peer, ...]
    unit: Unit
    priority: int = 2
    seconds: float = 15.0
    turns: int = TURNS
    turn_seconds: float = TURN_SECONDS
    timing_seconds: float = 30.0
    note: str = ""

    @property
    def sides(self) -> list[Side]:
        return [self.ours, *(p.side for p in self.peers)]


def close(tolerance: float) -> Check:
    """Largest difference at most `tolerance` of the peer's largest value, and no NaN where the peer has none."""

    def check(ours: Arrays, theirs: Arrays) -> str | None:
        for name, wanted in theirs.items():
            if name not in ours:
                return f"{name} is missing"
            found = np.asarray(ours[name], np.float64)
            if found.shape != wanted.shape:
                return f"{name} has shape {found.shape}, the peer's {wanted.shape}"
            scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
            error = float(np.abs(found - wanted.astype(np.float64)).max(initial=0.0)) / scale
            if not error <= tolerance:  # NaN too
                return f"{name} differs by {error:.1e} of the largest value, {tolerance:.0e} is allowed"
        return None

    return check


# -- what came out -----------------------------------------------------------------------------------------------------
@dataclass
class Measured:
    """A side's turns: seconds for the work once. `problem` says why there are none."""

    side: Side
    seconds: list[float] = field(default_factory=list)
    repeat: int = 1
    problem: str = ""
    absent: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Ratio:
    """The peer's time over ours, turn by turn: the median, and the interval that the true one is in with `confidence`.

    The interval is one of order statistics, which assumes nothing of how times are distributed.
    """

    ratio: float
    low: float
    high: float
    confidence: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
        turns = sorted(b / a for a, b in zip(ours, theirs))
        drop, confidence = interval(len(turns))
        return cls(statistics.median(turns), turns[drop], turns[-1 - drop], confidence)


@dataclass
class Outcome:
    """A measured row. `problem`: why nothing could be measured at all; `left_out`: there was no time for it."""

    row: Row
    ours: Measured
    peers: list[Measured]
    problem: str = ""
    absent: bool = False
    left_out: bool = False
    took: float = 0.0

    def ratio(self, peer: int) -> Ratio | None:
        theirs = self.peers[peer]
        return Ratio.of(self.ours.seconds, theirs.seconds) if theirs.seconds and self.ours.seconds else None

    def met(self, peer: int) -> bool | None:
        """Whether the target is reached; None where nothing was measured."""
        ratio = self.ratio(peer)
        return None if ratio is None else ratio.ratio >= self.row.peers[peer].target


def interval(count: int, confidence: float = CONFIDENCE) -> tuple[int, float]:
    """How many of `count` sorted values to leave out at either end, so that the rest reaches from below to above the
    median of what they are drawn from with at least `confidence`, and how sure that is. Few values cannot be so sure:
    none is left out then, and the number says so (3 values: 0.75).
    """
    drop, inside = 0, 1 - 2 / 2**count
    below = 1  # of 2**count outcomes, those with at most `drop` values on one side of the median
    while 2 * (drop + 1) < count:
        below += math.comb(count, drop + 1)
        if 1 - 2 * below / 2**count < confidence:
            break
        drop, inside = drop + 1, 1 - 2 * below / 2**count
    return drop, inside


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


# -- measuring ---------------------------------------------------------------------------------------------------------
class Pool:
    """Running contestants. Equal workers are one process; those that `keep` does not name are closed."""

    def __init__(self, start: Callable[[Worker], Process] = Process):
        self._start = start
        self._running: dict[Worker, Process] = {}

    def open(self, worker: Worker) -> Process:
        """Raises WorkerError."""
        if worker not in self._running:
            self._running[worker] = self._start(worker)
        return self._running[worker]

    def keep(self, workers: Iterable[Worker]) -> None:
        wanted = set(workers)
        for worker in [w for w in self._running if w not in wanted]:
            self._running.pop(worker).close()

    def drop(self, worker: Worker) -> None:
        """Close one that failed: the next row starts it anew."""
        if worker in self._running:
            self._running.pop(worker).close()

    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values()]


Alone: TypeAlias = Callable[[Sequence[int]], AbstractContextManager[object]]
"""Given the pids of the contestants: a context in which they have the machine for themselves, as far as that goes."""


def measure(row: Row, pool: Pool, alone: Alone = lambda pids: nullcontext()) -> Outcome:
    """Measure one row; what fails is in the outcome, never raised."""
    begin = time.perf_counter()
    ours, peers = Measured(row.ours), [Measured(p.side) for p in row.peers]
    outcome = Outcome(row, ours, peers)
    _prepare(ours, pool)
    if ours.problem:
        outcome.problem, outcome.absent = ours.problem, ours.absent
        outcome.took = time.perf_counter() - begin
        return outcome
    for peer in peers:
        _prepare(peer, pool)
    for wanted, peer in zip(row.peers, peers):
        if not peer.problem and wanted.check is not None:
            _compare(wanted.check, ours, peer, pool)
    with alone(pool.pids()):
        taking_part = [m for m in (ours, *peers) if not m.problem]
        for side in taking_part:
            _warm(side, pool, row.turn_seconds)
        _take_turns([m for m in taking_part if not m.problem], pool, row)
    for side in taking_part:
        if not side.problem:
            _note(side, pool)
    outcome.problem = ours.problem
    outcome.took = time.perf_counter() - begin
    return outcome


def _guarded(measured: Measured, pool: Pool, action: Callable[[Process], None]) -> None:
    try:
        action(pool.open(measured.side.worker))
    except WorkerError as error:
        measured.problem, measured.absent = str(error), error.absent
        measured.seconds = []
        pool.drop(measured.side.worker)


def _prepare(measured: Measured, pool: Pool) -> None:
    def action(process: Process) -> None:
        measured.versions = process.versions

    _guarded(measured, pool, action)


def _note(measured: Measured, pool: Pool) -> None:
    def action(process: Process) -> None:
        measured.notes = process.notes(measured.side.task)

    _guarded(measured, pool, action)


def _compare(check: Check, ours: Measured, peer: Measured, pool: Pool) -> None:
    results: list[Arrays | None] = []
    for side in (ours, peer):

        def action(process: Process, side: Measured = side) -> None:
            results.append(process.result(side.side.task))

        _guarded(side, pool, action)
    if len(results) < 2:
        return
    mine, theirs = results
    if mine is None or theirs is None:
        peer.problem = "there is no result to compare"
    elif differs := check(mine, theirs):
        peer.problem = f"results differ: {differs}"


def _warm(measured: Measured, pool: Pool, turn_seconds: float) -> None:
    """Run until caches, clocks and lazily compiled code have settled; then choose how often a turn repeats the work."""

    time.sleep(PAUSE_SECONDS)

    def action(process: Process) -> None:
        task, begin, fastest = measured.side.task, time.perf_counter(), math.inf
        for run in range(MAX_REPEAT):
            seconds = process.run(task)
            if run > 0:  # the first may compile
                fastest = min(fastest, seconds)
            if run >= 1 and time.perf_counter() - begin >= WARM_SECONDS:
                break
        measured.repeat = max(1, min(MAX_REPEAT, math.ceil(turn_seconds / max(fastest, 1e-9))))

    _guarded(measured, pool, action)


def _take_turns(sides: list[Measured], pool: Pool, row: Row) -> None:
    """All sides once per turn, back and forth; every side has as many turns as the others or a problem."""
    begin = time.perf_counter()
    for turn in range(row.turns):
        if turn >= LEAST_TURNS and time.perf_counter() - begin > row.timing_seconds:
            break
        for side in sides if turn % 2 == 0 else reversed(sides):
            if side.problem:
                continue

            def action(process: Process, side: Measured = side) -> None:
                seconds = process.run(side.side.task, side.repeat) / side.repeat
                if not (0 < seconds < math.inf):
                    raise WorkerError(f"measured {seconds} s")
                side.seconds.append(seconds)

            time.sleep(PAUSE_SECONDS)
            _guarded(side, pool, action)
        if sides[0].problem:  # ours
            return


def measure_all(
    rows: Sequence[Row], budget: float, pool: Pool | None = None, alone: Alone = lambda pids: nullcontext()
) -> Iterator[Outcome]:
    """Outcomes of `rows`, in that order. Rows that would not end within `budget` seconds are left out; the first is
    measured whatever it costs, so that every row's turn comes.
    """
    pool = pool or Pool()
    begin = time.perf_counter()
    waiting = list(rows)
    try:
        for i, row in enumerate(waiting):
            left = budget - (time.perf_counter() - begin)
            if i > 0 and row.seconds > left:
                empty = [Measured(p.side) for p in row.peers]
                yield Outcome(row, Measured(row.ours), empty, f"left out: about {row.seconds:.0f} s", left_out=True)
                continue
            pool.keep(side.worker for side in row.sides)
            yield measure(row, pool, alone)
            following = waiting[i + 1].sides if i + 1 < len(waiting) else []
            pool.keep(side.worker for side in following)
    finally:
        pool.keep(())
