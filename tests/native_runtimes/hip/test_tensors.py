"""Tensors on HIP, against the stand-in: what is computed, and that no call is wrong."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.native_runtimes.hip.standin import StandIn
from tinyweb import Tensor
from tinyweb.device import Device
from tinyweb.dtype import dtypes
from tinyweb.native_runtimes.hip import HipRuntime
from tinyweb.nn.quantize import of_integers
from tinyweb.tracing import jit

MODELS = Path(__file__).resolve().parents[3] / "assets" / "models"


@pytest.fixture
def hip(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """The device HIP, which gives back all that it has taken."""
    standin = StandIn(monkeypatch, megabytes=1024)
    assert "HIP" not in Device._open
    yield standin
    device = Device._open.pop("HIP")
    device.compiled.clear()
    gc.collect()
    runtime = device.runtime
    assert isinstance(runtime, HipRuntime)
    runtime.close()
    standin.check()
    assert standin.alive == {}


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_products_sums_and_convolutions(hip: StandIn) -> None:
    a, b, image, kernel = random(37, 64), random(64, 50), random(1, 3, 12, 12), random(4, 3, 3, 3)
    x, y = Tensor(a, device="HIP"), Tensor(b, device="HIP")
    np.testing.assert_allclose((x @ y).numpy(), a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose((x @ y).softmax(-1).sum(0).numpy(), softmax(a @ b).sum(0), rtol=1e-5, atol=1e-5)
    halves = (x.cast(dtypes.float16) @ y.cast(dtypes.float16)).cast(dtypes.float32)
    np.testing.assert_allclose(halves.numpy(), a @ b, rtol=2e-2, atol=5e-2)
    given = Tensor(image, device="HIP").conv2d(Tensor(kernel, device="HIP"), padding=1)
    expected = Tensor(image).conv2d(Tensor(kernel), padding=1)
    np.testing.assert_allclose(given.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)
    assert x.argsort(-1).numpy().tolist() == a.argsort(-1, kind="stable").tolist()
    assert (Tensor(a.astype(np.int8), device="HIP").cast(dtypes.int64) * 2**33).sum().item() == int(
        a.astype(np.int8).astype(np.int64).sum() * 2**33
    )
    del x, y, halves, given


def test_a_function_that_runs_again_is_a_graph(hip: StandIn) -> None:
    weights = [random(64, 64) / 8 for _ in range(3)]
    layers = [Tensor(w, device="HIP") for w in weights]

    @jit
    def network(x: Tensor) -> Tensor:
        for w in layers:
            x = (x @ w).relu()
        return x.softmax(-1).realize()

    for turn in range(5):
        given = random(4, 64) + turn
        got, expected = network(Tensor(given, device="HIP")).numpy(), given
        for w in weights:
            expected = np.maximum(expected @ w, 0)
        np.testing.assert_allclose(got, softmax(expected), rtol=1e-4, atol=1e-6)
    assert hip.graph_launches > 0
    layers.clear()
    del network


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(("bits", "group", "groups"), [(4, 32, 24), (4, 64, 40), (6, 32, 16), (3, 128, 8), (8, 32, 13)])
def test_rows_of_few_bits_that_a_wave_reads_together(hip: StandIn, bits: int, group: int, groups: int) -> None:
    """Threads side by side have words side by side: those of several groups, where these lie woven."""
    random = np.random.default_rng(group + bits)
    least, most = -(1 << (bits - 1)), 1 << (bits - 1)
    codes = random.integers(least, most, (33, groups, group)).astype(np.int8)
    scales = (random.random((33, groups)) * 0.1).astype(np.float16)
    x = random.standard_normal((1, groups * group)).astype(np.float32)
    want = x.astype(np.float64) @ (codes * scales[..., None].astype(np.float64)).reshape(33, -1).T
    found = of_integers(codes, scales, None, bits, "HIP").product(Tensor(x, device="HIP")).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.slow
def test_the_embedded_chat_model_says_the_same(hip: StandIn) -> None:
    from tinyweb.models import load
    from tinyweb.models.chat import Chat, Settings

    said = {}
    ids_alone: Any = SimpleNamespace(eos=())  # ids in, ids out: nothing of a tokenizer is asked for
    for device in ("CPU", "HIP"):
        chat = Chat(load(MODELS / "tinychat-7m", "q8", device=device), ids_alone)
        ids = [int(i) for i in np.random.default_rng(0).integers(300, 4000, 12)]
        said[device] = list(chat.generate_ids(ids, Settings(max_tokens=6, temperature=0)))
    assert said["HIP"] == said["CPU"] and len(said["HIP"]) == 6
    del chat
