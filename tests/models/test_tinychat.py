"""The embedded chat model: golden ids on every device, and how much of its skill each precision keeps."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings
from tinyweb.models.decoder import Decoder

GREEDY = Settings(temperature=0, max_tokens=256)


@pytest.fixture(scope="module")
def golden(model_folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((model_folder / "golden.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def chat(request: pytest.FixtureRequest, model_folder: Path) -> Iterator[Chat]:
    """The model with half-float weights and what it keeps in half floats, or in float32."""
    device, _, cache = request.param.partition(", ")
    model = load(model_folder, "f16", device=device, cache=cache or None)
    assert model.cache == (cache or "f16")
    yield Chat(model, Tokenizer.from_folder(model_folder))


@pytest.mark.parametrize(
    ("chat", "every"),
    [
        *(pytest.param(device, 1, id=device) for device in ("CPU", "WASM", "OPENCL", "CPU, f32")),
        pytest.param("WEBGPU", 3, id="WEBGPU"),  # Mesa's software adapter takes half a minute for all
        pytest.param("WEBGPU", 1, id="WEBGPU-all", marks=pytest.mark.slow),
    ],
    indirect=["chat"],
)
def test_golden_ids(chat: Chat, golden: dict[str, Any], every: int) -> None:
    """Prompts, token for token. All first logits agree to 2e-4 in float32, so a tie cannot be decided by chance;
    half floats move them by ten times as much, and change no token."""
    model = chat.model
    assert isinstance(model, Decoder)
    tolerance = 2e-4 if model.cache == "f32" else 4e-3
    settings = Settings(temperature=0, max_tokens=golden["max_new_tokens"])
    assert len(golden["items"]) >= 10
    for item in golden["items"][::every]:
        ids = list(chat.generate_ids(item["prompt_ids"], Settings(temperature=0, max_tokens=1)))
        assert ids == item["output_ids"][:1]
        logits = model.logits.numpy()[0]
        assert [float(logits[i]) for i in item["top5_ids"]] == pytest.approx(item["top5_logits"], abs=tolerance)
        text, ids = chat.answer(item["messages"], settings)
        assert (item["id"], ids) == (item["id"], item["output_ids"])
        assert text.strip() == item["output_text"].strip()


def score(folder: Path, quant: str, items: list[dict[str, Any]]) -> float:
    """Share of the items answered as expected, greedily, in percent."""
    chat = Chat(load(folder, quant), Tokenizer.from_folder(folder))
    right = 0
    for item in items:
        text, _ = chat.answer(item["messages"], GREEDY)
        right += all(re.search(pattern, text) for pattern in item["expect"])
    return 100 * right / len(items)


@pytest.fixture(scope="module", params=[3, pytest.param(1, marks=pytest.mark.slow)])
def every(request: pytest.FixtureRequest) -> int:
    """Of how many questions one is asked. Those of one skill stand behind one another in eval.json."""
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def items(every: int, model_folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((model_folder / "eval.json").read_text())
    return found[::every]


@pytest.fixture(scope="module")
def full_score(model_folder: Path, items: list[dict[str, Any]]) -> float:
    return score(model_folder, "f32", items)


@pytest.mark.parametrize(("quant", "points"), [("q8", 2), ("q4", 8)])
def test_skill_kept(
    model_folder: Path, items: list[dict[str, Any]], full_score: float, quant: str, points: float, every: int
) -> None:
    """The share of a sample strays by the root of how much smaller it is."""
    assert full_score > 80
    assert score(model_folder, quant, items) >= full_score - points * every**0.5
