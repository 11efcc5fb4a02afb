"""Layers against PyTorch's: the names of what they hold, values, gradients of inputs and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.random_bounds import distance, distance_bound, gap_bound, normal
from tests.tensor.ops import data
from tinyweb import Tensor, nn
from tinyweb.nn.state import get_parameters, get_state_dict

LINE, PLANE, CUBE = data(2, 4, 9), data(2, 4, 6, 5), data(1, 4, 3, 4, 5)
SEQUENCE, OTHER = data(3, 3, 4), data(4, 3, 4, seed=1)
IDS = np.array([[0, 2, 1], [4, 4, 3]], np.int32)

# name, arguments, inputs, keywords
LAYERS: list[tuple[str, tuple[Any, ...], tuple[np.ndarray, ...], dict[str, Any]]] = [
    ("Linear", (4, 6), (data(3, 4),), {}),
    ("Linear", (4, 6), (data(2, 3, 4),), {"bias": False}),
    ("Bilinear", (4, 3, 5), (data(2, 4), data(2, 3)), {}),
    ("Embedding", (5, 3), (IDS,), {}),
    ("Embedding", (5, 3), (IDS,), {"padding_idx": 4}),
    ("EmbeddingBag", (5, 3), (IDS,), {}),
    ("EmbeddingBag", (5, 3), (IDS,), {"mode": "max", "padding_idx": 2}),
    ("EmbeddingBag", (5, 3), (IDS.reshape(-1), np.array([0, 1, 1, 4], np.int32)), {"mode": "sum", "padding_idx": 4}),
    ("EmbeddingBag", (5, 3), (IDS.reshape(-1), np.array([0, 2, 2, 6], np.int32)), {"padding_idx": 4}),
    ("EmbeddingBag", (5, 3), (IDS.reshape(-1), np.array([0, 3, 6], np.int32)), {"mode": "max"}),
    ("Conv1d", (4, 6, 3), (LINE,), {"stride": 2, "padding": 1}),
    ("Conv1d", (4, 6, 3), (LINE,), {"padding": 2, "padding_mode": "reflect"}),
    ("Conv2d", (4, 6, 3), (PLANE,), {"padding": "same", "groups": 2}),
    ("Conv2d", (4, 6, (2, 3)), (PLANE,), {"padding": (1, 2), "padding_mode": "circular", "dilation": 2}),
    ("Conv2d", (4, 6, 3), (PLANE,), {"padding": "same", "padding_mode": "replicate", "bias": False}),
    ("Conv3d", (4, 2, 2), (CUBE,), {}),
    ("ConvTranspose1d", (4, 6, 3), (LINE,), {"stride": 2, "output_padding": 1}),
    ("ConvTranspose2d", (4, 6, 3), (PLANE,), {"padding": 1, "groups": 2}),
    ("ConvTranspose3d", (4, 2, 2), (CUBE,), {"bias": False}),
    ("LayerNorm", (5,), (PLANE,), {}),
    ("LayerNorm", ((6, 5),), (PLANE,), {"bias": False, "eps": 1e-3}),
    ("RMSNorm", (5,), (PLANE,), {}),
    ("RMSNorm", (5,), (PLANE,), {"elementwise_affine": False, "eps": 0.1}),
    ("GroupNorm", (2, 4), (PLANE,), {}),
    ("BatchNorm1d", (4,), (LINE,), {}),
    ("BatchNorm2d", (4,), (PLANE,), {"momentum": None}),
    ("BatchNorm2d", (4,), (PLANE,), {"track_running_stats": False}),
    ("BatchNorm3d", (4,), (CUBE,), {"affine": False, "momentum": 0.4}),
    ("InstanceNorm1d", (4,), (LINE,), {}),
    ("InstanceNorm2d", (4,), (PLANE,), {"affine": True, "track_running_stats": True}),
    ("InstanceNorm3d", (4,), (CUBE[0],), {}),
    ("LocalResponseNorm", (3,), (PLANE,), {}),
    ("PReLU", (4,), (PLANE,), {}),
    ("RNNCell", (4, 3), (data(2, 4), data(2, 3)), {"nonlinearity": "relu"}),
    ("GRUCell", (4, 3), (data(2, 4), data(2, 3)), {}),
    ("LSTMCell", (4, 3), (data(2, 4),), {}),
    ("RNN", (4, 3), (SEQUENCE,), {"num_layers": 2}),
    ("RNN", (4, 3), (SEQUENCE, data(1, 3, 3)), {"nonlinearity": "relu", "bias": False}),
    ("GRU", (4, 3), (SEQUENCE[:2], data(2, 3, 3)), {"bidirectional": True}),
    ("GRU", (4, 3), (data(2, 4),), {"batch_first": True}),
    ("LSTM", (4, 3), (SEQUENCE[:, :2],), {"bidirectional": True, "batch_first": True}),
    ("LSTM", (4, 5), (SEQUENCE,), {"proj_size": 2}),
    ("MultiheadAttention", (4, 2), (SEQUENCE, OTHER, OTHER), {}),
    ("MultiheadAttention", (4, 2), (SEQUENCE, SEQUENCE, SEQUENCE), {"batch_first": True, "bias": False}),
    ("MultiheadAttention", (4, 2), (SEQUENCE, data(4, 3, 5), data(4, 3, 2)), {"kdim": 5, "vdim": 2}),
    ("MultiheadAttention", (4, 1), (SEQUENCE[0], SEQUENCE[0], SEQUENCE[0]),
     {"add_bias_kv": True, "add_zero_attn": True}),
    ("Flatten", (), (PLANE,), {}),
    ("Upsample", (), (PLANE,), {"scale_factor": 2, "mode": "bilinear"}),
    ("ZeroPad2d", ((1, 0, -1, 2),), (PLANE,), {}),
    ("ConstantPad1d", (2, 1.5), (LINE,), {}),
    ("ReflectionPad2d", (2,), (PLANE,), {}),
    ("ReplicationPad3d", ((1, 0, 1, 2, 0, 1),), (CUBE,), {}),
    ("CircularPad2d", ((2, 1, 0, 2),), (PLANE,), {}),
    ("ReflectionPad1d", ((1, 2),), (LINE[0],), {}),
    ("LeakyReLU", (0.2,), (PLANE,), {}),
    ("Softmax", (1,), (PLANE,), {}),
    ("AdaptiveAvgPool2d", (2,), (PLANE,), {}),
    ("MaxPool2d", (2,), (PLANE,), {}),
    ("PixelShuffle", (2,), (PLANE,), {}),
    ("CosineSimilarity", (), (PLANE, PLANE[::-1].copy()), {}),
    ("HuberLoss", (), (PLANE, PLANE[::-1].copy()), {}),
]  # fmt: skip
IDENTIFIERS = [f"{name}-{i}" for i, (name, *_) in enumerate(LAYERS)]


def _flat(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [t for part in result for t in _flat(part)]
    return [] if result is None else [result]


@pytest.mark.parametrize(("name", "arguments", "inputs", "keywords"), LAYERS, ids=IDENTIFIERS)
def test_like_pytorch(name: str, arguments: tuple[Any, ...], inputs: tuple[np.ndarray, ...], keywords: Any) -> None:
    Tensor.manual_seed(1)
    ours, theirs = getattr(nn, name)(*arguments, **keywords), getattr(torch.nn, name)(*arguments, **keywords)
    held = get_state_dict(ours)
    theirs.load_state_dict({n: torch.from_numpy(np.array(t.numpy())) for n, t in held.items()}, strict=True)
    x = [Tensor(a) for a in inputs]
    y = [torch.from_numpy(a.copy()).requires_grad_(a.dtype.kind == "f") for a in inputs]
    for training in (True, False) if "Norm" in name else (False,):
        theirs.train(training)
        with Tensor.train(training):
            got, want = _flat(ours(*x)), _flat(theirs(*(t.long() if t.dtype is torch.int32 else t for t in y)))
        assert len(got) == len(want)
        loss, want_loss = (sum((t * (i + 1)).square().sum() for i, t in enumerate(ts)) for ts in (got, want))
        parameters = [n for n, p in theirs.named_parameters() if p.requires_grad]
        wanted = [t for t in y if t.requires_grad] + [dict(theirs.named_parameters())[n] for n in parameters]
        gradients = torch.autograd.grad(want_loss, wanted)
        targets = [t for t in x if t.dtype.is_float] + [held[n] for n in parameters]
        found = loss.gradient(*targets)
        got[0].realize(*got[1:], *found)
        for g, w in zip((*got, *found), (*want, *gradients), strict=True):
            assert g.shape == tuple(w.shape)
            scale = max(1.0, float(w.detach().abs().max()))
            np.testing.assert_allclose(g.numpy(), w.detach().numpy(), rtol=2e-4, atol=2e-5 * scale)
    for n, t in theirs.state_dict().items():
        np.testing.assert_allclose(held[n].numpy(), t.numpy(), rtol=1e-5, atol=1e-6, err_msg=n)


# the parameter of a layer, and the bound of the uniform distribution that its documentation names: 0 for zeros
UNIFORM: list[tuple[str, tuple[Any, ...], dict[str, float]]] = [
    ("Linear", (300, 40), {"weight": 300**-0.5, "bias": 300**-0.5}),
    ("Conv2d", (30, 50, 3), {"weight": 270**-0.5, "bias": 270**-0.5}),
    ("ConvTranspose1d", (40, 50, 5), {"weight": 250**-0.5, "bias": 250**-0.5}),
    ("Bilinear", (20, 10, 50), {"weight": 20**-0.5, "bias": 20**-0.5}),
    ("LSTM", (30, 25), dict.fromkeys(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), 25**-0.5)),
    ("GRUCell", (30, 25), dict.fromkeys(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), 25**-0.5)),
    ("MultiheadAttention", (32, 4), {
        "in_proj_weight": (6 / 128) ** 0.5, "in_proj_bias": 0, "out_proj.weight": 32**-0.5, "out_proj.bias": 0}),
]  # fmt: skip


@pytest.mark.parametrize("library", [nn, torch.nn], ids=["ours", "theirs"])
@pytest.mark.parametrize(("name", "arguments", "bounds"), UNIFORM, ids=[name for name, *_ in UNIFORM])
def test_initial_weights(name: str, arguments: tuple[int, ...], bounds: dict[str, float], library: Any) -> None:
    layer = getattr(library, name)(*arguments)
    held = get_state_dict(layer) if library is nn else layer.state_dict()
    assert held.keys() == bounds.keys()
    for n, bound in bounds.items():
        values = held[n].numpy().reshape(-1)
        if not bound:
            assert not values.any(), n
            continue
        assert values.size >= 40 and np.abs(values).max() <= bound * (1 + 1e-6), n
        assert np.abs(values).max() >= bound * (1 - gap_bound(values.size)), n
        assert distance(values / bound, lambda v: (v + 1) / 2) < distance_bound(values.size), n


@pytest.mark.parametrize("library", [nn, torch.nn], ids=["ours", "theirs"])
def test_initial_embeddings(library: Any) -> None:
    values = library.Embedding(100, 30).weight.detach().numpy()
    assert distance(values, normal) < distance_bound(values.size)


def test_weights_of_bags() -> None:
    ours, theirs = nn.EmbeddingBag(5, 3, mode="sum"), torch.nn.EmbeddingBag(5, 3, mode="sum")
    theirs.load_state_dict({"weight": torch.from_numpy(np.array(ours.weight.numpy()))})
    given = data(2, 3)
    want = theirs(torch.from_numpy(IDS), per_sample_weights=torch.from_numpy(given)).detach().numpy()
    got = ours(Tensor(IDS), per_sample_weights=Tensor(given))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
    for wrong, says in (
        (lambda: nn.EmbeddingBag(5, 3, mode="median"), "mode must be mean, sum or max"),
        (lambda: ours(Tensor(IDS), Tensor([0])), r"with offsets, got \(2, 3\)"),
        (lambda: nn.EmbeddingBag(5, 3)(Tensor(IDS), None, Tensor(given)), "per_sample_weights are for mode sum"),
    ):
        with pytest.raises(ValueError, match=f"EmbeddingBag: .*{says}"):
            wrong()


def test_wrong_borders() -> None:
    with pytest.raises(ValueError, match=r"ZeroPad2d: padding must be one number or 4, got \(1, 2\)"):
        nn.ZeroPad2d((1, 2))
    for layer in (nn.ReflectionPad2d(1), nn.ConstantPad2d(1, 2.0)):
        with pytest.raises(ValueError, match=r"Pad2d: needs 3 or 4 axes, got \(5, 6\)"):
            layer(Tensor.ones(5, 6))


def test_masks_of_attention() -> None:
    ours, theirs = nn.MultiheadAttention(4, 2, batch_first=True), torch.nn.MultiheadAttention(4, 2, batch_first=True)
    theirs.load_state_dict({n: torch.from_numpy(np.array(t.numpy())) for n, t in get_state_dict(ours).items()})
    x = data(3, 5, 4)
    padding = np.zeros((3, 5), bool)
    padding[1, 3:] = True
    hidden, added = np.triu(np.ones((5, 5), bool), 1), data(6, 5, 5)
    for masks in (
        {"key_padding_mask": padding},
        {"attn_mask": hidden},
        {"attn_mask": added, "average_attn_weights": False},
        {"attn_mask": hidden, "key_padding_mask": padding, "need_weights": False},
    ):
        a, b = ({k: make(m) if isinstance(m, np.ndarray) else m for k, m in masks.items()} for make in
                (Tensor, torch.from_numpy))  # fmt: skip
        got, want = ours(*[Tensor(x)] * 3, **a), theirs(*[torch.from_numpy(x)] * 3, **b)
        np.testing.assert_allclose(got[0].numpy(), want[0].detach().numpy(), rtol=1e-4, atol=1e-6)
        assert (got[1] is None) == (want[1] is None)
        if got[1] is not None:
            np.testing.assert_allclose(got[1].numpy(), want[1].detach().numpy(), rtol=1e-4, atol=1e-6)
    causal, _ = ours(Tensor(x), Tensor(x), Tensor(x), is_causal=True)
    want, _ = theirs(*[torch.from_numpy(x)] * 3, attn_mask=torch.from_numpy(hidden))
    np.testing.assert_allclose(causal.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_sequential_names_its_layers_by_number() -> None:
    model = nn.Sequential(nn.Linear(4, 3), Tensor.relu, nn.Sequential(nn.BatchNorm(3), nn.Linear(3, 2, bias=False)))
    assert list(get_state_dict(model)) == [
        "0.weight", "0.bias", "2.0.weight", "2.0.bias", "2.0.running_mean", "2.0.running_var",
        "2.0.num_batches_tracked", "2.1.weight",
    ]  # fmt: skip
    assert len(get_parameters(model)) == 5
    assert model(Tensor(data(7, 4))).shape == (7, 2)


def test_layer_norm_of_channels() -> None:
    layer = nn.LayerNorm2d(4)
    want = torch.nn.functional.layer_norm(torch.from_numpy(PLANE).permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2)
    np.testing.assert_allclose(layer(Tensor(PLANE)).numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


def test_the_seed_gives_the_weights() -> None:
    def weights(seed: int) -> np.ndarray:
        Tensor.manual_seed(seed)
        return nn.Linear(5, 4).weight.numpy()  # type: ignore[union-attr]

    np.testing.assert_array_equal(weights(7), weights(7))
    assert (weights(7) != weights(8)).all()


X = Tensor(PLANE)
ERRORS = [
    (lambda: nn.Conv2d(4, 6, 3, groups=3), "Conv2d: 4 and 6 channels do not divide into 3 groups"),
    (lambda: nn.Conv2d(4, 6, (3, 3, 3)), "Conv2d: kernel_size must be a whole number or 2 of them"),
    (lambda: nn.Conv2d(4, 6, 3, padding_mode="zero"), "Conv2d: padding_mode must be one of zeros"),
    (lambda: nn.Conv2d(3, 6, 3)(X), r"conv2d: input \(2, 4, 6, 5\) and weight \(6, 3, 3, 3\) with groups=1"),
    (lambda: nn.BatchNorm1d(4)(X), r"BatchNorm1d: needs 2 or 3 axes, got \(2, 4, 6, 5\)"),
    (lambda: nn.GroupNorm(3, 4), "GroupNorm: 4 channels do not divide into 3 groups"),
    (lambda: nn.Embedding(4, 2, padding_idx=4), "Embedding: padding_idx 4 is outside of 4 rows"),
    (lambda: nn.MultiheadAttention(5, 2), "MultiheadAttention: a width of 5 does not divide into 2 heads"),
    (lambda: nn.LSTM(4, 3)(X), r"LSTM: needs \(L, N, 4\) or \(L, 4\), got \(2, 4, 6, 5\)"),
    (lambda: nn.GRU(4, 3)(Tensor(SEQUENCE), Tensor.zeros(1, 3, 4)), r"GRU: the state must be \(1, 3, 3\), got"),
    (lambda: nn.RNN(4, 3, nonlinearity="sin"), 'RNN: nonlinearity must be "tanh" or "relu"'),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
