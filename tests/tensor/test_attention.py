"""Attention against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor

F = torch.nn.functional
ATTEND = F.scaled_dot_product_attention
Q, K, V = data(2, 3, 5, 8), data(2, 3, 7, 8, seed=1), data(2, 3, 7, 6, seed=2)
KEEP = data(5, 7, seed=3) > -0.5
KEEP[2] = False  # a row that keeps nothing
ADDED = np.where(data(2, 1, 5, 7, seed=4) > 1, -np.inf, data(2, 1, 5, 7, seed=5)).astype(np.float32)


def attention(name: str, *inputs: np.ndarray, sample: bool = False, gradient: bool = True, **keywords) -> Op:
    return Op(
        name,
        lambda *t: t[0].scaled_dot_product_attention(*t[1:], **keywords),
        inputs,
        lambda *t: ATTEND(*t, **keywords),
        sample=sample,
        gradient=gradient,
    )


OPS = [
    attention("plain", Q, K, V, sample=True),
    attention("flat", Q[0, 0], K[0, 0], V[0, 0]),
    attention("one_query", Q[:, :, :1], K, V),
    attention("causal_short", Q, K, V, is_causal=True, sample=True),
    attention("causal_long", K, Q, Q, is_causal=True),
    attention("scale", Q, K, V, scale=0.3),
    attention("keep", Q, K, V, KEEP, sample=True),
    attention("added", Q, K, V, ADDED),
    attention("grouped", data(1, 4, 6, 8), data(1, 2, 6, 8, seed=1), data(1, 2, 6, 8, seed=2), is_causal=True,
              enable_gqa=True, sample=True),
    attention("broadcast_batch", Q, K[:1], V[:1], gradient=False),
    attention("half", *(t.astype(np.float16) for t in (Q, K, V)), gradient=False),
]  # fmt: skip
OPS[-1] = Op("half", OPS[-1].ours, OPS[-1].inputs, OPS[-1].theirs, gradient=False, rtol=2e-3, atol=1e-3)

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_dropout_drops_weights() -> None:
    ones = Tensor.ones(1, 200, 4)
    got = ones.scaled_dot_product_attention(ones, ones, dropout_p=0.25).numpy()
    assert abs(got.mean() - 1) < 0.02 and got.std() > 0.01


X = Tensor(Q)
ERRORS = [
    (lambda: X.scaled_dot_product_attention(Tensor(K[..., :4]), X), "differ in their last axis"),
    (lambda: X.scaled_dot_product_attention(Tensor(K), X), "differ in their last axis but one"),
    (lambda: X.scaled_dot_product_attention(X, X, Tensor(KEEP), is_causal=True), "give a mask or is_causal, not both"),
    (lambda: X.scaled_dot_product_attention(X[:, :2], X[:, :2], enable_gqa=True), "3 query heads are no multiple of 2"),
    (lambda: X[0, 0, 0].scaled_dot_product_attention(X, X), "need at least 2 axes"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("device", ["CPU", "WASM"])
def test_results_rounded_to_bfloat16_are_those_of_every_row(device: str) -> None:
    """What is rounded by its bits is picked from a vector that holds a lane for each query."""
    random = np.random.default_rng(0)
    q, k, v = (random.random((6, 4, 8)).astype(np.float32) for _ in range(3))

    def attend(device: str) -> np.ndarray:
        a, b, c = (Tensor(t, device=device).bfloat16().realize().float() for t in (q, k, v))
        return (a @ b.transpose(-1, -2)).softmax(-1).matmul(c).bfloat16().numpy()

    np.testing.assert_allclose(attend(device), attend("INTERPRETER"), rtol=2**-7)
