"""The long way to reduce a large argument, taken where a lane needs it: alone, nested, inside of other reductions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.graph.ir import Ops
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import cpu_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "of every third": (lambda t, u: t[:, ::3].sin(), lambda x, y: np.sin(x[:, ::3])),
    "summed": (lambda t, u: t.cos().sum(1), lambda x, y: np.cos(x).sum(1)),
    "multiplied": (lambda t, u: t.sin() @ u, lambda x, y: np.sin(x) @ y),
    "of the same and of another": (
        lambda t, u: t.sin() + t.cos() * (t + 1).tan(),
        lambda x, y: np.sin(x) + np.cos(x) * np.tan((x.astype(np.float32) + np.float32(1)).astype(np.float64)),
    ),
    "nested": (lambda t, u: t.sin().cos().tan(), lambda x, y: np.tan(np.cos(np.sin(x)))),
    "of a sum": (lambda t, u: (u.sum(0) * 1e7).sin(), lambda x, y: np.sin(np.float32(1e7) * y.sum(0))),
    "in a softmax": (
        lambda t, u: (t.sin() * 3).softmax(1),
        lambda x, y: np.exp(np.sin(x) * 3) / np.exp(np.sin(x) * 3).sum(1, keepdims=True),
    ),
}


@pytest.mark.parametrize("device", ["CPU", "WASM"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, device: str) -> None:
    random = np.random.default_rng(0)
    ours, theirs = CASES[name]
    for largest in (2, 7, 37):  # none, some and most are far
        x = (random.standard_normal((19, 53)) * 10 ** random.uniform(-3, largest, (19, 53))).astype(np.float32)
        y = random.integers(-9, 9, (53, 11)).astype(np.float32)  # sums are exact
        got = ours(Tensor(x, device=device), Tensor(y, device=device)).numpy()
        want = theirs(x.astype(np.float64), y.astype(np.float64))
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-4)


def test_where_arguments_are_near_the_border() -> None:
    x = np.float32(2**20) + np.arange(-40, 40, dtype=np.float32) / 16
    for device in ("CPU", "WASM"):
        np.testing.assert_allclose(Tensor(x, device=device).sin().numpy(), np.sin(x.astype(np.float64)), rtol=3e-7)


def test_only_targets_with_branches_have_the_loop() -> None:
    x = Tensor(np.ones(64, np.float32)).realize()
    (kernel,) = capture(lambda: x.sin().realize()).kernels
    for target, loop in ((cpu_target(), True), (wasm_target(), True), (webgpu_target(), False)):
        names = [u.arg.name for u in program_for(kernel, target).uops if u.op is Ops.RANGE]
        assert ("rare0" in names) is loop
