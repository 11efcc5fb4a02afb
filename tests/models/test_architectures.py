"""Every architecture against `transformers`, with random weights: a text read at once, and token by token."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.models.decoder_folders import LLAMA_LIKE
from tinyweb import Tensor
from tinyweb.models import load

MODELS = LLAMA_LIKE
PROMPT, STEPS = 9, 20
TOLERANCE = 1e-4
SAMPLES = ("Llama 3", "Qwen 3")  # of devices beside the processor, where not all are asked for


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: tmp_path_factory.mktemp("model") for name in MODELS}


@pytest.fixture(scope="module")
def judged(folders: dict[str, Path]):
    """The folder of a model, two texts with the same beginning, and the reference's logits of both."""

    @cache
    def of(name: str):
        small, folder = MODELS[name], folders[name]
        small.write(folder)
        texts = np.random.default_rng(3).integers(0, 67, (2, PROMPT + STEPS))
        texts[1, :PROMPT] = texts[0, :PROMPT]
        return folder, texts, small.logits(folder, texts)

    return of


def check(folder: Path, texts: np.ndarray, want: np.ndarray, device: str, steps: int, tolerance: float = TOLERANCE):
    """One text read at once; then the other one's tokens behind the common beginning, one by one from the cache."""
    model = load(folder, context=PROMPT + STEPS, device=device)
    ids = texts.astype(np.int32)
    np.testing.assert_allclose(model(Tensor(ids[:1], device=device)).numpy(), want[:1], atol=tolerance)
    for at in range(PROMPT, PROMPT + steps):
        got = model(Tensor(ids[1:, at : at + 1], device=device), at).numpy()
        np.testing.assert_allclose(got[0, 0], want[1, at], atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_against_transformers(judged, name: str) -> None:
    folder, texts, want = judged(name)
    assert 0.3 < want.std() < 30
    check(folder, texts, want, "CPU", STEPS)


@pytest.mark.parametrize("device", ["WASM", "WEBGPU"])
@pytest.mark.parametrize(
    "name", [name if name in SAMPLES else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_devices(judged, name: str, device: str) -> None:
    check(*judged(name), device, 3)
