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
from tinyweb.models.decoder.divided import shard_decoder
from tinyweb.tracing import Plan

Make = Callable[..., Path]
KIND = os.environ.get("TINYWEB_TEST_SHARD", "CPU")
TWO = [KIND, f"{KIND}:1"]
BOTH = ",".join(TWO)
LAYERS, HIDDEN, VOCABULARY = 3, 192, 517


def logits(model: Any, ids: np.ndarray) -> list[np.ndarray]:
    """Of a prompt of 12 tokens, and of 20 after it one by one."""
    found = [model(Tensor(ids[:, :12])).numpy()]
    return found + [model(Tensor(ids[:, i : i + 1]), i).numpy() for i in range(12, 32)]


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
        {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 256},
        {"attention_bias": True, "mlp_bias": True},
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


@pytest.mark.parametrize("quant", ["q8", "q4"])
def test_quantised(make_llama: Make, ids: np.ndarray, quant: str) -> None:
    folder = make_llama(hidden_size=512, intermediate_size=1024, num_attention_heads=8, num_key_value_heads=2)
    one, two = (load(folder, quant, 64, d, activations="float", cache="f32") for d in (KIND, TWO))
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
    model = load(make_llama(num_key_value_heads=1), context=64)
    with pytest.raises(TinywebError, match="layer 0 has 1 heads of keys, which 2 devices do not divide"):
        shard_decoder(model, TWO)
    with pytest.raises(TinywebError, match=f"at least two devices, not {KIND}"):
        shard_decoder(model, [KIND])
    with pytest.raises(DeviceError, match="names a device twice"):
        load(make_llama(), device=f"{KIND},{KIND}")
