"""Random programs compute on every runtime what NumPy says; and so they do under random schedules."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.generator import LARGE, SMALL, Program, programs
from tests.fuzz.reference import mismatch

quickly = settings(suppress_health_check=list(HealthCheck))


def check(program: Program, device: str) -> None:
    """The outputs on a device are right; else the script that shows it."""
    try:
        results = program.run(device)
    except Exception as e:
        raise AssertionError(f"{type(e).__name__}: {e}\n\n{program.text(device)}\n") from e
    for name, got in results.items():
        wrong = mismatch(got, program.values[name])
        assert wrong is None, f"{name} on {device}: {wrong}\n\n{program.text(device)}\n"


@settings(quickly, max_examples=40)
@given(programs())
def test_cpu(program: Program) -> None:
    check(program, "CPU")


@settings(quickly, max_examples=10)
@given(programs(sizes=LARGE))
def test_long_axes(program: Program) -> None:
    check(program, "CPU")


@pytest.mark.parametrize("device", ["WASM", "WEBGPU", "INTERPRETER"])
@settings(quickly, max_examples=10)
@given(programs())
def test_others(device: str, program: Program) -> None:
    check(program, device)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
@settings(quickly, max_examples=800)
@given(data=st.data())
def test_many(device: str, sizes: tuple[int, ...], data: st.DataObject) -> None:
    check(data.draw(programs(20, sizes=sizes)), device)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["CPU", "WASM", "INTERPRETER"])  # WGSL may compute x - x as 0 whatever x is
@settings(quickly, max_examples=800)
@given(programs(20, special=True))
def test_infinities_and_nan(device: str, program: Program) -> None:
    check(program, device)
