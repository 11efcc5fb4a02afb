"""A language model of float16 weights, by the text of its kernels for GPUs with matrix instructions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.native_runtimes.text.runtime import TEXTS
from tinyweb import Tensor
from tinyweb.models import load

IDS = np.random.default_rng(3).integers(0, 517, (1, 40)).astype(np.int32)


@pytest.mark.parametrize("device", [TEXTS[0], *(pytest.param(t, marks=pytest.mark.slow) for t in TEXTS[1:])])
@pytest.mark.parametrize("activations", ["half", "scaled-half"])
def test_a_prompt_and_tokens(make_llama: Callable[..., Path], activations: str, device: str) -> None:
    """Of the processor's numbers with the same roundings nothing but the order of sums is left. The default for files
    of float32 is what reaches as far."""
    folder = make_llama(hidden_size=96, intermediate_size=144, num_hidden_layers=2, num_attention_heads=4)
    found = []
    for where in ("CPU", device):
        model = load(folder, "f16", 64, where, None if (activations, where) == ("scaled-half", device) else activations)
        assert model.activations == activations
        logits = [model(Tensor(IDS[:, :33], device=where)).numpy()]
        found.append([*logits, *(model(Tensor(IDS[:, i : i + 1], device=where), i).numpy() for i in range(33, 36))])
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, atol=5e-3 * np.abs(want).max())
