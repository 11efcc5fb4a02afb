"""Every hand-built kernel, on every target, with and without a schedule: the interpreter agrees with NumPy."""

from __future__ import annotations

import pytest

from tests.graph.lower.hand_kernels import CASES, Case, check
from tinyweb.graph.optimize import heuristic, optimize
from tinyweb.graph.target import Target, cpu_target, interpreter_target, wasm_target, webgpu_target

TARGETS = {
    "interpreter": interpreter_target(),
    "cpu": cpu_target(8, 4),
    "avx512": cpu_target(16, 4),
    "wasm": wasm_target(),
    "webgpu": webgpu_target(),
    "webgpu with subgroups": webgpu_target(subgroups=True),
}


@pytest.mark.parametrize("target", [interpreter_target(), webgpu_target()], ids=lambda t: t.name)
@pytest.mark.parametrize(
    "case",
    # those of one row are the longest, and without a schedule they are as those of many
    [pytest.param(c, marks=pytest.mark.slow) if "_alone" in c.name else c for c in CASES],
    ids=lambda c: c.name,
)
def test_unscheduled(case: Case, target: Target) -> None:
    check(case, case.kernel, target)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_heuristic(case: Case, target: Target) -> None:
    program = check(case, optimize(case.kernel, target), target)
    assert program.schedule == tuple(str(a) for a in heuristic(case.kernel, target))
