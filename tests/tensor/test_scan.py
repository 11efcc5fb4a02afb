"""Running sums, products and extrema, differences, integrals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, Variable, dtypes

INF, NAN = np.inf, np.nan
A, C = data(3, 5), data(2, 3, 4)
LONG = data(300)
TIES = np.array([[1, 3, 3, 2, 3], [0, 0, -1, 0, 5]], np.float32)
ODD = np.array([1, INF, 2, NAN, 3, -INF, NAN, 0], np.float32)
INTS = np.array([[3, -1, 7, 7, 2], [0, 5, -9, 5, 5]], np.int32)


def scans(axis: int) -> Any:
    """All of them along one axis."""
    return lambda a: (a.cumsum(axis), a.cumprod(axis), *a.cummax(axis), *a.cummin(axis), a.logcumsumexp(axis))


def sums(a: Any) -> Any:
    return a.cumsum(0), a.cumprod(dim=-1), *a.cummax(0), *a.cummin(-1)


OPS = [
    Op("scans", scans(1), (A,), sample=True),
    Op("scans_first", scans(0), (C,)),
    Op("scans_negative", scans(-2), (C,)),
    Op("scans_0d", scans(0), (np.float32(1.5),)),
    Op("scans_one", scans(0), (np.ones((1, 3), np.float32),)),
    Op("scans_none", lambda a: (a.cumsum(1), a.cumprod(1)), (np.zeros((2, 0), np.float32),), gradient=False),
    Op("scans_none_other", lambda a: (a.cumsum(1), a.cumprod(1)), (np.zeros((0, 3), np.float32),), gradient=False),
    Op("scans_long", scans(0), (LONG / 4,), sample=True, atol=2e-5),
    Op("scans_long_axis", lambda a: (a.cumsum(1), a.cummax(1)[0], a.logcumsumexp(1)), (data(2, 200, 3),), atol=2e-5),
    Op("cumprod_zeros", lambda a: a.cumprod(1), (np.float32([[2, 3, 0, 4], [0, 2, 0, 5], [1, 2, 3, 4]]),), sample=True),
    Op("cumprod_long_zeros", lambda a: a.cumprod(0), (np.where(np.arange(150) == 100, 0, 1 + LONG[:150] / 50),)),
    Op("ties", lambda a: (*a.cummax(1), *a.cummin(1)), (TIES,), sample=True),
    Op("not_numbers", lambda a: (*a.cummax(0), *a.cummin(0), a.cumsum(0)), (ODD,), gradient=False),
    Op("logcumsumexp_extremes", lambda a: a.logcumsumexp(0), (np.float32([-INF, -1e4, 1e4, 3, INF, 1]),),
       gradient=False),
    Op("logcumsumexp_masked", lambda a: a.logcumsumexp(0), (np.float32([-200, 0, 200, 3]),)),
    Op("ints", sums, (INTS,), sample=True),
    Op("bools", lambda a: (a.cumsum(0), *a.cummax(0)), (np.array([False, True, False, True]),)),
    Op("bytes", lambda a: (*a.cummax(0), *a.cummin(0)), (np.array([3, 200, 1, 255], np.uint8),)),
    Op("halves", lambda a: a.cumsum(1), (A.astype(np.float16),), rtol=1e-3),
    Op("dtype", lambda a: a.cumsum(1, dtype=of(a, "float32")), (INTS,)),
    Op("diff", lambda a: (a.diff(), a.diff(n=2, dim=0), a.diff(n=0)), (A,), sample=True),
    Op("diff_around", lambda a, b: (a.diff(dim=1, prepend=b), a.diff(dim=1, append=b, prepend=b)), (A, data(3, 1))),
    Op("diff_bool", lambda a: a.diff(), (np.array([True, False, False, True]),)),
    Op("diff_short", lambda a: (a.diff(n=3), a.diff(n=1)), (A[:, :2],)),
    Op("trapezoid", lambda a: (a.trapezoid(), a.trapezoid(dx=0.5, dim=0), a.cumulative_trapezoid(dx=2.0)), (A,),
       lambda a: (torch.trapezoid(a), torch.trapezoid(a, dx=0.5, dim=0), torch.cumulative_trapezoid(a, dx=2.0))),
    Op("trapezoid_points", lambda a, x: (a.trapezoid(x), a.cumulative_trapezoid(x)), (A, np.sort(data(5))),
       lambda a, x: (torch.trapezoid(a, x), torch.cumulative_trapezoid(a, x))),
]  # fmt: skip


def of(a: Any, name: str) -> Any:
    return getattr(dtypes if isinstance(a, Tensor) else torch, name)


test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_a_hundred_thousand() -> None:
    x = np.random.default_rng(0).normal(size=100_003).astype(np.float32)
    t = Tensor(x)
    sums, (tops, places) = t.cumsum(0), t.cummax(0)
    sums.realize(tops, places)
    np.testing.assert_allclose(sums.numpy(), np.cumsum(x.astype(np.float64)), atol=2e-3)
    np.testing.assert_array_equal(tops.numpy(), np.maximum.accumulate(x))
    np.testing.assert_array_equal(x[places.numpy()], tops.numpy())


def test_symbolic_sizes() -> None:
    x = data(9)
    n = Variable("n", 1, 9).bind(6)
    np.testing.assert_allclose(Tensor(x)[:n].cumsum(0).numpy(), np.cumsum(x[:6]), rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda a: a.cumsum(3), IndexError, "cumsum: axis 3 is outside of a tensor with 2 axes"),
        (lambda a: a.cummax(-3), IndexError, "cummax: axis -3"),
        (lambda a: a.diff(n=-1), ValueError, "diff: the order must be a whole number ≥ 0, got -1"),
        (lambda a: a.cumprod(0, dim=0), TypeError, "cumprod"),
    ],
)
def test_errors(wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        wrong(Tensor(A))
