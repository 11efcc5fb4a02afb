"""Norms, dropout, embeddings, linear layers and distances against PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.random_bounds import mean_bound
from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, Variable, dtypes

F = torch.nn.functional
LINE, PLANE = data(4, 6, 5), data(2, 6, 4, 3)
MEAN, VAR = data(6, seed=1), data(6, seed=2, low=0.5, high=2)
W, B = data(6, seed=3), data(6, seed=4)
IDS = np.array([[0, 3, 1], [3, 3, 4]], np.int32)
OPS = [
    Op("layer_norm", lambda x, w, b: x.layer_norm(5, w, b), (LINE, data(5, seed=1), data(5, seed=2)),
       lambda x, w, b: F.layer_norm(x, (5,), w, b), sample=True),
    Op("layer_norm_axes", lambda x: x.layer_norm((6, 5), eps=1e-2), (LINE,),
       lambda x: F.layer_norm(x, (6, 5), eps=1e-2)),
    Op("layer_norm_constant", lambda x: x.layer_norm(3), (np.float32([[2, 2, 2], [1, 2, 3]]),),
       lambda x: F.layer_norm(x, (3,))),
    Op("layer_norm_half", lambda x: x.layer_norm(5), (LINE.astype(np.float16),), lambda x: F.layer_norm(x, (5,)),
       rtol=2e-3, atol=2e-3),
    Op("layer_norm_empty", lambda x: x.layer_norm(5), (data(0, 5),), lambda x: F.layer_norm(x, (5,))),
    Op("layernorm", lambda x: x.layernorm(), (LINE,), lambda x: F.layer_norm(x, x.shape[-1:])),
    Op("layernorm_axis", lambda x: x.layernorm(axis=1), (LINE,),
       lambda x: F.layer_norm(x.transpose(1, 2), (6,)).transpose(1, 2)),
    Op("rms_norm", lambda x, w: x.rms_norm(5, w), (LINE, data(5)), lambda x, w: F.rms_norm(x, (5,), w), sample=True),
    Op("rms_norm_axes", lambda x: x.rms_norm((6, 5), eps=0.1), (LINE,), lambda x: F.rms_norm(x, (6, 5), eps=0.1)),
    Op("group_norm", lambda x, w, b: x.group_norm(3, w, b), (PLANE, W, B), lambda x, w, b: F.group_norm(x, 3, w, b),
       sample=True),
    Op("group_norm_flat", lambda x: x.group_norm(2), (data(3, 6),), lambda x: F.group_norm(x, 2)),
    Op("instance_norm", lambda x, w, b: x.instance_norm(None, None, w, b), (PLANE, W, B),
       lambda x, w, b: F.instance_norm(x, None, None, w, b)),
    Op("batch_norm_training", lambda x, w, b: x.batch_norm(None, None, w, b, training=True), (PLANE, W, B),
       lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), sample=True),
    Op("batch_norm_flat", lambda x: x.batch_norm(training=True), (data(7, 3),),
       lambda x: F.batch_norm(x, None, None, training=True)),
    Op("batch_norm_eval", lambda x, m, v, w, b: x.batch_norm(m, v, w, b, eps=1e-3), (PLANE, MEAN, VAR, W, B),
       lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach(), w, b, eps=1e-3), gradient=False),
    Op("local_response_norm", lambda x: x.local_response_norm(3, 0.1, 0.6, 2.0), (PLANE,),
       lambda x: F.local_response_norm(x, 3, 0.1, 0.6, 2.0)),
    Op("local_response_norm_even", lambda x: x.local_response_norm(4), (LINE,), lambda x: F.local_response_norm(x, 4)),
    Op("normalize", lambda x: x.normalize(), (LINE,), lambda x: F.normalize(x), sample=True),
    Op("normalize_zero", lambda x: x.normalize(axis=-1), (np.float32([[0, 0], [3, 4], [0, 0]]),),
       lambda x: F.normalize(x, dim=-1)),
    Op("normalize_1", lambda x: x.normalize(1, -1), (LINE,), lambda x: F.normalize(x, 1, -1)),
    Op("normalize_inf", lambda x: x.normalize(np.inf, 0), (LINE,), lambda x: F.normalize(x, np.inf, 0)),
    Op("normalize_3", lambda x: x.normalize(3, dim=1), (LINE,), lambda x: F.normalize(x, 3, dim=1)),
    Op("cosine_similarity", lambda x, y: x.cosine_similarity(y), (LINE, data(4, 6, 5, seed=1)),
       lambda x, y: F.cosine_similarity(x, y), sample=True),
    Op("cosine_similarity_zero", lambda x, y: x.cosine_similarity(y, -1), (np.float32([[0, 0], [1, 2]]), data(2, 2)),
       lambda x, y: F.cosine_similarity(x, y, -1)),
    Op("cosine_similarity_large", lambda x, y: x.cosine_similarity(y, -1), (data(2, 3) * 1e15, data(2, 3)),
       lambda x, y: F.cosine_similarity(x, y, -1), gradient=False),
    Op("pairwise_distance", lambda x, y: x.pairwise_distance(y), (data(4, 5), data(4, 5, seed=1)),
       lambda x, y: F.pairwise_distance(x, y)),
    Op("pairwise_distance_p", lambda x, y: x.pairwise_distance(y, 1.5, keepdim=True), (data(4, 5), data(5, seed=1)),
       lambda x, y: F.pairwise_distance(x, y, 1.5, keepdim=True)),
    Op("linear", lambda x, w, b: x.linear(w, b), (data(5, 192), data(517, 192), data(517)), F.linear, sample=True),
    Op("linear_batch", lambda x, w: x.linear(w), (data(2, 3, 7), data(4, 7)), F.linear),
    Op("linear_vector", lambda x, w, b: x.linear(w, b), (data(7), data(4, 7), data(4)), F.linear),
    Op("linear_one", lambda x, w: x.linear(w), (data(3, 7), data(7)), F.linear),
    Op("linear_empty", lambda x, w: x.linear(w), (data(0, 7), data(4, 7)), F.linear),
    Op("bilinear", lambda x, y, w, b: x.bilinear(y, w, b), (data(2, 3, 4), data(2, 3, 5), data(6, 4, 5), data(6)),
       F.bilinear, sample=True),
    Op("embedding", lambda t, i: t.embedding(i), (data(5, 4), IDS), lambda t, i: F.embedding(i, t), sample=True),
    Op("embedding_padding", lambda t, i: t.embedding(i, 3), (data(5, 4), IDS),
       lambda t, i: F.embedding(i, t, padding_idx=3)),
    Op("one_hot", lambda i: i.one_hot(6), (IDS,), lambda i: F.one_hot(i.long(), 6), sample=True),
    Op("one_hot_inferred", lambda i: i.one_hot(), (IDS,), lambda i: F.one_hot(i.long())),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


@pytest.mark.parametrize("method", ["batch_norm", "instance_norm"])
def test_running_statistics(method) -> None:
    mean, var = Tensor(MEAN), Tensor(VAR)
    want_mean, want_var = torch.tensor(MEAN), torch.tensor(VAR)
    for seed in range(3):
        x = data(2, 6, 4, 3, seed=seed)
        with Tensor.train():
            got = getattr(Tensor(x), method)(mean, var, momentum=0.3)
        want = getattr(F, method)(torch.tensor(x), want_mean, want_var, None, None, True, 0.3)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean.numpy(), want_mean.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var.numpy(), want_var.numpy(), rtol=1e-5, atol=1e-6)
    last = getattr(Tensor(x), method)(mean, var, *((None, None, False) if method == "instance_norm" else ()))
    want = getattr(F, method)(torch.tensor(x), want_mean, want_var, None, None, False)
    np.testing.assert_allclose(last.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["batch_norm", "instance_norm"])
def test_running_statistics_of_a_size_that_varies(method) -> None:
    """The same unbiased variances, with a count that is only known when it runs."""
    n, x = Variable("n", 2, 6), data(2, 6, 6)
    for length in (3, 6):
        mean, var = Tensor(MEAN), Tensor(VAR)
        with Tensor.train():
            getattr(Tensor(x)[:, :, : n.bind(length)], method)(mean, var, momentum=0.3).realize()
        want_mean, want_var = torch.tensor(MEAN), torch.tensor(VAR)
        getattr(F, method)(torch.tensor(x[:, :, :length]), want_mean, want_var, None, None, True, 0.3)
        np.testing.assert_allclose(mean.numpy(), want_mean.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(var.numpy(), want_var.numpy(), rtol=1e-5, atol=1e-6)


def test_train_is_a_context() -> None:
    x = Tensor.ones(1000)
    assert x.dropout(0.3).numpy().min() == 1
    with Tensor.train():
        dropped = x.dropout(0.3).numpy()
        with Tensor.train(False):
            assert x.dropout(0.3) is x
    assert x.dropout(0.3) is x
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.7)}
    assert abs((dropped == 0).mean() - 0.3) < mean_bound(1000)


def test_dropout_of_channels() -> None:
    x = Tensor.ones(40, 50, 3, 2)
    y = x.dropout2d(0.5, training=True).numpy()
    assert np.all((y == 0).all((2, 3)) | (y == 2).all((2, 3)))
    assert abs((y[:, :, 0, 0] == 0).mean() - 0.5) < mean_bound(2000)
    unbatched = Tensor.ones(50, 7).dropout1d(0.5, training=True).numpy()
    assert np.all((unbatched == 0).all(1) | (unbatched == 2).all(1))
    assert len(np.unique(unbatched)) == 2  # all 50 alike: once in 2⁴⁹
    assert (x.dropout(1.0, training=True).numpy() == 0).all()


def test_alpha_dropout_keeps_the_statistics() -> None:
    x = Tensor(np.random.default_rng(0).normal(size=50000).astype(np.float32))
    y = x.alpha_dropout(0.3, training=True).numpy()
    # standard deviations: 1 / √n of the mean, about 1.4 / √n of the other (its fourth moment is below 3)
    assert abs(y.mean()) < 6.2 / math.sqrt(y.size) and abs(y.std() - 1) < 6.2 / math.sqrt(y.size)
    whole = Tensor.ones(4, 30, 5).feature_alpha_dropout(0.5, training=True).numpy()
    assert (whole == whole[:, :, :1]).all() and len(np.unique(whole)) == 2


def test_dropout_has_the_gradient_of_what_was_kept() -> None:
    x = Tensor(data(100))
    y = x.dropout(0.5, training=True)
    (g,) = y.sum().gradient(x)
    y.realize(g)
    np.testing.assert_array_equal(g.numpy(), np.where(y.numpy() == 0, 0, 2))


X = Tensor(PLANE)
ERRORS = [
    (lambda: X.layer_norm((4, 4)), ValueError, r"layer_norm: \(2, 6, 4, 3\) must end with normalized_shape \(4, 4\)"),
    (lambda: X.group_norm(0), ValueError, r"group_norm: 6 channels of \(2, 6, 4, 3\) do not divide into 0 groups"),
    (lambda: X.group_norm(-2), ValueError, "do not divide into -2 groups"),
    (lambda: X.layer_norm(3, Tensor.ones(4)), ValueError, r"layer_norm: weight \(4,\) must have the shape \(3,\)"),
    (lambda: X.group_norm(4), ValueError, r"group_norm: 6 channels of \(2, 6, 4, 3\) do not divide into 4 groups"),
    (lambda: X.batch_norm(), ValueError, "batch_norm: running_mean and running_var are needed outside of training"),
    (lambda: Tensor.ones(1, 3).batch_norm(training=True), ValueError, "batch_norm: training needs more than one value"),
    (lambda: X.batch_norm(Tensor.ones(5)), ValueError, r"batch_norm: .* must have shape \(6,\), got \(5,\)"),
    (lambda: Tensor.ones(3, 4).instance_norm(), ValueError, "instance_norm: needs axes behind the channels"),
    (lambda: X.dropout(1.5, True), ValueError, "dropout: p must be within 0 and 1, got 1.5"),
    (lambda: X.dropout1d(), ValueError, r"dropout1d: needs 2 or 3 axes, got \(2, 6, 4, 3\)"),
    (lambda: X.linear(Tensor.ones(2, 4)), ValueError, r"linear: input \(2, 6, 4, 3\) and weight \(2, 4\)"),
    (lambda: Tensor.ones(2, 3).bilinear(Tensor.ones(2, 3), Tensor.ones(1, 2, 3)), ValueError, "bilinear: .* need a w"),
    (lambda: Tensor.ones(5, 2).embedding(Tensor(IDS), 5), ValueError, "embedding: padding_idx 5 is outside"),
    (lambda: X.one_hot(), TypeError, "one_hot: needs integers, got float32"),
    (lambda: Tensor.zeros(0, dtype=dtypes.int32).one_hot(), ValueError, "one_hot: an empty tensor needs num_classes"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
