"""Losses against PyTorch, in every reduction."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tensor.ops import RUNTIMES, Op, data, gradients_test, values_test
from tinyweb import Tensor

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:reduction")
X, Y = data(4, 5), data(4, 5, seed=1)
P, Q = data(4, 5, low=0.01, high=0.99), data(4, 5, seed=1, low=0.01, high=0.99)
SIGNS = np.where(data(4, 5, seed=7) > 0, 1, -1).astype(np.float32)
LOGITS, CLASSES = data(6, 5), np.array([0, 4, 2, 2, 1, 3], np.int32)
SOME = np.array([0, -100, 2, -100, 1, 3], np.int32)
PLANE, PLANES = data(2, 4, 3, 2), np.array([[[0, 1], [3, 2], [2, 2]], [[1, 1], [0, -100], [3, 0]]], np.int32)
FACTORS = data(5, seed=3, low=0.2, high=2)
LABELS = np.array([[1, 3, -1, 0, 2], [4, -1, 0, 0, 0], [-1, 1, 2, 0, 3], [0, 1, 2, 3, 4]], np.int32)


def loss(
    name: str, *inputs: np.ndarray, sample: bool = False, tag: str = "", fixed: bool = False, **keywords
) -> list[Op]:
    """A loss as its mean and, without gradients, as many. Integer inputs are int64 in PyTorch, weights constant, and
    with `fixed` targets too."""

    def theirs(reduction: str):
        def call(x, target, *rest):
            weights = [t if "margin" in name or "gaussian" in name else t.detach() for t in rest]
            given = [
                t.long() if t.dtype is torch.int32 else t for t in (target.detach() if fixed else target, *weights)
            ]
            return getattr(F, name)(x, *given, reduction=reduction, **keywords)

        return call

    return [
        Op(f"{name}{tag}_{r}", lambda x, *rest, r=r: getattr(x, name)(*rest, reduction=r, **keywords),
           inputs, theirs(r), sample=sample and r == "mean", gradient=r == "mean")
        for r in ("mean", "none")
    ]  # fmt: skip


OPS = [
    *loss("mse_loss", X, Y, sample=True),
    *loss("l1_loss", X, Y),
    *loss("smooth_l1_loss", X, Y, beta=0.7),
    *loss("smooth_l1_loss", X, Y, tag="_0", beta=0.0),
    *loss("huber_loss", X, Y, delta=0.7, sample=True),
    Op("l1_loss_sum", lambda x, t: x.l1_loss(t, "sum"), (X, Y), lambda x, t: F.l1_loss(x, t, reduction="sum")),
    Op("cross_entropy_sum", lambda x, t: x.cross_entropy(t, reduction="sum"), (LOGITS, SOME),
       lambda x, t: F.cross_entropy(x, t.long(), reduction="sum")),
    *loss("huber_loss", np.float32([0, 1, 2, 3]), np.float32([1, 1, 1, 1]), tag="_kinks"),
    *loss("l1_loss", np.float32([0, 1, 2]), np.float32([0, 0, 2]), tag="_ties"),
    *loss("poisson_nll_loss", X, Y + 2, sample=True),
    *loss("poisson_nll_loss", P, Y * 3 + 6, tag="_full", log_input=False, full=True),
    *loss("gaussian_nll_loss", X, Y, P, sample=True),
    *loss("gaussian_nll_loss", X, Y, np.float32([[0.5], [0], [1], [2]]), tag="_full", full=True, eps=0.1),
    *loss("kl_div", np.log(P), Q, sample=True),
    *loss("kl_div", np.log(P), np.log(Q), tag="_log", log_target=True),
    *loss("kl_div", np.log(P), np.float32(Q > 0.5), tag="_zeros", fixed=True),
    Op("kl_div_batchmean", lambda x, t: x.kl_div(t, "batchmean"), (np.log(P), Q),
       lambda x, t: F.kl_div(x, t, reduction="batchmean")),
    *loss("binary_cross_entropy", P, Q, sample=True),
    *loss("binary_cross_entropy", P, Q, data(5, low=0.1), tag="_weight"),
    *loss("binary_cross_entropy", np.float32([0, 1, 0, 1, 0.5]), np.float32([0, 1, 1, 0, 1]), tag="_edges",
          fixed=True),
    *loss("binary_cross_entropy_with_logits", X * 3, Q, sample=True),
    *loss("binary_cross_entropy_with_logits", np.float32([-1e4, 1e4, 0, 50, -50]), np.float32([0, 0, 1, 1, 1]),
          tag="_far"),
    Op("binary_cross_entropy_with_logits_weights",
       lambda x, t, w, p: x.binary_cross_entropy_with_logits(t, w, pos_weight=p), (X, Q, data(4, 1, low=0.1), FACTORS),
       lambda x, t, w, p: F.binary_cross_entropy_with_logits(x, t, w.detach(), pos_weight=p.detach())),
    *loss("soft_margin_loss", X, SIGNS, fixed=True),
    *loss("multilabel_soft_margin_loss", X, np.float32(SIGNS > 0), FACTORS),
    *loss("nll_loss", np.log(P)[:, :], np.array([4, 0, 2, 2], np.int32), sample=True),
    *loss("nll_loss", PLANE, PLANES, tag="_planes"),
    *loss("nll_loss", LOGITS, SOME, FACTORS, tag="_weight"),
    *loss("nll_loss", data(5), np.int32(3), tag="_vector"),
    *loss("cross_entropy", LOGITS, CLASSES, sample=True),
    *loss("cross_entropy", LOGITS * 1e4, CLASSES, tag="_far"),
    *loss("cross_entropy", LOGITS, SOME, FACTORS, tag="_weight"),
    *loss("cross_entropy", LOGITS, SOME, FACTORS, tag="_smooth", label_smoothing=0.2),
    *loss("cross_entropy", PLANE, PLANES, tag="_planes", label_smoothing=0.1, sample=True),
    *loss("cross_entropy", LOGITS, CLASSES, tag="_ignored", ignore_index=2),
    *loss("cross_entropy", data(5), np.int32(3), tag="_vector"),
    *loss("cross_entropy", LOGITS, data(6, 5, seed=9, low=0, high=0.4), tag="_soft", sample=True),
    *loss("cross_entropy", PLANE, data(2, 4, 3, 2, seed=9), data(4), tag="_soft_planes", label_smoothing=0.3),
    *loss("cross_entropy", LOGITS, np.full(6, -100, np.int32), tag="_all_ignored"),
    *loss("hinge_embedding_loss", X, SIGNS, margin=0.8),
    *loss("margin_ranking_loss", X, Y, SIGNS, margin=0.3, sample=True),
    *loss("margin_ranking_loss", np.float32([1, 2]), np.float32([1, 2]), np.float32([1, -1]), tag="_kink"),
    *loss("cosine_embedding_loss", X, Y, SIGNS[:, 0], margin=0.1, sample=True),
    *loss("cosine_embedding_loss", data(5), data(5, seed=1), np.float32(-1), tag="_vector", margin=-2.0),
    *loss("triplet_margin_loss", X, Y, data(4, 5, seed=2), sample=True),
    *loss("triplet_margin_loss", X, Y, data(4, 5, seed=2), tag="_swap", swap=True, p=1.5, margin=3.0),
    *loss("multi_margin_loss", LOGITS, CLASSES, margin=0.9, sample=True),
    *loss("multi_margin_loss", data(5), np.int32(3), tag="_vector", p=2),
    Op("multi_margin_loss_weight", lambda x, t, w: x.multi_margin_loss(t, weight=w), (LOGITS, CLASSES, FACTORS),
       lambda x, t, w: F.multi_margin_loss(x, t.long(), weight=w.detach()), gradient=False),
    *loss("multilabel_margin_loss", X, LABELS, sample=True),
    *loss("multilabel_margin_loss", data(5), LABELS[0], tag="_vector"),
    Op("mse_loss_half", lambda x, t: x.mse_loss(t), (X.astype(np.float16), Y.astype(np.float16)), F.mse_loss,
       rtol=2e-3, atol=2e-3),
    Op("mse_loss_empty", lambda x, t: x.mse_loss(t, "sum"), (data(0, 3), data(0, 3)),
       lambda x, t: F.mse_loss(x, t, reduction="sum")),
    Op("sparse_categorical_crossentropy", lambda x, t: x.sparse_categorical_crossentropy(t),
       (data(2, 3, 4), np.array([[0, 3, 1], [2, -1, 2]], np.int32)),
       lambda x, t: F.cross_entropy(x.transpose(1, 2), t.long(), ignore_index=-1)),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)

T = Tensor(LOGITS)
ERRORS = [
    (lambda: T.mse_loss(T, "average"), ValueError, "mse_loss: reduction must be one of mean, sum, none, got 'average'"),
    (lambda: T.mse_loss(Tensor(X)), ValueError, r"mse_loss: shapes \(6, 5\) and \(4, 5\) do not broadcast"),
    (lambda: T.cross_entropy(Tensor(CLASSES[:4])), ValueError, r"cross_entropy: input \(6, 5\) needs integer classes"),
    (lambda: T.cross_entropy(Tensor(X)), ValueError, r"cross_entropy: input \(6, 5\) and probabilities \(4, 5\)"),
    (lambda: T.cross_entropy(Tensor(CLASSES), label_smoothing=2), ValueError, "cross_entropy: label_smoothing"),
    (lambda: T.nll_loss(Tensor(CLASSES), Tensor.ones(4)), ValueError, r"nll_loss: weight \(4,\) needs one element for"),
    (lambda: T.nll_loss(Tensor(CLASSES).float()), ValueError, "nll_loss: .* needs integer classes"),
    (lambda: Tensor(1.0).cross_entropy(Tensor(1)), ValueError, "cross_entropy: the input has no axis of classes"),
    (lambda: T.huber_loss(T, delta=0), ValueError, "huber_loss: delta must be positive"),
    (lambda: T.multi_margin_loss(Tensor(CLASSES), p=3), ValueError, "multi_margin_loss: .* p 1 or 2"),
    (lambda: T.multilabel_margin_loss(Tensor(CLASSES)), ValueError, "multilabel_margin_loss: needs"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_gradient_of_a_function_of_losses(runtime: str) -> None:
    """Focal loss (Lin et al. 2017). Sums over one axis of which one needs the other have loops of their own, and what
    the outer one needs keeps its own."""
    x = data(16, 10)
    classes = np.arange(16, dtype=np.int64) * 7 % 10
    given, want = Tensor(x, device=runtime), torch.from_numpy(x).requires_grad_()
    losses = given.cross_entropy(Tensor(classes, device=runtime), reduction="none", label_smoothing=0.1)
    loss = ((1 - (-losses).exp()) ** 2 * losses).mean()
    (slope,) = loss.gradient(given)
    loss.realize(slope)  # one kernel
    target = torch.nn.functional.cross_entropy(want, torch.from_numpy(classes), reduction="none", label_smoothing=0.1)
    focal = ((1 - (-target).exp()) ** 2 * target).mean()
    focal.backward()
    np.testing.assert_allclose(loss.item(), focal.item(), rtol=1e-6)
    assert want.grad is not None
    np.testing.assert_allclose(slope.numpy(), want.grad.numpy(), rtol=1e-5, atol=1e-7)
