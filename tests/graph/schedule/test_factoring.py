"""Sums of products of which one factor is the same along some axes: the other is summed first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.graph.schedule.kernel_oracle import Oracle
from tinyweb import Tensor
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.schedule import schedule
from tinyweb.graph.schedule.work import executed

CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...], tuple[int, ...], int]] = {
    "means of columns": (lambda x, w: (x @ w).mean(0), (90, 50), (50, 70), 90 * 50 + 50 * 70),
    "sums of rows": (lambda x, w: (x @ w).sum(1), (90, 50), (50, 70), 90 * 50 + 50 * 70),
    "a sum of all": (lambda x, w: (x @ w).sum(), (90, 50), (50, 70), 90 * 50 + 50 * 70 + 70),
    "a batch": (lambda x, w: (x @ w).mean(1), (3, 90, 50), (50, 70), 3 * (90 * 50 + 50 * 70)),
    "scaled": (lambda x, w: (x @ w).sum(0) * 3, (90, 50), (50, 70), 90 * 50 + 50 * 70),
    "of both": (lambda x, w: (x @ w).sum(0), (90, 6, 50), (90, 50, 7), 90 * 6 * 50 * 7 + 90 * 6 * 7),
    "largest": (lambda x, w: (x @ w).max(0), (90, 50), (50, 70), 90 * 50 * 70 + 90 * 70),
    "small": (lambda x, w: (x @ w).sum(0), (9, 50), (50, 7), 9 * 50 * 7 + 9 * 7),
    "also a result": (lambda x, w: (x @ w).sum(0) - (x @ w)[0], (90, 50), (50, 70), 2 * 90 * 50 * 70),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_steps(case: str) -> None:
    oracle, (ours, x, w, most) = Oracle(), CASES[case]
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s, np.float32) for s in (x, w))
    out: Tensor = ours(oracle.tensor(a), oracle.tensor(b))
    want = ours(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(oracle.numpy(out), want, rtol=1e-3, atol=1e-3)
    plan = schedule([UOp(Ops.CONTIGUOUS, out.dtype, (out.uop,))])
    assert sum(executed(call.kernel) for call in plan.calls) <= most
