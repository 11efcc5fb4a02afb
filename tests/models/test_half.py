"""Float16 activations, which matrix instructions multiply: what is rounded, what stays, and what comes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tinyweb import Tensor, Variable
from tinyweb.dtype import dtypes
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.ir import Fragments
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import Target, cpu_target, webgpu_target
from tinyweb.models import load
from tinyweb.models.decoder import Decoder
from tinyweb.nn.layers import Linear
from tinyweb.nn.quantize import activations_for
from tinyweb.tracing import capture

PROMPT = "Once upon a time, in a village by the sea, there was a girl who had a dog and a small red boat."
TARGETS = {"sm_90": nvidia_target("sm_90"), "gfx942": amd_target("gfx942"), "gfx1201": amd_target("gfx1201")}


def test_where_they_suit() -> None:
    chips = (
        *(nvidia_target(arch) for arch in ("sm_75", "sm_80", "sm_120")),
        amd_target("gfx942"),
        amd_target("gfx1100"),
    )
    for target in chips:
        assert activations_for(target) == "half"
    for target in (amd_target("gfx1030"), webgpu_target()):
        assert activations_for(target) == "float"
    assert activations_for(cpu_target()) == "int8"
    for stored in (dtypes.bfloat16, dtypes.float32):  # may reach beyond float16
        assert activations_for(nvidia_target("sm_90"), stored) == "scaled-half"
        assert activations_for(webgpu_target(), stored) == "float"


@pytest.fixture(scope="module")
def ids(model_folder: Path) -> np.ndarray:
    """Of a prompt."""
    from tinyweb.formats.source import open_model
    from tinyweb.formats.tokenizer import Tokenizer

    return np.array([Tokenizer.from_folder(open_model(model_folder)).encode(PROMPT)[:64]], np.int32)


@pytest.mark.parametrize("quant", ["f16", "q8", "q4"])
def test_logits(model_folder: Path, ids: np.ndarray, quant: str) -> None:
    """Differ as roundings of half floats do, far less than of other weights; a few tokens not at all."""
    exact, half = (load(model_folder, quant, device="CPU", activations=a) for a in ("float", "half"))
    want, got = (model(Tensor(ids, device="CPU")).numpy() for model in (exact, half))
    assert 0 < np.abs(got - want).max() < 0.02 * want.std()
    assert ids.shape[1] >= 16
    few = [model(Tensor(ids[:, :4], device="CPU")).numpy() for model in (exact, half)]
    np.testing.assert_array_equal(*few)


@pytest.mark.parametrize("rows", [15, 16, 40])
def test_many_rows_are_rounded(rows: int) -> None:
    """Those beyond half precision are held at its ends; of weights of other types none are."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal((rows, 24)).astype(np.float32), random.standard_normal((8, 24)).astype(np.float32)
    x[0], x[1, 0] = 3e5, -np.inf
    for dtype in (dtypes.float16, dtypes.float32):
        weight = Tensor(w).cast(dtype)
        got = Linear.of(weight)(Tensor(x), "half").numpy()
        rounded = dtype is dtypes.float16 and rows >= 16
        seen = np.clip(x, -65504, 65504).astype(np.float16).astype(np.float32) if rounded else x
        with np.errstate(invalid="ignore"):
            want = seen @ weight.numpy().astype(np.float32).T
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3 * 65504 if rounded else 1)
        np.testing.assert_allclose(got[2:], want[2:], rtol=1e-4, atol=1e-4)


def test_rows_beyond_are_scaled() -> None:
    """Each by itself: what is within the range is rounded as without, and nothing beyond is lost."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal((16, 24)).astype(np.float32), random.standard_normal((8, 24)).astype(np.float16)
    x[0], x[1, 3], x[2] = x[0] * 1e30, 3e5, 0
    layer = Linear.of(Tensor(w))
    got, half = (layer(Tensor(x), a).numpy() for a in ("scaled-half", "half"))
    want, largest = x.astype(np.float64) @ w.astype(np.float64).T, np.abs(x).max(-1, keepdims=True)
    assert (np.abs(got - want) <= 2e-3 * largest * np.abs(w).sum(-1)).all()
    np.testing.assert_array_equal(got[2:], half[2:])
    assert np.abs(half[1] - want[1]).max() > 1e5


def fragments(model: Decoder, target: Target, tokens: int) -> list[bool]:
    """Of each kernel that reads so many tokens, whether it has matrix instructions of half floats."""
    start = Variable("start_pos", 0, model.context - tokens).bind(0)
    count = Variable("count", 1, tokens).bind(1)
    plan = capture(lambda: model.decode(start) if tokens == 1 else model.prefill(tokens, start, count), target)
    programs = [program_for(call.kernel, target) for call in plan.calls]
    return [any(isinstance(u.arg, Fragments) and "f16" in u.arg.name for u in p.uops) for p in programs]


@pytest.mark.parametrize("quant", ["f16", "q8", "q4"])
@pytest.mark.parametrize("chip", ["sm_90", *(pytest.param(c, marks=pytest.mark.slow) for c in ("gfx942", "gfx1201"))])
def test_prompts_are_read_by_matrices(model_folder: Path, chip: str, quant: str) -> None:
    """The projections and both products of attention, in every layer: 5 kernels, but of the last layer, whose last
    token alone goes on, fewer. A token is none of it, and takes the kernels that it took."""
    model = load(model_folder, quant, device="CPU", activations="half")
    prompt, token = fragments(model, TARGETS[chip], 64), fragments(model, TARGETS[chip], 1)
    assert sum(prompt) >= 5 * (len(model.config.layers) - 1) + 2
    assert not any(token)
    model.activations = "scaled-half"
    scaled = fragments(model, TARGETS[chip], 64)
    assert sum(scaled) == sum(prompt)
    assert len(scaled) <= len(prompt) + 4 * len(model.config.layers)  # a kernel for each matrix: the scale, and halves
    model.activations = "float"
    assert not any(fragments(model, TARGETS[chip], 64))
    assert fragments(model, TARGETS[chip], 1) == token
