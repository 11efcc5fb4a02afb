"""What is determined of outputs that are not: products of factors, ranges of random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tensor.arguments.spec import Call, Outputs


def _of(call: Call) -> Any:
    assert call.x is not None
    return call.x.data.astype(np.float64)


def _is_unit(q: Any) -> Any:
    """Qᵀ Q: whether the columns are orthonormal."""
    return np.swapaxes(q, -1, -2) @ q


def qr(call: Call, found: Outputs) -> Outputs:
    q, r = (f.astype(np.float64) for f in found)
    if q.size == 0 and call.x is not None and call.x.data.size:  # mode "r"
        return [np.swapaxes(r, -1, -2) @ r]
    return [q @ r, _is_unit(q), np.tril(r, -1)]


def svd(call: Call, found: Outputs) -> Outputs:
    u, s, v = (f.astype(np.float64) for f in found)
    k = s.shape[-1]
    return [s, (u[..., :k] * s[..., None, :]) @ v[..., :k, :], _is_unit(u), _is_unit(np.swapaxes(v, -1, -2))]


def eigh(call: Call, found: Outputs) -> Outputs:
    w, v = (f.astype(np.float64) for f in found)
    return [w, (v * w[..., None, :]) @ np.swapaxes(v, -1, -2), _is_unit(v)]


def lu(call: Call, found: Outputs) -> Outputs:
    p, low, up = (f.astype(np.float64) for f in found)
    return [p @ low @ up, np.triu(low, 1), np.tril(up, -1)]


def solution(call: Call, found: Outputs) -> Outputs:
    """A x of a least squares problem, which is unique where x is not."""
    x, a = found[0].astype(np.float64), _of(call)
    return [a @ x]


def within(low: float, high: float) -> Any:
    """Whether all numbers are in [low, high)."""
    return lambda call, found: [np.array([bool(((f >= low) & (f < high)).all()) for f in found])]


def classes(call: Call, found: Outputs) -> Outputs:
    """Whether all numbers are indices of the last axis."""
    return [((found[0] >= 0) & (found[0] < _of(call).shape[-1]))]


def in_order(call: Call, found: Outputs) -> Outputs:
    return [np.sort(found[0])]


def whole(call: Call, found: Outputs) -> Outputs:
    """Whether all numbers are 0 or 1."""
    return [np.isin(found[0].astype(np.float64), (0, 1))]


def dropped(call: Call, found: Outputs) -> Outputs:
    """Whether what is not 0 is the tensor times one factor."""
    x, y = _of(call), found[0].astype(np.float64)
    kept = (y != 0) & (x != 0)
    ratios = y[kept] / x[kept]
    return [np.array([np.allclose(ratios, ratios[:1], rtol=2e-2), not y[x == 0].any()])]
