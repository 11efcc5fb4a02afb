"""Gradients of random programs, against differences of their values in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.fuzz.generator import Program, programs
from tests.fuzz.test_programs import quickly
from tinyweb import Tensor, Variable
from tinyweb.dtype import dtypes

STEP = 2e-5
smooth = programs(10, types=[dtypes.float64], updates=False)


def loss_of(program: Program, inputs: dict[str, Tensor]) -> Tensor:
    """The outputs of float64, each element with a weight of its own, added up."""
    scope: dict[str, Any] = {"Tensor": Tensor, "dtypes": dtypes, "np": np, **inputs}
    for name, (low, high, at) in program.variables.items():
        scope[name] = Variable(name, low, high).bind(at)
    exec("\n".join(program.lines), scope)
    loss = Tensor(0.0, dtype=dtypes.float64)
    for i, name in enumerate(program.outputs):
        out = scope[name]
        if out.dtype is dtypes.float64:
            loss = loss + (out * (0.7 + 0.3 * i) + out * out * 0.05).sum()
    return loss


def check(program: Program, seed: int) -> None:
    # values that are no round numbers: none is a tie, a step or a kink by chance
    chance = np.random.default_rng(seed)
    arrays = {
        n: v.array + chance.uniform(-0.05, 0.05, v.array.shape) if v.is_float else v.array for n, v, _ in program.inputs
    }
    targets = [n for n, v, _ in program.inputs if v.dtype is dtypes.float64]
    directions = {n: chance.uniform(-1, 1, arrays[n].shape) for n in targets}
    types = {n: v.dtype for n, v, _ in program.inputs}

    def tensors(step: float) -> dict[str, Tensor]:
        moved = {n: a + step * directions[n] if n in directions else a for n, a in arrays.items()}
        return {n: Tensor(a, dtype=types[n]) for n, a in moved.items()}

    def value(step: float) -> float:
        return float(loss_of(program, tensors(step)).item())

    inputs = tensors(0.0)
    loss = loss_of(program, inputs)
    slope, size = 0.0, 0.0
    for n in targets:
        try:
            (g,) = loss.gradient(inputs[n])
        except ValueError as e:
            assert "does not depend" in str(e), e
            continue
        assert g.shape == inputs[n].shape and g.dtype is dtypes.float64
        terms = g.numpy() * directions[n]
        slope, size = slope + float(terms.sum()), size + float(np.abs(terms).sum())
    assume(size > 0)  # zero on both sides would show nothing
    estimates = [(value(h) - value(-h)) / (2 * h) for h in (STEP, STEP / 4)]
    scale = 1.0 + size + abs(float(loss.item())) * 1e-3
    assume(abs(estimates[0] - estimates[1]) <= 1e-6 * scale)  # else a kink lies between
    assert abs(slope - estimates[1]) <= 1e-5 * scale, (
        f"the gradient says {slope}, the values {estimates}\n\n{program.text('CPU')}\n"
    )


@settings(quickly, max_examples=20)
@given(smooth, st.integers(0, 1000))
def test_gradients(program: Program, seed: int) -> None:
    check(program, seed)


@pytest.mark.slow
@settings(quickly, max_examples=1500)
@given(smooth, st.integers(0, 1000))
def test_many(program: Program, seed: int) -> None:
    check(program, seed)
