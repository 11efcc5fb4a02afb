"""Random programs compute on every runtime what NumPy says; and so they do under random schedules."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.generator import Program, programs
from tests.fuzz.reference import mismatch

quickly = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


def check(program: Program, device: str) -> None:
    """The outputs on a device are right; else the script that shows it."""
    try:
        results = program.run(device)
    except Exception as e:
        raise AssertionError(f"{type(e).__name__}: {e}\n\n{program.text(device)}\n") from e
    for name, got in results.items():
        wrong = mismatch(got, program.values[name])
        assert wrong is None, f"{name} on {device}: {wrong}\n\n{program.text(device)}\n"


@settings(quickly, max_examples=80)
@given(programs())
def test_cpu(program: Program) -> None:
    check(program, "CPU")


@pytest.mark.parametrize("device", ["WASM", "WEBGPU", "INTERPRETER"])
@settings(quickly, max_examples=20)
@given(programs())
def test_others(device: str, program: Program) -> None:
    check(program, device)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
@settings(quickly, max_examples=1500)
@given(programs(20))
def test_many(device: str, program: Program) -> None:
    check(program, device)
