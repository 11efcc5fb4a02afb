"""Sums, means, variances and softmax: errors that do not grow with the length, and no overflow on the way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tinyweb import Tensor, dtypes

EVERYWHERE = ["CPU", "WASM", "WEBGPU", "INTERPRETER"]
COMPILED = EVERYWHERE[:3]
rng = np.random.default_rng(11)
EPS = 2.0**-24  # half a unit of float32 at 1
LONG = {
    "uniform": rng.uniform(0, 1, 1_000_000).astype(np.float32),
    "normal": rng.standard_normal(1_000_000).astype(np.float32),
    "tenths": np.full(1_000_000, 0.1, np.float32),  # every addition rounds to the same side
    "offset": (1e4 + rng.uniform(0, 1, 1_000_000)).astype(np.float32),
}


@pytest.mark.parametrize("device", COMPILED)
@pytest.mark.parametrize("name", LONG)
def test_sum_of_a_million(device: str, name: str) -> None:
    """Within 100 half units of the sum of magnitudes, whichever way the million lies in memory."""
    x = LONG[name]
    t = Tensor(x, device=device)
    wide = x.astype(np.float64)
    everything, rows, columns = t.sum(), t.reshape(10, -1).sum(1), t.reshape(-1, 10).sum(0)
    everything.realize(rows, columns)
    for got, want, scale in (
        (everything.numpy(), math.fsum(wide), np.abs(wide).sum()),
        (rows.numpy(), wide.reshape(10, -1).sum(1), np.abs(wide).reshape(10, -1).sum(1)),
        (columns.numpy(), wide.reshape(-1, 10).sum(0), np.abs(wide).reshape(-1, 10).sum(0)),
    ):
        assert (np.abs(got - want) <= 100 * EPS * scale).all()


@pytest.mark.parametrize(
    ("device", "length"),
    [(d, n) for d in EVERYWHERE for n in (1, 2, 255, 256, 257, 320, 1027)]
    + [(d, n) for d in COMPILED for n in (4096, 4099, 70001)],
)
def test_sums_of_any_length(device: str, length: int) -> None:
    """Blocks leave nothing out: sums of whole numbers are exact."""
    x = (np.arange(length) % 7 - 3).astype(np.float32)
    y = np.stack([x, x[::-1] + 1, x * 2], 1)
    got_x, got_y = Tensor(x, device=device).sum(), Tensor(y, device=device).sum(0)
    got_x.realize(got_y)
    assert got_x.item() == x.sum(dtype=np.float64)
    np.testing.assert_array_equal(got_y.numpy(), y.sum(0, dtype=np.float64))


@pytest.mark.parametrize("device", COMPILED)
def test_long_products_of_matrices(device: str) -> None:
    a, b = (rng.uniform(0.5, 1, s).astype(np.float32) for s in ((3, 20_001), (20_001, 5)))
    got = (Tensor(a, device=device) @ Tensor(b, device=device)).numpy()
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=30 * EPS)


@pytest.mark.parametrize("length", [4000, 1_000_000])
@pytest.mark.parametrize("device", COMPILED)
def test_mean_and_variance_far_from_zero(device: str, length: int) -> None:
    x = LONG["offset"][:length]
    t, wide = Tensor(x, device=device), x.astype(np.float64)
    mean, var = t.mean(), t.var()
    mean.realize(var)
    assert mean.item() == pytest.approx(wide.mean(), rel=20 * EPS)
    assert var.item() == pytest.approx(wide.var(ddof=1), rel=2e-6)


@pytest.mark.parametrize("device", EVERYWHERE)
def test_halves_are_summed_in_float32(device: str) -> None:
    x = np.full(5000, 0.1, np.float16)
    t = Tensor(x, device=device)
    wide = x.astype(np.float64)
    for got, want in ((t.sum(), wide.sum()), (t.mean(), wide.mean()), (t.var(correction=0), wide.var())):
        assert got.dtype is dtypes.float16
        np.testing.assert_allclose(got.numpy().astype(np.float64), want, rtol=2.0**-11, atol=1e-7)


@pytest.mark.parametrize("device", EVERYWHERE)
def test_softmax_does_not_overflow(device: str) -> None:
    inf = math.inf
    x = np.array(
        [[1e4, 1e4 - 1, -1e4], [-1e4, -1e4 - 2, -1e4], [-inf, 0, 1], [-inf, -inf, 3], [-inf, -inf, -inf],
         [inf, 0, 0], [math.nan, 0, 0], [3e38, -3e38, 0]], np.float32
    )  # fmt: skip
    t = Tensor(x, device=device)
    softmax, log_softmax, logsumexp = t.softmax(-1), t.log_softmax(-1), t.logsumexp(-1)
    softmax.realize(log_softmax, logsumexp)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        top = wide.max(1, keepdims=True)
        e = np.exp(wide - top)
        total = e.sum(1, keepdims=True)
        wanted = e / total
        log_wanted = (wide - top - np.log(total)).astype(np.float32)
        finite = np.where(np.isinf(top), 0, top)
        sum_wanted = (np.log(np.exp(wide - finite).sum(1, keepdims=True)) + finite)[:, 0]
    np.testing.assert_allclose(softmax.numpy(), wanted, rtol=1e-6)
    np.testing.assert_allclose(log_softmax.numpy(), log_wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(logsumexp.numpy(), sum_wanted, rtol=1e-6)


@pytest.mark.parametrize("device", EVERYWHERE)
def test_reductions_keep_special_values(device: str) -> None:
    inf, nan = math.inf, math.nan
    x = np.array([[1, nan, 3], [inf, 1, 2], [-inf, inf, 0], [-inf, -inf, -5], [0.0, -0.0, -1], [inf, inf, inf]])
    x = np.tile(x.astype(np.float32), (1, 40))
    t = Tensor(x, device=device)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        pairs = {
            "sum": (t.sum(1), wide.sum(1)),
            "max": (t.max(1), wide.max(1)),
            "min": (t.min(1), wide.min(1)),
            "argmax": (t.argmax(1), wide.argmax(1)),
            "argmin": (t.argmin(1), wide.argmin(1)),
            "prod": (t.prod(1), wide.prod(1).astype(np.float32)),
            "mean": (t.mean(1), wide.mean(1)),
        }
    first = next(iter(pairs.values()))[0]
    first.realize(*(got for got, _ in pairs.values()))
    for name, (got, want) in pairs.items():
        np.testing.assert_array_equal(got.numpy(), want.astype(got.dtype.numpy), err_msg=name)
