"""Reductions of few long rows on GPUs: parts of the rows, and kernels that reduce what is found of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.graph.schedule.kernel_oracle import Oracle
from tests.graph.schedule.test_long_attention import planned
from tinyweb import Tensor, dtypes
from tinyweb.graph.ir import Ops
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import Target, cpu_target, webgpu_target

GPU = webgpu_target()


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    out: np.ndarray = e / e.sum(-1, keepdims=True)
    return out


def normed(x: Any) -> Any:
    distance = x - x.mean(-1, keepdims=True)
    return distance / ((distance * distance).mean(-1, keepdims=True) + 1e-5) ** 0.5


def norm(x: Tensor) -> Tensor:
    distance = x - x.mean(-1, keepdim=True)
    return distance / ((distance * distance).mean(-1, keepdim=True) + 1e-5).sqrt()


# what is computed, the same in NumPy, and kernels
CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray], int]] = {
    "sum": (lambda x: x.sum(-1), lambda x: x.sum(-1), 2),
    "max": (lambda x: x.max(-1), lambda x: x.max(-1), 2),
    "softmax": (lambda x: x.softmax(-1), softmax, 3),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda x: np.log(softmax(x)), 3),
    "weighted": (lambda x: (x.softmax(-1) * x).sum(-1), lambda x: (softmax(x) * x).sum(-1), 2),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda x: np.log(np.exp(x).sum(-1)), 3),
    "var": (lambda x: x.var(-1), lambda x: x.var(-1, ddof=1), 3),
    "norm": (norm, normed, 4),
    "two at once": (lambda x: x.max(-1) + x.sum(-1), lambda x: x.max(-1) + x.sum(-1), 2),
    "columns": (lambda x: x.transpose(0, 1).sum(0), lambda x: x.sum(-1), 2),
}


@pytest.mark.parametrize("shape", [(1, 131072), (3, 131101)])
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, shape: tuple[int, int]) -> None:
    """Also of rows that no number of parts divides: what is beyond the end changes nothing."""
    oracle, (ours, theirs, kernels) = Oracle(), CASES[case]
    x = np.random.default_rng(1).standard_normal(shape, np.float32) - 0.5
    plan = planned(ours(oracle.tensor(x)))
    assert len(plan.calls) == kernels
    for call in plan.calls:
        oracle.run(call, {})
    want = theirs(x.astype(np.float64))
    got = oracle.data[plan.results[0]].reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("device", ["OPENCL", pytest.param("WEBGPU", marks=pytest.mark.slow)])
def test_on_a_gpu(device: str) -> None:
    """A row without a number, one that begins with none, and one that has all."""
    x = np.random.default_rng(2).standard_normal((3, 70001), np.float32)
    x[0], x[1, :50000] = -np.inf, -np.inf
    got = [y.numpy() for y in (Tensor(x, device=device).softmax(-1), Tensor(x, device=device).logsumexp(-1))]
    assert np.isnan(got[0][0]).all() and got[1][0] == -np.inf
    wide = x[1:].astype(np.float64)
    np.testing.assert_allclose(got[0][1:], softmax(wide), rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(got[1][1:], np.log(np.exp(wide).sum(-1)), rtol=1e-5)


def kernels(rows: int, columns: int, ours: Callable[[Tensor], Tensor], target: Target = GPU) -> int:
    return len(planned(ours(Tensor.empty(rows, columns)), target).calls)


@pytest.mark.parametrize(
    ("rows", "columns", "case", "count"),
    [(1, 16384, "sum", 1), (64, 131072, "softmax", 1), (1, 8192, "softmax", 1), (1, 32768, "norm", 1)],
)
def test_when_launches_are_worth_it(rows: int, columns: int, case: str, count: int) -> None:
    """Not for rows that are soon reduced, nor for as many as keep a small GPU busy."""
    assert kernels(rows, columns, CASES[case][0]) == count
    assert kernels(rows, columns, CASES[case][0], cpu_target()) == count


def test_reductions_that_need_many_others_stay_together() -> None:
    """As the steps of a search: each would be launches of its own."""

    def halved(x: Tensor) -> Tensor:
        low = x.min(-1, keepdim=True)
        for _ in range(4):
            low = low + (x > low).cast(dtypes.float32).mean(-1, keepdim=True)
        return low

    assert kernels(1, 131072, halved) == 1


def test_workgroups_keep_the_device_busy() -> None:
    plan = planned(Tensor.empty(1, 131072).softmax(-1))
    threads = [
        np.prod([int(u.src[0].arg) for u in program_for(call.kernel, GPU).uops if u.op is Ops.SPECIAL] or [1])
        for call in plan.calls
    ]
    assert threads[0] >= 2048 and threads[2] >= 8192
