"""Gradients of the primitives, and the rules of `gradient` and `backward`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, dtypes

OPS = [
    Op("add_broadcast", lambda a, b: a + b, (data(3, 4), data(4)), sample=True),
    Op("mul_self", lambda a: a * a * a, (data(3, 4),)),
    Op("div", lambda a, b: a / b, (data(3, 4), data(3, 1, low=0.5)), sample=True),
    Op("reciprocal", lambda a: a.reciprocal(), (data(5, low=0.5),)),
    Op("sqrt_log2_exp2", lambda a: (a.sqrt() + a.log2()).exp2(), (data(4, 3, low=0.5),), sample=True),
    Op("sin", lambda a: (a * 3).sin(), (data(7),)),
    Op("maximum_ties", lambda a, b: a.maximum(b), (np.float32([1, 2, 3]), np.float32([1, 3, 2]))),
    Op("where", lambda a, b: (a > b).where(a, b * 2), (data(4, 5), data(4, 5, seed=1)),
       lambda a, b: (a > b) * a + (a <= b) * b * 2),
    Op("sum_axis", lambda a: a.sum(1) * 2, (data(2, 3, 4),)),
    Op("amax_ties", lambda a: a.max(0), (np.float32([[1, 5], [1, 4]]),), lambda a: a.amax(0)),
    Op("prod_zeros", lambda a: a.prod(1), (np.float32([[1, 2, 3], [0, 2, 3], [0, 0, 3]]),)),
    Op("movement", lambda a: a.permute(2, 0, 1).reshape(4, 6).flip(1)[1:, ::2] * 3, (data(2, 3, 4),),
       lambda a: a.permute(2, 0, 1).reshape(4, 6).flip(1)[1:, ::2] * 3),
    Op("expand_pad", lambda a: a.unsqueeze(1).expand(3, 2, 4).pad(((0, 1), (1, 0), (2, 2))), (data(3, 4),),
       lambda a: torch.nn.functional.pad(a.unsqueeze(1).expand(3, 2, 4), (2, 2, 1, 0, 0, 1))),
    Op("take_duplicates", lambda t, i: t[i], (data(4, 3), np.array([[0, 2], [2, -1]], np.int32)),
       lambda t, i: t[i.long()], sample=True),
    Op("softmax_matmul", lambda a, b: (a @ b).softmax(-1).log(), (data(5, 7), data(7, 6)), sample=True),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_equal_constants_are_different_leaves() -> None:
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    ga, gb = ((a * 2 + b * 3) + 1).square().sum().gradient(a, b)
    assert ga.tolist() == [4.0] * 3 and gb.tolist() == [6.0] * 3


def test_backward_accumulates_into_leaves() -> None:
    x, y = Tensor([1.0, 2.0]).requires_grad_(), Tensor([3.0, 4.0])
    (x * y).sum().backward()
    (x * y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6.0, 8.0] and y.grad is None


def test_detach_ends_a_gradient() -> None:
    x = Tensor([2.0, 3.0])
    (g,) = (x * x.detach()).sum().gradient(x)
    assert g.tolist() == [2.0, 3.0]
    with pytest.raises(ValueError, match="does not depend on the target"):
        x.detach().sum().gradient(x)


def test_second_derivative() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    (g,) = (x * x * x).sum().gradient(x)
    (h,) = g.sum().gradient(x)
    np.testing.assert_allclose(h.numpy(), [6.0, 12.0, 18.0])


def test_gradient_of_an_intermediate_value() -> None:
    x = Tensor(data(2, 3))
    h = (x * 2).reshape(3, 2)
    loss = (h.reshape(2, 3) * x).sum()
    (g,) = loss.gradient(h)
    np.testing.assert_array_equal(g.numpy(), x.numpy().reshape(3, 2))


def test_gradient_through_an_update_in_place() -> None:
    memory, value = Tensor(data(4)), Tensor(data(2, seed=1))
    before = memory * 1
    target = before.contiguous()
    kept = Tensor.empty(4)
    kept.assign(target)
    kept[1:3] = value * 2
    (gm, gv) = (kept * kept).sum().gradient(before, value)
    want = data(4).copy() * 2
    want[1:3] = 0
    np.testing.assert_allclose(gm.numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(gv.numpy(), 8 * data(2, seed=1), rtol=1e-6)


def test_errors_name_the_rule() -> None:
    x = Tensor(data(2, 3))
    with pytest.raises(ValueError, match=r"gradient: the tensor has shape \(2, 3\), not one element"):
        x.gradient(x)
    with pytest.raises(TypeError, match="float dtype, got int32"):
        x.sum().gradient(x.cast(dtypes.int32))
    with pytest.raises(TypeError, match="backward: only tensors of a float dtype have gradients, got int32"):
        x.cast(dtypes.int32).sum().backward()
    with pytest.raises(ValueError, match=r"gradient= must be a tensor of this tensor's shape"):
        x.gradient(x, gradient=Tensor.ones(3))
