"""Layers against PyTorch's: the names of what they hold, values, gradients of inputs and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize(("name", "arguments"), [
    ("Linear", (300, 40)), ("Conv2d", (30, 20, 3)), ("ConvTranspose1d", (40, 20, 5)), ("Embedding", (100, 30)),
    ("Bilinear", (20, 10, 8)), ("LSTM", (30, 25)), ("MultiheadAttention", (32, 4)), ("GRUCell", (30, 25)),
])  # fmt: skip
def test_initial_weights_are_distributed_alike(name: str, arguments: tuple[int, ...]) -> None:
    ours, theirs = getattr(nn, name)(*arguments), getattr(torch.nn, name)(*arguments)
    for n, t in get_state_dict(ours).items():
        mine, other = t.numpy(), theirs.state_dict()[n].numpy()
        assert mine.shape == other.shape and t.requires_grad
        if name == "Embedding":
            assert abs(mine.std() - 1) < 0.05
        else:
            # uniform: within the bounds, and filling them
            assert np.abs(mine).max() <= np.abs(other).max() * 1.3 + 1e-7
            assert mine.size < 50 or mine.std() == pytest.approx(other.std(), rel=0.2, abs=1e-7)


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
    def weights() -> np.ndarray:
        Tensor.manual_seed(7)
        return nn.Linear(5, 4).weight.numpy()  # type: ignore[union-attr]

    np.testing.assert_array_equal(weights(), weights())


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
