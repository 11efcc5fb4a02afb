"""The derivatives of the elementary functions against PyTorch's, first and second."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tinyweb import Tensor
from tinyweb.graph.autodiff.functions import DERIVATIVES
from tinyweb.graph.ir import Ops

ANY = np.array([-2.5, -1.0, -0.3, 0.0, 1e-3, 0.7, 1.0, 3.0], np.float32)
POSITIVE = np.array([1e-3, 0.3, 1.0, 1.5, 20.0], np.float32)
INSIDE = np.array([-0.99, -0.5, -1e-3, 0.0, 0.4, 0.75, 0.999], np.float32)
POINTS = {
    Ops.LOG: POSITIVE, Ops.LOG2: POSITIVE, Ops.LOG10: POSITIVE, Ops.LOG1P: POSITIVE, Ops.ASIN: INSIDE, Ops.ACOS: INSIDE,
    Ops.ATANH: INSIDE, Ops.ACOSH: np.array([1.01, 1.5, 30.0], np.float32),
}  # fmt: skip
LATER = {Ops.LGAMMA, Ops.DIGAMMA}


@pytest.mark.parametrize("op", sorted(set(DERIVATIVES) - LATER), ids=lambda op: op.name)
def test_function(op: Ops) -> None:
    points = POINTS.get(op, ANY)
    x, t = Tensor(points), torch.tensor(points, dtype=torch.float64, requires_grad=True)
    first = x._unary(op).sum().gradient(x)[0]
    second = first.sum().gradient(x)[0]
    (want,) = torch.autograd.grad(getattr(torch, op.name.lower())(t).sum(), t, create_graph=True)
    (want_second,) = torch.autograd.grad(want.sum(), t)
    np.testing.assert_allclose(first.numpy(), want.detach(), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(second.numpy(), want_second, rtol=2e-5, atol=1e-5)


def test_power() -> None:
    bases, exponents = (
        a.reshape(-1).astype(np.float32)
        for a in np.meshgrid([0.0, 0.5, 1.0, 2.0, 7.0, -2.0], [0.0, 1.0, 2.0, 2.5, 3.0, -1.0])
    )
    keep = ~((bases == 0) & (exponents < 0)) & ~((bases < 0) & (exponents != np.floor(exponents)))
    bases, exponents = bases[keep], exponents[keep]
    x, y = Tensor(bases), Tensor(exponents)
    got = x._binary(Ops.POW, y, "pow").sum().gradient(x, y)
    a, b = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (bases, exponents))
    (a**b).sum().backward()
    for g, want in zip(got, (a.grad, b.grad), strict=True):
        assert want is not None
        np.testing.assert_allclose(g.numpy(), want, rtol=2e-6, atol=1e-6)


def test_trigamma_is_missed() -> None:
    x = Tensor([1.0])
    with pytest.raises(NotImplementedError, match="trigamma"):
        x._unary(Ops.DIGAMMA).sum().gradient(x)
