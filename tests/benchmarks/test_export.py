"""What an export holds does not grow with the model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.checkpoints import Shape
from benchmarks.export import below, export, memory_of, model_folder, needed_bytes
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.formats.tokenizer import Tokenizer

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def test_model_of_random_weights(tmp_path: Path) -> None:
    shape = Shape(64, 96, 2, 4, 2, 700)
    folder = ModelFolder(model_folder(shape, tmp_path / "model"))
    weights = folder.weights()
    for name, sizes in shape.matrices():
        values = weights.read(f"{name}.weight", sizes)
        assert 0.5 < values.std() * sizes[1] ** 0.5 * (4**0.5 if name.endswith(("o_proj", "down_proj")) else 1) < 2
    tokenizer = Tokenizer.from_folder(folder)
    text = "Zürich, 日本 🦙"
    assert tokenizer.vocab_size == 700 and tokenizer.backend.decode(tokenizer.encode(text)) == text


def test_memory_of_processes() -> None:
    import os

    assert os.getpid() in below(os.getpid()) and memory_of(os.getpid()) > 10 << 20
    assert memory_of(2**30) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_peak_is_a_part_of_the_model(tmp_path: Path) -> None:
    shape = Shape(1024, 4096, 40, 8, 8, 4096)
    source = model_folder(shape, tmp_path / "model")
    stored = sum(p.stat().st_size for p in source.glob("*.safetensors"))
    cost = export(source, tmp_path / "site", "q8", 64)
    assert stored > 1.3e9 and needed_bytes(tmp_path / "site")[0] > 0.7e9
    assert cost.peak < 0.4 * stored
