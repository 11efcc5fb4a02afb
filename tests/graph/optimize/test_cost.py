"""What is said of a schedule without running it: the limits of a target, to the number, and the estimate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.graph.lower.hand_kernels import BY_NAME, axes, kernel, param, total
from tests.graph.optimize.families import attention, elementwise, row_sums, symbolic_rows
from tests.graph.recorded import changed, write
from tests.native_runtimes.programs import Writer
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Space, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import Action, Bind, Split, Stage, apply, heuristic
from tinyweb.graph.optimize.cost import (
    MAX_STAGED_BYTES,
    MAX_TILE,
    excess,
    refusal,
)
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target, interpreter_target, wasm_target, webgpu_target
from tinyweb.tuning.estimate import estimate, workgroups

RECORD = Path(__file__).with_name("costs.txt")
HOW = "python -m tests.graph.optimize.test_cost"
CPU, GPU = cpu_target(8, 2), webgpu_target()
GRID, THREAD, VECTOR, UNROLL = AxisKind.GRID, AxisKind.THREAD, AxisKind.VECTOR, AxisKind.UNROLL


def bound(k: UOp, *actions: Action) -> UOp:
    for action in actions:
        k = action.apply(k)
    return k


# -- capabilities --------------------------------------------------------------------------------------------------
def test_what_targets_can_do() -> None:
    targets = CPU, wasm_target(), GPU, interpreter_target()
    assert [t.family for t in targets] == ["vectors", "vectors", "threads", "arrays"]
    assert [t.thread_dims for t in targets] == [(), (), (0, 1, 2), ()]
    assert [Space.SHARED in t.staging_spaces for t in targets] == [False, False, True, False]
    assert all(Space.REGISTER in t.staging_spaces and t.stores_apart(dtypes.int8) for t in targets)
    assert [t.stores_apart(dtypes.int4) for t in targets] == [False, False, True, True]


# -- limits ------------------------------------------------------------------------------------------------------
def test_the_largest_tile() -> None:
    for size, fits in ((MAX_TILE // 4, True), (MAX_TILE // 4 + 1, False)):
        tile = bound(elementwise(4, size), Bind("i0", UNROLL), Bind("i1", VECTOR))
        assert (refusal(tile, CPU) == "") == fits and excess(tile, CPU) == ""
        assert fits or refusal(tile, CPU) == f"a tile of {4 * size} elements is more than {MAX_TILE}"
    assert refusal(elementwise(4, 4), CPU) == ""


def test_dimensions_of_the_grid() -> None:
    for dim in (0, 1, 2):
        k = bound(elementwise(6), Bind("i0", GRID, dim))
        for dims in (1, 2, 3):
            said = excess(k, replace(GPU, grid_dims=dims))
            assert said == ("" if dim < dims else f"webgpu has no dimension {dim} of the grid")
            assert refusal(k, replace(GPU, grid_dims=dims)) == said


def test_threads() -> None:
    k = bound(elementwise(16, 8), Bind("i0", THREAD, 1), Bind("i1", THREAD, 0))
    assert excess(k, CPU) == "cpu has no threads" and excess(elementwise(16, 8), CPU) == ""
    for most, fits in ((127, False), (128, True)):
        said = excess(k, replace(GPU, max_invocations=most))
        assert said == ("" if fits else "a workgroup of 128 threads is more than webgpu has")
    for sizes, fits in (((8, 16, 1), True), ((7, 16, 1), False), ((8, 15, 1), False), ((16, 8, 64), False)):
        assert (excess(k, replace(GPU, max_workgroup=sizes)) == "") == fits
    # reductions one after the other share the threads of a dimension: they are counted once
    two = bound(BY_NAME["softmax_3_13"].kernel, Bind("r0", THREAD), Bind("r1", THREAD))
    assert excess(two, replace(GPU, max_invocations=13)) == "" != excess(two, replace(GPU, max_invocations=12))


def staged(space: Space, *counts: int) -> UOp:
    """A step that brings so many elements near, of a parameter each."""
    i, j = axes(4, 6)
    value = UOp.const(0.0, dtypes.float32)
    for slot, (count, r) in enumerate(zip(counts, axes(*counts, reduce=True, first=2)), start=1):
        value = value + total(param(slot, 4 * count).load(i * count + r) * param(9, 6).load(j), r)
    threads = (Bind("i1", THREAD),) if space is Space.SHARED else ()
    stages = (Stage(slot + 1, "i0", space) for slot in range(len(counts)))
    return bound(kernel(param(0, 24).store(i * 6 + j, value)), *threads, *stages)


def test_memory() -> None:
    for counts in ((1,), (100,), (20, 30)):
        k, size = staged(Space.SHARED, *counts), 4 * sum(counts)
        assert excess(k, replace(GPU, shared_bytes=size)) == ""
        said = excess(k, replace(GPU, shared_bytes=size - 1))
        assert said == f"{size} bytes of shared memory are more than webgpu has"
    most = MAX_STAGED_BYTES // 4
    half = most // 2
    assert excess(staged(Space.REGISTER, half, half - 2, 2), CPU) == ""
    said = excess(staged(Space.REGISTER, half, half - 1, 2), CPU)
    assert said == f"{MAX_STAGED_BYTES + 4} bytes staged by one worker are more than {MAX_STAGED_BYTES}"


def test_parts_of_bytes() -> None:
    """Two workers must not update one byte; alone, or on a GPU, whose memory is words, nobody does."""
    nibbles = elementwise(24, out=dtypes.int4, dtype=dtypes.int8)
    for k, fits in ((nibbles, True), (bound(nibbles, Bind("i0", GRID)), False)):
        assert (excess(k, CPU) == "") == (excess(k, wasm_target()) == "") == fits
        assert fits or excess(k, CPU) == "two workers would update parts of one byte"
        assert excess(k, GPU) == excess(k, interpreter_target()) == ""
    assert excess(bound(elementwise(24, out=dtypes.int8), Bind("i0", GRID)), CPU) == ""
    one = bound(elementwise(1, out=dtypes.int4, dtype=dtypes.int8), Bind("i0", GRID))
    assert excess(one, CPU) == ""


# -- the estimate ------------------------------------------------------------------------------------------------
TARGETS = {"cpu": CPU, "cpu16": cpu_target(16, 3), "webgpu": webgpu_target(subgroups=True)}
HAND = ("matmul", "quantised_i8", "dots_i8", "softmax_3_13", "scores_6", "argmax", "in_place", "gate_and_up", "padded")
KERNELS = {name: BY_NAME[name].kernel for name in HAND} | {
    "large": elementwise(300, 1000), "rows": row_sums(64, 1000), "one row": row_sums(1, 8192),
    "symbolic rows": symbolic_rows(8), "attention": attention(1, 8, 64, 16, 16), "integers": BY_NAME["integers"].kernel,
}  # fmt: skip


def estimates(name: str) -> dict[str, str]:
    found = {}
    for where, target in TARGETS.items():
        for schedule in (heuristic(KERNELS[name], target), ()):
            program = lower(apply(KERNELS[name], schedule), target)
            found[f"{where}{'' if schedule else ' plain'}"] = f"{estimate(program, target):.6g} {workgroups(program)}"
    return found


def test_estimates_are_what_was_meant() -> None:
    different = changed(RECORD, "estimates", {name: estimates(name) for name in KERNELS})
    assert not different, f"not as recorded (`{HOW}` if that is meant):\n" + "\n".join(different)


def estimated(k: UOp, target: Target, *actions: Action) -> float:
    return estimate(lower(apply(k, actions), target), target)


def test_more_work_takes_longer() -> None:
    for make in (elementwise, lambda n: row_sums(4, n), lambda n: row_sums(n, 16)):
        for target in (CPU, GPU):
            times = [estimated(make(n), target) for n in (8, 16, 64, 256)]
            assert times == sorted(set(times))
    assert estimated(elementwise(64), CPU, Split("i0", 8), Bind("i0.1", VECTOR)) < estimated(elementwise(64), CPU) / 3


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_workers_share_the_grid_in_turns(workers: int) -> None:
    target = cpu_target(8, workers)
    one = estimated(elementwise(1, 64), target)
    for groups in (2, 3, 8, 9):
        assert estimated(elementwise(groups, 64), target, Bind("i0", GRID)) == pytest.approx(
            one * -(-groups // workers), rel=0.05
        )


def test_what_is_done_before_the_grid_counts_once() -> None:
    def filled(first: bool) -> Program:
        w = Writer()
        out, a = w.param(dtypes.float32, 64), w.param(dtypes.float32, 64)
        g = None if first else w.grid(64)
        r = w.buffer(dtypes.float32, 64)
        i = w.loop(64)
        done = w.end(i, w.store(r, i, w.load(a, i)))
        g = w.grid(64) if g is None else g
        w.store(out, g, w.load(r.after(done), g))
        return w.program("p", (64, 1, 1))

    before, inside = (estimate(filled(first), CPU) for first in (True, False))
    assert 20 * before < inside, "32 steps of the grid for each of two workers"


if __name__ == "__main__":
    write(RECORD, {"estimates": {name: estimates(name) for name in KERNELS}}, HOW)
