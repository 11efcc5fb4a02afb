"""A Llama divided among devices: the numbers of one device, and two all-reduces for each layer."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tensor.test_shard import on_opencl
from tinyweb import Tensor
from tinyweb.across import COPIES
from tinyweb.errors import DeviceError, TinywebError
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings, entry_points
from tinyweb.models.decoder.config import NormConfig
from tinyweb.models.decoder.divided import shard_decoder
from tinyweb.models.decoder.norm import Norm
from tinyweb.tracing import Plan

Make = Callable[..., Path]
KIND = os.environ.get("TINYWEB_TEST_SHARD", "CPU")
TWO = [KIND, f"{KIND}:1"]
BOTH = ",".join(TWO)
LAYERS, HIDDEN, VOCABULARY = 3, 192, 517


def logits(model: Any, ids: np.ndarray) -> list[np.ndarray]:
    """Of a prompt of 12 tokens, and of 8 after it one by one."""
    found = [model(Tensor(ids[:, :12])).numpy()]
    return found + [model(Tensor(ids[:, i : i + 1]), i).numpy() for i in range(12, 20)]


@pytest.fixture(autouse=True)
def on_this_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TINYWEB_DEVICE", KIND)
    yield


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    return np.random.default_rng(3).integers(0, VOCABULARY, (1, 32)).astype(np.int32)


def test_prompt_and_decoded_tokens(make_llama: Make, ids: np.ndarray) -> None:
    folder = make_llama()
    one, two = load(folder, context=64, device=KIND), load(folder, context=64, device=TWO)
    assert two.embedding.weight.device == two.caches[0].rows.device == BOTH
    for a, b in zip(logits(one, ids), logits(two, ids), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


def all_reduces(plan: Plan, tokens: int) -> None:
    """Each device sends its part of the sums to the other, after attention and after the MLP, and nothing else."""
    size = 4 * HIDDEN * tokens
    each = [(*TWO, size), (*reversed(TWO), size)]
    assert sorted(plan.copies) == sorted(each * 2 * LAYERS)


def test_copies_are_those_of_the_plan(make_llama: Make) -> None:
    model = load(make_llama(), context=64, device=TWO)
    plans = entry_points(model)
    all_reduces(plans["decode"], 1)
    all_reduces(plans["prefill_8"], 8)
    assert not plans["greedy"].copies and not plans["sample"].copies
    model(Tensor([[5]]), 0)
    COPIES.count = COPIES.nbytes = 0
    model(Tensor([[7]], device=BOTH), 1)
    assert (COPIES.count, COPIES.nbytes) == (4 * LAYERS, 4 * LAYERS * 4 * HIDDEN)


def test_weights_are_divided(make_llama: Make) -> None:
    """Each device has half of the matrices of layers and of the cache."""
    model = load(make_llama(), context=64, device=TWO)
    layer = model.layers[0]
    matrices = [
        *(layer.mixer.query, layer.mixer.key, layer.mixer.value, layer.mixer.output),
        *(layer.mlp.gate, layer.mlp.up, layer.mlp.down),
    ]
    for tensor in (*(m.weight for m in matrices), model.caches[0].rows):
        assert tensor.uop.buffer.arg.spread.outer > 0
    assert model.head.weight is model.embedding.weight or model.head.weight.uop.buffer.arg.spread.outer == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 256}, marks=pytest.mark.slow),
        pytest.param({"attention_bias": True, "mlp_bias": True}, marks=pytest.mark.slow),
        {"architecture": "mistral", "sliding_window": 8},
    ],
    ids=["groups", "biases", "window"],
)
def test_options(make_llama: Make, ids: np.ndarray, options: dict[str, Any]) -> None:
    folder = make_llama(**options)
    one, two = load(folder, context=64, device=KIND), load(folder, context=64, device=TWO)
    for tokens, start in ((ids[:, :9], 0), (ids[:, 9:12], 9)):
        a, b = (m(Tensor(tokens), start).numpy() for m in (one, two))
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "held", "count"),
    [(6, 2, 3), (6, 3, 2), *(pytest.param(*n, marks=pytest.mark.slow) for n in ((4, 1, 2), (4, 1, 3), (8, 2, 4)))],
    ids=lambda n: str(n),
)
def test_any_number_of_heads(make_llama: Make, ids: np.ndarray, heads: int, held: int, count: int) -> None:
    """Heads of keys and values that are fewer than devices are on several; others are divided as they can be. What
    moves are two all-reduces for each layer.
    """
    devices = [KIND, *(f"{KIND}:{i}" for i in range(1, count))]
    folder = make_llama(num_attention_heads=heads, num_key_value_heads=held, num_hidden_layers=2)
    one, many = load(folder, context=64, device=KIND), load(folder, context=64, device=devices)
    for tokens, start in ((ids[:, :9], 0), (ids[:, 9:12], 9)):
        a, b = (m(Tensor(tokens), start).numpy() for m in (one, many))
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
    many(Tensor([[5]], device=",".join(devices)), 12)
    COPIES.count = COPIES.nbytes = 0
    many(Tensor([[7]], device=",".join(devices)), 13)
    assert (COPIES.count, COPIES.nbytes) == tuple(2 * 2 * count * (count - 1) * k for k in (1, 4 * HIDDEN))


def test_norms_of_heads_that_are_on_several_devices(make_llama: Make, ids: np.ndarray) -> None:
    """Weights of norms go along with the heads that they belong to."""
    folder = make_llama(num_attention_heads=4, num_key_value_heads=1, num_hidden_layers=1)
    found = []
    for each in (False, True):
        models = [load(folder, context=64, device=KIND) for _ in range(2)]
        for m in models:
            mixer = m.layers[0].mixer
            sizes = (5, 48) if each else (48,)
            weight = Tensor(np.random.default_rng(1).random(sizes, dtype=np.float32), device=KIND)
            mixer.head_norm = Norm(NormConfig("rms", 1e-5), (48,), weight, None)
            if not each:
                mixer.head_norm = None
                whole = [
                    Tensor(np.random.default_rng(i).random(48 * n, dtype=np.float32)) for i, n in enumerate((4, 1))
                ]
                mixer.query_norm, mixer.key_norm = (Norm(NormConfig("rms", 1e-5), w.shape, w, None) for w in whole)
        shard_decoder(models[1], TWO)
        found.append([m(Tensor(ids[:, :9]), 0).numpy() for m in models])
    for a, b in found:
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("quant", "devices"),
    [pytest.param("q8", TWO, marks=pytest.mark.slow), ("q4", TWO), ("q8", [*TWO, f"{KIND}:2"])],
)
def test_quantised(make_llama: Make, ids: np.ndarray, quant: str, devices: list[str]) -> None:
    folder = make_llama(hidden_size=512, intermediate_size=1024, num_attention_heads=8, num_key_value_heads=2)
    one, two = (load(folder, quant, 64, d, activations="float", cache="f32") for d in (KIND, devices))
    a, b = (m(Tensor(ids[:, :5])).numpy() for m in (one, two))
    np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)


def test_chat(make_llama: Make, tmp_path: Path) -> None:
    """The same tokens, read in blocks and decoded with the cache."""

    class Ids:
        eos: frozenset[int] = frozenset()

    folder = make_llama()
    prompt = list(range(5, 30))
    answers = []
    for device in (KIND, BOTH):
        chat = Chat(load(folder, context=64, device=device), Ids())
        answers.append(list(chat.generate_ids(prompt, Settings(temperature=0, max_tokens=20, speculate=0))))
        assert chat.device.name == device
    assert answers[0] == answers[1] and len(answers[0]) == 20


@pytest.mark.slow
def test_several_opencl_devices() -> None:
    on_opencl(__file__, "test_prompt_and_decoded_tokens or test_copies_are_those_of_the_plan")


def test_errors(make_llama: Make) -> None:
    model = load(make_llama(num_attention_heads=2, num_key_value_heads=1), context=64)
    with pytest.raises(TinywebError, match="layer 0 has 2 heads that can be divided, which are too few for 3 devices"):
        shard_decoder(model, [*TWO, f"{KIND}:2"])
    with pytest.raises(TinywebError, match=f"at least two devices, not {KIND}"):
        shard_decoder(model, [KIND])
    with pytest.raises(DeviceError, match="names a device twice"):
        load(make_llama(), device=f"{KIND},{KIND}")
