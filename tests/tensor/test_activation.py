"""Activation functions against PyTorch, at kinks and far out too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.random_bounds import distance, distance_bound, mean_bound
from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, dtypes

F = torch.nn.functional
KINKS = np.float32([-6, -3, -1, -0.5, -0.0, 0, 0.5, 1, 3, 6])
X = np.concatenate([data(15, low=-8, high=8), KINKS]).reshape(5, 5)
FAR = np.float32([-1e4, -1e3, -100, -30, -20, 20, 30, 100, 1e3, 1e4])
SPECIAL = np.float32([np.nan, np.inf, -np.inf, 0.0])
INTS = np.array([-7, -1, 0, 1, 2, 9], np.int32)

# name, ours, theirs
FUNCTIONS = [
    ("relu", lambda x: x.relu(), F.relu),
    ("relu6", lambda x: x.relu6(), F.relu6),
    ("hardtanh", lambda x: x.hardtanh(-0.5, 3.0), lambda x: F.hardtanh(x, -0.5, 3.0)),
    ("leaky_relu", lambda x: x.leaky_relu(0.2), lambda x: F.leaky_relu(x, 0.2)),
    ("rrelu_eval", lambda x: x.rrelu(0.1, 0.4, training=False), lambda x: F.rrelu(x, 0.1, 0.4)),
    ("elu", lambda x: x.elu(1.5), lambda x: F.elu(x, 1.5)),
    ("selu", lambda x: x.selu(), F.selu),
    ("celu", lambda x: x.celu(0.7), lambda x: F.celu(x, 0.7)),
    ("gelu", lambda x: x.gelu(), F.gelu),
    ("gelu_tanh", lambda x: x.gelu(approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    ("quick_gelu", lambda x: x.quick_gelu(), lambda x: x * torch.sigmoid(1.702 * x)),
    ("silu", lambda x: x.silu(), F.silu),
    ("mish", lambda x: x.mish(), F.mish),
    ("softplus", lambda x: x.softplus(), F.softplus),
    ("softplus_beta", lambda x: x.softplus(2.0, 6.0), lambda x: F.softplus(x, 2.0, 6.0)),
    ("squareplus", lambda x: x.squareplus(), lambda x: (x + (x * x + 4).sqrt()) / 2),
    ("softsign", lambda x: x.softsign(), F.softsign),
    ("softshrink", lambda x: x.softshrink(), F.softshrink),
    ("hardshrink", lambda x: x.hardshrink(), F.hardshrink),
    ("tanhshrink", lambda x: x.tanhshrink(), F.tanhshrink),
    ("hardsigmoid", lambda x: x.hardsigmoid(), F.hardsigmoid),
    ("hardswish", lambda x: x.hardswish(), F.hardswish),
    ("logsigmoid", lambda x: x.logsigmoid(), F.logsigmoid),
    ("threshold", lambda x: x.threshold(0.5, -3.0), lambda x: F.threshold(x, 0.5, -3.0)),
]


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v))


# What PyTorch makes of ±∞ and NaN where a function multiplies depends on its processor's vector library. These are the
# formulas in float64 by the rules of IEEE 754, in which 0 · ∞ is NaN.
FORMULAS: dict[str, Callable[[float], float]] = {
    "gelu": lambda v: v * 0.5 * math.erfc(-v / math.sqrt(2)),
    "gelu_tanh": lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    "quick_gelu": lambda v: v * sigmoid(1.702 * v),
    "silu": lambda v: v * sigmoid(v),
    "mish": lambda v: v * math.tanh(math.log1p(math.exp(v))),
    "softsign": lambda v: v / (1 + abs(v)),
}


def computed(formula: Callable[[float], float]) -> Callable[[Any], torch.Tensor]:
    """A formula of one number on all elements."""
    return lambda x: torch.tensor([formula(v) for v in x.tolist()])


OPS = [
    *(Op(name, ours, (X,), theirs, sample=name in ("relu", "gelu", "selu", "softplus", "silu", "hardswish"))
      for name, ours, theirs in FUNCTIONS),
    *(Op(f"{name}_far", ours, (FAR,), theirs, sample=name in ("gelu", "mish")) for name, ours, theirs in FUNCTIONS),
    *(Op(f"{name}_special", ours, (SPECIAL,), computed(FORMULAS[name]) if name in FORMULAS else theirs, gradient=False)
      for name, ours, theirs in FUNCTIONS if name not in ("tanhshrink", "hardswish")),  # 0 · inf
    Op("glu", lambda x: x.glu(1), (data(3, 6, 2),), lambda x: F.glu(x, 1), sample=True),
    Op("glu_last", lambda x: x.glu(), (data(4, 2),), F.glu),
    Op("prelu", lambda x, w: x.prelu(w), (data(2, 3, 4), data(3)), F.prelu),
    Op("prelu_one", lambda x, w: x.prelu(w), (data(2, 3), data(1)), F.prelu),
    Op("prelu_1d", lambda x, w: x.prelu(w), (data(5), data(1)), F.prelu),
    Op("relu_int", lambda x: x.relu(), (INTS,), F.relu),
    Op("relu6_int", lambda x: x.relu6(), (INTS,), F.relu6),
    Op("silu_int", lambda x: x.silu(), (INTS,), lambda x: F.silu(x.float())),
    Op("gelu_scalar", lambda x: x.gelu(), (np.float32(0.3),), F.gelu),
    Op("elu_empty", lambda x: x.elu(), (data(0, 3),), F.elu),
    Op("selu_half", lambda x: x.selu(), (X.astype(np.float16),), F.selu, rtol=2e-3, atol=1e-3),
    Op("softplus_half", lambda x: x.softplus(), (X.astype(np.float16),), F.softplus, rtol=2e-3, atol=1e-3),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_rrelu_slopes_in_training() -> None:
    x = Tensor(np.full(1000, -1, np.float32))
    slopes = -x.rrelu(0.1, 0.3, training=True).numpy()
    assert slopes.min() >= np.float32(0.1) and slopes.max() <= np.float32(0.3)
    assert distance(slopes, lambda v: (v - 0.1) / 0.2) < distance_bound(1000)


def test_gumbel_softmax_samples_the_categories() -> None:
    logits = Tensor(np.log(np.float32([0.1, 0.2, 0.7]))).expand(4000, 3)
    hard = logits.gumbel_softmax(hard=True)
    drawn = hard.numpy()
    assert set(np.unique(np.round(drawn, 5))) <= {0.0, 1.0}
    np.testing.assert_allclose(drawn.mean(0), [0.1, 0.2, 0.7], atol=mean_bound(4000))
    soft = logits.gumbel_softmax(tau=0.5).numpy()
    np.testing.assert_allclose(soft.sum(-1), 1, rtol=1e-5)


ERRORS = [
    (lambda: Tensor([1.0]).hardtanh(2, 1), ValueError, r"hardtanh: min_val must not be above max_val, got 2 and 1"),
    (lambda: Tensor([1.0]).gelu("sigmoid"), ValueError, r'gelu: approximate must be "none" or "tanh"'),
    (lambda: Tensor([1.0]).softshrink(-1), ValueError, "softshrink: lambd must not be negative"),
    (lambda: Tensor([1.0]).celu(0), ValueError, "celu: alpha must not be 0"),
    (lambda: Tensor.ones(2, 3).glu(), ValueError, r"glu: axis -1 of \(2, 3\) must have an even size"),
    (lambda: Tensor(1.0).glu(), ValueError, "glu: a 0-d tensor has no halves"),
    (lambda: Tensor.ones(2, 3).prelu(Tensor.ones(2)), ValueError, r"prelu: weight \(2,\) needs 1 element or 3"),
    (lambda: Tensor.ones(2, dtype=dtypes.float32).gumbel_softmax(tau=0), ValueError, "gumbel_softmax: tau must be pos"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
