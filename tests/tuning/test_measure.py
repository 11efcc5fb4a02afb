"""Timing in a process of its own: right results count, wrong, crashing and hanging programs cost nobody else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO

import pytest

from tests.graph.lower.hand_kernels import BY_NAME, I32, axes, kernel, linear, param, reduce, total
from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import Bind, Split, apply, heuristic
from tinyweb.graph.program import Program
from tinyweb.graph.target import cpu_target, wasm_target, webgpu_target
from tinyweb.native_runtimes.open import open_runtime
from tinyweb.tuning import measure as measuring
from tinyweb.tuning.measure import RuntimeMeasure, Worker, memory_of, typical_bindings
from tinyweb.tuning.search import MeasureError
from tinyweb.tuning.wire import Job, receive, send
from tinyweb.tuning.worker import Bench

CPU = open_runtime("CPU").target
LINEAR = linear(32, 64, 64).kernel


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker("CPU")
    yield worker
    worker.close()


def program(k: UOp, *actions: Bind | Split) -> Program:
    return lower(apply(k, actions), CPU)


def sent_over(program: Program) -> Program:
    stream = BytesIO()
    send(stream, program)
    stream.seek(0)
    arrived = receive(stream)
    assert isinstance(arrived, Program)
    return arrived


@pytest.mark.parametrize("target", [cpu_target(), wasm_target(), webgpu_target()], ids=lambda t: t.name)
@pytest.mark.parametrize("name", ["matmul", "quantised_i8", "softmax_6_40", "scores_6", "argmax"])
def test_programs_arrive_as_they_were_sent(name: str, target: object) -> None:
    k = BY_NAME[name].kernel
    sent = lower(apply(k, heuristic(k, target)), target)
    assert sent_over(sent) == sent


def test_a_program_as_deep_as_it_is_long_is_sent() -> None:
    (i,) = axes(8)
    value = param(1, 8).load(i)
    for n in range(3000):
        value = value * value + float(n)
    sent = lower(kernel(param(0, 8).store(i, value)), CPU)
    assert len(sent.uops) > 6000 and sent_over(sent) == sent


def test_times_are_paired(worker: Worker) -> None:
    usual = lower(apply(LINEAR, heuristic(LINEAR, CPU)), CPU)
    first, second = RuntimeMeasure(LINEAR, worker)([usual, program(LINEAR, Split("i0", 4))], 4)
    assert len(first.seconds) == 4 and 1 <= len(second.seconds) <= 4
    assert all(0 < s < 10 for s in first.seconds + second.seconds) and not second.problem


@pytest.mark.parametrize(("slow_runs", "turns"), [(1, 4), (3, 0)])
def test_one_slow_run_decides_nothing(monkeypatch: pytest.MonkeyPatch, slow_runs: int, turns: int) -> None:
    """Whatever else the machine does may hold a good program up once, never each time."""
    programs = (program(LINEAR), program(LINEAR, Split("i0", 4)))
    job = Job(programs, memory_of(LINEAR), ({},), turns=4, seconds=60, hopeless=1e9)
    runs, check = [0, 0], Bench.check

    def held_up(bench: Bench, i: int) -> float:
        check(bench, i)
        runs[i] += 1
        return 9.0 if i == 1 and runs[1] <= slow_runs else 1e-6

    monkeypatch.setattr(Bench, "check", held_up)
    answers = BytesIO()
    bench = Bench(open_runtime("CPU"), job, answers)
    bench.run()
    bench.close()
    answers.seek(0)
    while (answer := receive(answers))[0] != "done":
        pass
    assert len(answer[1][0]) == 4 and len(answer[1].get(1, [])) == turns


def test_symbolic_kernels_run_with_typical_values(worker: Worker) -> None:
    k = BY_NAME["weighted_values_17"].kernel
    assert typical_bindings(k) == ({"start_pos": 19}, {"start_pos": 9})
    first, second = RuntimeMeasure(k, worker)([program(k), lower(apply(k, heuristic(k, CPU)), CPU)], 2)
    assert first.seconds and not second.problem


def test_a_program_that_computes_something_else_does_not_count(worker: Worker) -> None:
    i, j = axes(32, 64)
    (r,) = axes(64, reduce=True, first=2)
    wrong = kernel(
        param(0, 2048).store(
            i * 64 + j, total(param(1, 2048).load(i * 64 + r) * param(2, 4096).load(j * 64 + r) * 1.01, r)
        )
    )
    nearly = kernel(
        param(0, 2048).store(
            i * 64 + j, total(param(1, 2048).load(i * 64 + r) * param(2, 4096).load(j * 64 + r) * 1.000001, r)
        )
    )
    _, other, close = RuntimeMeasure(LINEAR, worker)([program(LINEAR), program(wrong), program(nearly)], 2)
    assert "results differ by" in other.problem and not other.seconds
    assert not close.problem and close.seconds


def test_a_crash_is_the_fault_of_one_program(worker: Worker) -> None:
    """It writes far beyond its memory; the others are timed all the same, by another worker."""
    i, j = axes(32, 64)
    crash = kernel(param(0, 2048).store((i * 64 + j) * 1000000, param(1, 2048).load(i) * param(2, 4096).load(j)))
    timings = RuntimeMeasure(LINEAR, worker)([program(LINEAR), program(crash), program(LINEAR, Split("i1", 8))], 2)
    assert [t.problem for t in timings] == ["", "crashed", ""]
    assert timings[0].seconds and not timings[1].seconds and timings[2].seconds


def test_a_program_that_hangs_is_ended(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "HANG_SECONDS", 3.0)
    i, j = axes(32, 64)
    loops = axes(1 << 20, 1 << 20, 1 << 20, reduce=True, first=2)
    at = (loops[0] + loops[1] + loops[2]) % 64
    forever = kernel(
        param(0, 2048).store(
            i * 64 + j, reduce(Ops.MAX, param(1, 2048).load(at) * param(2, 4096).load(j * 64 + at), *loops)
        )
    )
    timings = RuntimeMeasure(LINEAR, worker)([program(LINEAR), program(forever), program(LINEAR, Split("i0", 2))], 2)
    assert "did not finish" in timings[1].problem
    assert timings[0].seconds and timings[2].seconds
    again = RuntimeMeasure(LINEAR, worker)([program(LINEAR)], 2)
    assert again[0].seconds


def test_where_the_reference_fails_nothing_is_timed(worker: Worker) -> None:
    i, j = axes(32, 64)
    crash = kernel(param(0, 2048).store((i * 64 + j) * 1000000, param(1, 2048).load(i) * param(2, 4096).load(j)))
    with pytest.raises(MeasureError, match="crashed"):
        RuntimeMeasure(LINEAR, worker)([program(crash), program(LINEAR)], 2)


def test_a_worker_that_cannot_start() -> None:
    worker = Worker("CPU", command=[os.devnull + "/nothing"] if os.name == "nt" else ["false"])
    with pytest.raises(MeasureError, match="CPU"):
        RuntimeMeasure(LINEAR, worker)([program(LINEAR)], 2)


def test_indices_stay_within_what_they_pick_from() -> None:
    (i,) = axes(6)
    row, (k,) = param(2, 6, I32).load(i), axes(4, first=1)
    gather = kernel(param(0, 24).store(i * 4 + k, param(1, 40).load(row * 4 + k)))
    assert [(m.size, m.bound, m.stored) for m in memory_of(gather)] == [(24, 0, True), (40, 0, False), (6, 10, False)]


def test_scalars_lose_to_vectors(worker: Worker) -> None:
    """A difference nobody can miss is seen."""
    k = linear(64, 64, 256).kernel
    fast = lower(apply(k, heuristic(k, CPU)), CPU)
    reference, slow = RuntimeMeasure(k, worker)([fast, program(k)], 5)
    assert not slow.problem and len(slow.seconds) >= 1 and len(reference.seconds) == 5
    assert min(slow.seconds) > min(reference.seconds)
    assert AxisKind.VECTOR.name.lower() in " ".join(fast.schedule)
