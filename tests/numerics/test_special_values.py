"""NaN, infinities and signed zeros survive every device, shader compilers that may assume there are none among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinyweb import Tensor, dtypes

INF, NAN = math.inf, math.nan
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -7.0, INF, -INF, NAN, -NAN, 3e38, -3e38, 1e-30], np.float32)
A, B = (g.reshape(-1) for g in np.meshgrid(EDGES, EDGES))

# name: (on tensors, on arrays)
BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "div": (lambda a, b: a / b, np.divide),
    "maximum": (lambda a, b: a.maximum(b), np.maximum),
    "minimum": (lambda a, b: a.minimum(b), np.minimum),
    "fmod": (lambda a, b: a.fmod(b), np.fmod),
    "less": (lambda a, b: a < b, np.less),
    "less_equal": (lambda a, b: a <= b, np.less_equal),
    "greater": (lambda a, b: a > b, np.greater),
    "greater_equal": (lambda a, b: a >= b, np.greater_equal),
    "equal": (lambda a, b: a == b, np.equal),
    "not_equal": (lambda a, b: a != b, np.not_equal),
    "not less": (lambda a, b: (a < b).logical_not(), lambda a, b: ~(a < b)),
    "where less": (lambda a, b: (a < b).where(a, b), lambda a, b: np.where(a < b, a, b)),
    "where not less": (lambda a, b: (a < b).logical_not().where(a, b), lambda a, b: np.where(~(a < b), a, b)),
}
UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "neg": (lambda a: -a, np.negative),
    "abs": (lambda a: a.abs(), np.abs),
    "reciprocal": (lambda a: a.reciprocal(), np.reciprocal),
    "sqrt": (lambda a: a.sqrt(), np.sqrt),
    "floor": (lambda a: a.floor(), np.floor),
    "trunc": (lambda a: a.trunc(), np.trunc),
    "isnan": (lambda a: a.isnan(), np.isnan),
    "isinf": (lambda a: a.isinf(), np.isinf),
    "isfinite": (lambda a: a.isfinite(), np.isfinite),
    "equals itself": (lambda a: a == a, lambda a: a == a),
    "below infinity": (lambda a: a < INF, lambda a: a < INF),
    "above -infinity": (lambda a: a > -INF, lambda a: a > -INF),
    "at least infinity": (lambda a: a >= INF, lambda a: a >= INF),
    "equals -infinity": (lambda a: a == -INF, lambda a: a == -INF),
    "relu": (lambda a: a.relu(), lambda a: np.maximum(a, np.float32(0))),
    "clamp": (lambda a: a.clamp(-2.0, 2.0), lambda a: np.clip(a, -2, 2)),
    "bool": (lambda a: a.bool(), lambda a: a.astype(bool)),
    "half": (lambda a: a.half(), lambda a: a.astype(np.float16)),
    "masked": (lambda a: (a > 0).where(a, -INF), lambda a: np.where(a > 0, a, np.float32(-INF))),
    "infinity minus": (lambda a: INF - a, lambda a: np.float32(INF) - a),
}


def test_elementwise(device: str) -> None:
    a, b = Tensor(A, device=device), Tensor(B, device=device)
    with np.errstate(all="ignore"):
        cases = [(name, ours(a, b), theirs(A, B)) for name, (ours, theirs) in BINARY.items()]
        cases += [(name, ours(a), theirs(A)) for name, (ours, theirs) in UNARY.items()]
    cases[0][1].realize(*(got for _, got, _ in cases[1:]))
    for name, got, want in cases:
        # division and roots within a unit, subnormal numbers flushed or not; the sign of a zero counts, but not in the
        # larger of two zeros
        np.testing.assert_allclose(got.numpy(), want, rtol=1.2e-7, atol=1.2e-38, err_msg=name)
        if got.dtype is dtypes.float32 and name not in ("maximum", "minimum", "relu"):
            zero = want == 0
            np.testing.assert_array_equal(np.signbit(got.numpy()[zero]), np.signbit(want[zero]), err_msg=name)


def test_to_integers(device: str) -> None:
    x = np.array([0.0, -0.0, 1.9, -1.9, 2e9, -2e9, 3e9, -3e9, INF, -INF, NAN], np.float32)
    for dtype in (dtypes.int32, dtypes.uint32):
        low, high = float(dtype.min), float(dtype.max)
        want = [
            0 if math.isnan(v) else int(min(max(math.trunc(v) if math.isfinite(v) else v, low), high))
            for v in x.tolist()
        ]
        assert Tensor(x, device=device).cast(dtype).tolist() == want


def test_reductions(device: str) -> None:
    rows = np.array([[1, NAN, 3], [INF, 1, 2], [-INF, INF, 0], [-INF, -INF, -INF], [0, -0.0, -1]], np.float32)
    rows = np.repeat(rows, 30, axis=1)
    t = Tensor(rows, device=device)
    with np.errstate(all="ignore"):
        wide = rows.astype(np.float64)
        e = np.exp(wide - wide.max(1, keepdims=True))
        cases = {
            "sum": (t.sum(1), rows.sum(1)),
            "max": (t.max(1), rows.max(1)),
            "min": (t.min(1), rows.min(1)),
            "argmax": (t.argmax(1), rows.argmax(1)),
            "argmin": (t.argmin(1), rows.argmin(1)),
            "softmax": (t.softmax(1), e / e.sum(1, keepdims=True)),
            "any nan": (t.isnan().any(1), np.isnan(rows).any(1)),
        }
    for name, (got, want) in cases.items():
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
def test_what_cancels_keeps_infinities_and_nans(device: str) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 1.0, -2.0, -0.0], np.float32)
    x = Tensor(values, device=device)
    with np.errstate(invalid="ignore"):
        pairs = [
            (x - x, values - values),
            (-x + x, -values + values),
            (x + x * -1.0, values - values),
            (x * 0.0, values * np.float32(0.0)),
            (x * -0.0, values * np.float32(-0.0)),
            (x / x, values / values),
        ]
    pairs[0][0].realize(*(got for got, _ in pairs[1:]))
    for got, want in pairs:
        np.testing.assert_array_equal(got.numpy(), want)
        finite = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got.numpy()[finite]), np.signbit(want[finite]))


@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU", "INTERPRETER"])
def test_the_border_of_what_is_negative_is_plus_zero(device: str) -> None:
    """A load outside gives 0, and what is made of it need not."""
    x = Tensor(np.array([1.0, -2.0, 0.0, -0.0, INF], np.float32), device=device)
    values = [-x, -(x * x), -x * x, x * -2, 0 - x, (x > 0).where(x, -0.0), -x.abs(), (-x).half(), -(-x).pad((1, 0))]
    outside = [*(v.pad((1, 2))[[0, -2, -1]] for v in values), (-x)[Tensor([7, -6], device=device)]]
    outside[0].realize(*outside[1:])
    for got in outside:
        assert got.eq(0).all().item() and not np.signbit(got.numpy()).any()
