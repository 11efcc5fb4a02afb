"""The harness on contestants whose times are known."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager

import numpy as np
import pytest

from benchmarks import harness
from benchmarks.contestant import Absent, Contestant
from benchmarks.harness import (
    MILLISECONDS,
    Measured,
    Outcome,
    Peer,
    Pool,
    Ratio,
    Row,
    Side,
    Unit,
    close,
    interval,
    measure,
)
from benchmarks.worker import Process, Worker, WorkerError
from tests.benchmarks.fakes import Fake

FAKE = "tests.benchmarks.fakes:Fake"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(harness, "WARM_SECONDS", 0)
    monkeypatch.setattr(harness, "PAUSE_SECONDS", 0)


class Inside:
    """The interface of Process, without a process."""

    pid = os.getpid()

    def __init__(self, worker: Worker):
        self.closed = False
        try:
            self.contestant: Contestant = Fake(**worker.arguments())
        except Absent as error:
            raise WorkerError(str(error), absent=True) from error
        except ValueError as error:
            raise WorkerError(str(error)) from error
        self.versions = self.contestant.versions()

    def _call(self, method, *arguments):
        if self.closed:
            raise WorkerError("closed")
        try:
            return getattr(self.contestant, method)(*arguments)
        except RuntimeError as error:
            raise WorkerError(str(error)) from error

    def run(self, task, repeat=1):
        return self._call("run", task, repeat)

    def result(self, task):
        return self._call("result", task)

    def notes(self, task):
        return self._call("notes", task)

    def close(self):
        self.closed = True


def side(**parameters) -> Side:
    return Side(parameters.get("name", "side"), Worker.of(FAKE, **parameters))


def row(ours, *peers, target=1.0, **more) -> Row:
    against = tuple(Peer(p, target, close(1e-6)) for p in peers)
    return Row("row", "group", "work", ours, against, MILLISECONDS, **more)


def test_ratio_is_their_time_over_ours_and_survives_noise():
    outcome = measure(row(side(seconds=0.01, noise=5), side(seconds=0.02, noise=5, name="peer"), turns=9), Pool(Inside))
    assert not outcome.problem
    assert outcome.ours.median == pytest.approx(0.01) and outcome.peers[0].median == pytest.approx(0.02)
    ratio = outcome.ratio(0)
    assert ratio.ratio == pytest.approx(2) and ratio.low <= 2 <= ratio.high
    assert outcome.met(0) is True
    assert outcome.ours.repeat == 10 and outcome.peers[0].repeat == 5  # turns of a tenth of a second
    assert outcome.ours.versions == {"fake": "1.2"}


def test_ratio_is_of_neighbouring_turns():
    # the machine becomes slower for both: the ratio does not move
    assert Ratio.of([1, 2, 3, 4], [2, 4, 6, 8]) == Ratio(2, 2, 2, 1 - 2 / 16)
    # the median of the turns' ratios, which are 3, 1 and 1, and not that of the medians, 4 / 3
    assert Ratio.of([1, 4, 3], [3, 4, 3]).ratio == 1
    nine = Ratio.of([1] * 9, [9, 1, 2, 8, 3, 7, 4, 6, 5])
    assert (nine.low, nine.ratio, nine.high) == (2, 5, 8) and nine.confidence == pytest.approx(1 - 2 * 10 / 512)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 9, 15, 16, 40])
def test_interval_holds_the_median_as_often_as_it_says(count):
    drop, confidence = interval(count)
    # the median lies outside if at most `drop` of the values are on one side of it, each there with a chance of a half
    outside = 2 * sum(math.comb(count, k) for k in range(drop + 1)) / 2**count
    assert confidence == pytest.approx(max(1 - outside, 0)) and (confidence >= 0.95) == (count >= 6)
    one_more = outside + 2 * math.comb(count, drop + 1) / 2**count
    assert (drop == 0 and count < 9) or 1 - one_more < 0.95 <= confidence


def test_target_not_met():
    outcome = measure(row(side(seconds=0.02), side(seconds=0.01), target=0.6), Pool(Inside))
    assert outcome.met(0) is False


@pytest.mark.parametrize(
    ("fails", "says"), [("setup", "no such size"), ("absent", "no GPU"), ("run", "out of memory"), ("wrong", "differ")]
)
def test_failing_peer_leaves_the_others(fails, says):
    peers = [side(seconds=0.03, fails=fails, name="bad"), side(seconds=0.02, name="good")]
    outcome = measure(row(side(), *peers), Pool(Inside))
    bad = outcome.peers[0]
    assert says in bad.problem and not bad.seconds and outcome.ratio(0) is None and outcome.met(0) is None
    assert bad.absent == (fails == "absent")
    assert outcome.ratio(1).ratio == pytest.approx(2)


@pytest.mark.parametrize("fails", ["setup", "absent", "run"])
def test_failing_side_of_ours_is_the_rows_problem(fails):
    outcome = measure(row(side(fails=fails), side()), Pool(Inside))
    assert outcome.problem and outcome.absent == (fails == "absent")
    assert outcome.ratio(0) is None


def test_all_sides_have_equally_many_turns_and_time_limits_them():
    outcome = measure(row(side(), side(name="peer"), turns=7), Pool(Inside))
    assert len(outcome.ours.seconds) == len(outcome.peers[0].seconds) == 7
    outcome = measure(row(side(), side(name="peer"), turns=7, timing_seconds=0), Pool(Inside))
    assert len(outcome.ours.seconds) == harness.LEAST_TURNS


def test_sides_take_turns_back_and_forth():
    order = []

    class Noting(Inside):
        def run(self, task, repeat=1):
            order.append(task)
            return super().run(task, repeat)

    worker = Worker.of(FAKE)
    two = Row("r", "g", "w", Side("a", worker, "a"), (Peer(Side("b", worker, "b"), 1.0, None),), MILLISECONDS, turns=4)
    measure(two, Pool(Noting))
    assert "".join(order).endswith("abbaabba")


def test_budget_leaves_out_what_does_not_fit_but_never_the_first():
    def named(name, seconds):
        return Row(name, "g", name, side(), (), MILLISECONDS, seconds=seconds)

    short, long, last = named("short", 1), named("long", 1e6), named("last", 1)
    outcomes = list(harness.measure_all([short, long, last], 100, Pool(Inside)))
    assert [(o.row.name, o.left_out) for o in outcomes] == [("short", False), ("long", True), ("last", False)]
    assert not any(o.left_out for o in harness.measure_all([long, short], 2e6, Pool(Inside)))
    # its turn comes when it is the first, whatever it is expected to cost
    assert [o.left_out for o in harness.measure_all([long, short], 100, Pool(Inside))] == [False, False]


def test_processes_live_as_long_as_rows_need_them():
    started = []

    def start(worker):
        started.append(Inside(worker))
        return started[-1]

    shared = Worker.of(FAKE)
    rows = [
        Row("a", "g", "a", Side("x", shared, "decode"), (), MILLISECONDS),
        Row("b", "g", "b", Side("x", shared, "prefill"), (), MILLISECONDS),
        Row("c", "g", "c", side(seconds=0.5), (), MILLISECONDS),
    ]
    assert not any(o.problem for o in harness.measure_all(rows, 100, Pool(start)))
    assert len(started) == 2 and all(s.closed for s in started)


def test_timing_is_inside_of_the_quiet_context_and_setting_up_is_not():
    events: list[object] = []

    class Noting(Inside):
        def run(self, task, repeat=1):
            events.append("run")
            return super().run(task, repeat)

    @contextmanager
    def alone(pids):
        events.append(len(pids))
        yield
        events.append("end")

    measure(row(side(), side(name="peer")), Pool(Noting), alone)
    assert events[0] == 2 and events[-1] == "end" and set(events[1:-1]) == {"run"}


def test_close_finds_what_differs():
    check = close(1e-3)
    one = {"out": np.array([1.0, 100.0])}
    assert check({"out": np.array([1.05, 100.0])}, one) is None  # of the largest value
    assert "differs by 2.0e-03" in check({"out": np.array([1.2, 100.0])}, one)
    assert "differs" in check({"out": np.array([np.nan, 100.0])}, one)
    assert "shape" in check({"out": np.zeros(3)}, one)
    assert "missing" in check({}, one)


def test_units():
    assert Unit("GFLOP/s", amount=4).figure(2) == 2
    assert MILLISECONDS.figure(0.5) == 500


def test_outcome_without_measurements_has_no_ratio():
    empty = Outcome(row(side(), side()), Measured(side()), [Measured(side())], "left out", left_out=True)
    assert empty.ratio(0) is None and empty.met(0) is None


# -- real processes ----------------------------------------------------------------------------------------------------
def test_process_answers_and_ends():
    process = Process(Worker.of(FAKE, seconds=0.25, name="x"))
    assert process.versions == {"x": "1.2"}
    assert process.run("t", 4) == 1.0
    assert np.array_equal(process.result("t")["out"], np.arange(4.0))
    assert process.notes("t")["pid"] == process.pid
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_environment_of_a_process():
    process = Process(Worker(FAKE, threads=None, environment=(("OPENBLAS_NUM_THREADS", "7"),)))
    assert process.notes("t")["threads"] == "7"
    process.close()


@pytest.mark.parametrize(
    ("fails", "says", "absent"),
    [
        ("setup", "ValueError: no such size", False),
        ("absent", "no GPU here", True),
        ("import", "a_library_that_does_not_exist is not installed", True),
    ],
)
def test_process_that_cannot_be_set_up(fails, says, absent):
    with pytest.raises(WorkerError, match=says) as caught:
        Process(Worker.of(FAKE, fails=fails))
    assert caught.value.absent == absent


def test_process_that_dies_or_hangs():
    process = Process(Worker.of(FAKE, fails="die"))
    process.run("t")
    process.run("t")
    with pytest.raises(WorkerError, match="ended with 3: something on standard output"):
        process.run("t")
    process.close()
    process = Process(Worker.of(FAKE, fails="hang"), call_seconds=0.2)
    with pytest.raises(WorkerError, match="no answer within"):
        process.run("t")
    process.close()
