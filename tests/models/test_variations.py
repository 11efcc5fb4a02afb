"""Random configs of every architecture beside `transformers`: prompts, steps from the cache, texts side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.models.variations import DECODERS, Draw, variation
from tinyweb import Tensor
from tinyweb.models import load

PROMPT, STEPS = 9, 20
TOLERANCE = 1e-4
SEEDS = range(3)


def older(values: dict[str, Any], draw: Draw) -> dict[str, Any]:
    """A config.json as it was before everything about rotary positions had one place."""
    rope = values.get("rope_parameters")
    if not rope or "rope_theta" not in rope:
        return values
    rope = dict(rope)
    moved = {key: rope.pop(key) for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    if draw.coin():
        rope["type"] = rope.pop("rope_type")
    rest = {key: value for key, value in values.items() if key != "rope_parameters"}
    return {**rest, **moved, "rope_scaling": None if "default" in rope.values() else rope}


def judge(model: Any, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of the prompts, and of what follows step by step; and of the texts read at once."""
    ids, steps = torch.from_numpy(texts), []
    with torch.no_grad():
        whole = model(ids).logits.numpy()
        read = model(ids[:, :PROMPT], use_cache=True)
        name = "past_key_values" if "past_key_values" in read else "cache_params"
        memory = {name: read[name]}
        for at in range(PROMPT, PROMPT + STEPS):
            steps.append(model(ids[:, at : at + 1], **memory, use_cache=True).logits.numpy())
    return read.logits.numpy(), np.concatenate(steps, 1), whole


def check(family: str, seed: int, folder: Path, device: str, count: int = STEPS) -> None:
    small = variation(family, seed)
    small.write(folder)
    model = getattr(transformers, small.architecture).from_pretrained(folder, dtype=torch.float32).eval()
    model.set_experts_implementation("eager")  # of any sizes
    if seed % 2:
        path = folder / "config.json"
        path.write_text(json.dumps(older(json.loads(path.read_text()), Draw(seed))))
    texts = np.random.default_rng(seed).integers(0, model.config.vocab_size, (2, PROMPT + STEPS))
    prompt, steps, whole = judge(model, texts)
    kinds = json.dumps(model.config.to_dict().get("rope_parameters") or {})
    if "dynamic" not in kinds and "longrope" not in kinds:
        # steps are the whole text's then, which those of `transformers` are not with Mamba-2's limits of steps, nor in
        # Bamba's layers of attention
        steps = whole[:, PROMPT:]
    ours = load(folder, device=device)
    spread = max(1.0, 2 * float(whole.std()))  # of what float32 rounds differently

    def same(got: Tensor, want: np.ndarray, what: str) -> None:
        np.testing.assert_allclose(got.numpy(), want, atol=TOLERANCE * spread, err_msg=f"{what} of {small.changes}")

    def ids(begin: int, end: int) -> Tensor:
        return Tensor(np.ascontiguousarray(texts[:, begin:end]).astype(np.int32), device=device)

    same(ours(ids(0, PROMPT + STEPS)), whole, "the whole text")
    same(ours(ids(0, PROMPT)), prompt, "the prompt")
    for step in range(count):
        at = PROMPT + step
        same(ours(ids(at, at + 1), at), steps[:, step : step + 1], f"step {step}")


def test_a_sample(tmp_path: Path) -> None:
    check("Qwen2Moe", 2, tmp_path, "INTERPRETER", 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", DECODERS)
def test_every_architecture(family: str, seed: int, tmp_path: Path) -> None:
    check(family, seed, tmp_path, "CPU")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["WASM", "WEBGPU"])
@pytest.mark.parametrize("family", ["Llama4", "Mamba2", "GptOss", "DeepseekV3", "Falcon", "Gemma3n"])
def test_other_devices(family: str, device: str, tmp_path: Path) -> None:
    check(family, 3, tmp_path, device)
