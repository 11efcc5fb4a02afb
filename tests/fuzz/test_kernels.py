"""Rules of thumb hold for random kernels over few parameters: every schedule fits, is lowered, and computes the same.

`make test-all` takes new kernels each time: TINYWEB_TEST_SEED=… with the test's name repeats them.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.control.seeds import SEED
from tests.fuzz.kernels import expected, inputs, random_kernel
from tests.graph.lower.hand_kernels import run, supports_types
from tests.graph.optimize.families import TARGETS
from tinyweb.array.packing import pack, unpack
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import Target

SMALL = 1 << 17  # multiplications that the interpreter carries out in seconds
targets = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def check_schedules(target: Target, part: int, count: int) -> None:
    """A rule that does not fit raises: graphs are checked in tests."""
    done = 0
    for i in range(count):
        k = random_kernel((SEED, part, i))
        if not supports_types(k, target):
            continue
        try:
            program_for(k, target)
        except ValueError as error:
            raise AssertionError(f"kernel {(SEED, part, i)} for {target.name}: {error}") from error
        done += 1
    assert done > count // 2


def check_values(target: Target, part: int, count: int) -> None:
    for i in range(count):
        k = random_kernel((SEED, part, i), SMALL)
        if not supports_types(k, target):
            continue
        memory, params = inputs(k), sorted((u for u in k.toposort() if u.op is Ops.PARAM), key=slot)
        want = expected(k, memory)
        buffers = [np.append(pack(m, p.dtype).view(np.uint8), np.zeros(16, np.uint8)) for m, p in zip(memory, params)]
        got = unpack(run(program_for(k, target), target, buffers, {})[0].tobytes(), params[0].dtype, want.size)
        assert (got == want.astype(got.dtype)).all(), f"kernel {(SEED, part, i)} for {target.name}"


def slot(u: UOp) -> int:
    return int(u.arg.slot)


@targets
def test_schedules_of_few(target: Target) -> None:
    check_schedules(target, 0, 15)


@pytest.mark.parametrize("name", ["cpu16", "subgroups"])
def test_values_of_few(name: str) -> None:
    check_values(TARGETS[name], 1, 5)


@targets
def test_results_of_two_sums_fit_into_shared_memory(target: Target) -> None:
    """32 threads for each of 8 rows of 8 results: two sums of them would need 20 KiB."""
    program_for(random_kernel((77, 5077)), target)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2, 6))
@targets
def test_schedules_of_many(target: Target, part: int) -> None:
    check_schedules(target, part, 500)


@pytest.mark.slow
@targets
def test_values_of_many(target: Target) -> None:
    check_values(target, 6, 30)


def test_there_are_all_kinds() -> None:
    """What is claimed of the kernels: loads of one parameter by several ways, gates, narrow types, two reductions."""
    made = [[u for u in random_kernel((0, i)).toposort()] for i in range(100)]
    loads = [[u for u in nodes if u.op is Ops.LOAD] for nodes in made]
    assert sum(len({u.src[0] for u in found}) < len(found) for found in loads) > 50
    assert sum(any(len(u.src) > 2 for u in found) for found in loads) > 5
    assert sum(any(u.dtype.bits < 32 for u in found) for found in loads) > 30
    assert sum(sum(u.op is Ops.REDUCE for u in nodes) > 1 for nodes in made) > 5
    assert sum(any(not any(r.arg.reduce for r in u.ranges) for u in found) for found in loads) > 20
    assert random_kernel((0, 3)) is random_kernel((0, 3))
